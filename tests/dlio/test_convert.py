"""Workload files of DLIO as patterns."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dliosim.dlio.config import Config
from dliosim.dlio.convert import Pattern, convert, import_pattern
from dliosim.dlio.known_keys import VERSIONS, guess_version, suggest_key
from dliosim.errors import UsageError
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.language.compile import compile_pattern
from dliosim.model import Columns, Job, Loop, Restore, Split, Workload
from dliosim.plan.forecast.forecast import forecast
from dliosim.readable import size
from dliosim.report.progress.progress_line import ProgressLine

#: unet3d on H100 as MLPerf Storage v1 has it.
UNET3D = {
    "model": "unet3d", "framework": "pytorch", "workflow.train": True,
    "workflow.generate_data": True, "workflow.checkpoint": True,
    "dataset.data_folder": "data/unet3d/", "dataset.format": "npz", "dataset.num_files_train": 168,
    "dataset.record_length": 146600628, "dataset.record_length_stdev": 68341808,
    "dataset.record_length_resize": 2097152, "reader.data_loader": "pytorch", "reader.batch_size": 7,
    "reader.read_threads": 4, "reader.file_shuffle": "seed", "reader.sample_shuffle": "seed", "train.epochs": 5,
    "train.computation_time": 0.323, "checkpoint.checkpoint_folder": "checkpoints/unet3d",
    "checkpoint.checkpoint_after_epoch": 5, "checkpoint.epochs_between_checkpoints": 2,
    "checkpoint.model_size": 499153191, "metric.au": 0.9,
}  # fmt: skip


def imported(changed: dict[str, object] | None = None, version: str | None = None, **options: bool) -> Pattern:
    """Convert the file with changes; a value of None takes a key away."""
    values = {name: value for name, value in {**UNET3D, **(changed or {})}.items() if value is not None}
    config = Config("unet3d", values)  # type: ignore[arg-type]
    return convert(config, VERSIONS[version] if version else None, **options)


def compiled(pattern: Pattern, place: Path, ranks: int = 4) -> Workload:
    """Compile a pattern, which must be right."""
    path = place / "imported.dlio"
    path.write_text(pattern.text)
    return compile_pattern(path, (), Job(ranks))[0]


def test_a_file_becomes_a_pattern_whose_lines_name_their_keys(tmp_path: Path) -> None:
    pattern = imported()
    golden = Path(__file__).with_name("unet3d.txt")
    assert pattern.text == golden.read_text()
    assert compiled(pattern, tmp_path).name == "unet3d"


def lines(pattern: Pattern) -> set[str]:
    """The lines without comments and spaces."""
    return {" ".join(line.partition("#")[0].split()) for line in pattern.text.splitlines()}


@pytest.mark.parametrize(
    ("version", "expected", "absent"),
    [
        ("2.0.0", "shuffle samples within shard each epoch", "shuffle samples globally each epoch"),
        ("mlperf-v1", "shuffle samples globally each epoch", "shuffle samples within shard each epoch"),
        ("mlperf-v2", "fsync off", "shuffle"),
        ("main", "fsync off", "shuffle"),
        ("mlperf-v3", "shuffle files globally each epoch", "through library"),
        ("mlperf-v3", "fsync on", "fsync off"),
    ],
)
def test_as_run_is_what_a_version_does_whatever_the_file_asks_for(
    tmp_path: Path, version: str, expected: str, absent: str
) -> None:
    pattern = imported({"checkpoint.fsync": True}, version, as_run=True)
    assert expected in lines(pattern)
    assert not any(line.startswith(absent) for line in lines(pattern))
    compiled(pattern, tmp_path)


def test_sizes_as_run_are_squares_with_the_spread_of_two_sides() -> None:
    assert "size 114_660 B" in lines(imported({"dataset.record_length": 114660.07, "dataset.record_length_stdev": 0}))
    square = imported({"dataset.record_length": 114660.07, "dataset.record_length_stdev": 0}, as_run=True)
    assert "size 114_244 B" in lines(square)  # 338 x 338
    spread = imported(as_run=True)
    assert any(line.startswith("size normal(146_579_449 B, 48_976_9") for line in lines(spread))


@pytest.mark.parametrize("form", ["tfrecord", "csv", "indexed_binary", "npz", "npy", "hdf5", "parquet"])
def test_samples_of_a_file_have_the_size_that_is_drawn_for_it(tmp_path: Path, form: str) -> None:
    changed = {"dataset.format": form, "dataset.num_samples_per_file": 7, "framework": "tensorflow"}
    pattern = imported({**changed, "reader.data_loader": "tensorflow"})
    assert "sizes by file" in lines(pattern)
    assert not any("size" in line for line in pattern.approximations)
    dataset = compiled(pattern, tmp_path).dataset("train_data")
    assert (dataset.sizes, dataset.size.parameters) == ("by file", (146_600_628.0, 68_341_808.0))


@pytest.mark.parametrize("samples", [1, 7])
def test_where_all_samples_have_one_size_it_is_said(samples: int) -> None:
    several = {"dataset.hdf5.num_dset_per_record": 3, "dataset.num_samples_per_file": samples}
    pattern = imported({"dataset.format": "hdf5", **several})
    assert {"size 146_600_628 B"} & lines(pattern) and "sizes by file" not in lines(pattern)
    assert any("one size here: the mean; in DLIO all of a file" in line for line in pattern.approximations)


@pytest.mark.parametrize("form", ["npz", "hdf5", "parquet"])
def test_compressed_files_have_the_sizes_that_are_drawn_for_them(tmp_path: Path, form: str) -> None:
    pattern = imported({"dataset.format": form, "dataset.num_samples_per_file": 7, "dataset.compression": "gzip"})
    assert {"sizes by file", "compress gzip 4"} <= lines(pattern)
    compiled(pattern, tmp_path)


def test_tensorflow_streams_records() -> None:
    pattern = imported({"framework": "tensorflow", "reader.data_loader": "tensorflow", "dataset.format": "tfrecord"})
    assert {"shard by file", "open each epoch", "transfer 256 KiB", "readers 4 by batch"} <= lines(pattern)
    assert "shuffle samples within buffer of 1_024 samples" in lines(pattern)


@pytest.mark.parametrize(("threads", "ahead", "batches"), [(4, 2, 4), (4, 5, 8), (4, 0, 8), (1, 2, 2), (3, 3, 3)])
def test_what_pytorch_holds_ahead_is_a_whole_number_for_each_worker(threads: int, ahead: int, batches: int) -> None:
    pattern = imported({"reader.read_threads": threads, "reader.prefetch_size": ahead})
    assert f"prefetch {batches} batches" in lines(pattern)


@pytest.mark.parametrize(
    ("given", "phrase"),
    [
        ({"train.computation_time_stdev": 0.1}, "normal(323 ms, 100 ms) clipped to 0 s and 1.223 s"),
        ({"train.computation_time": {"mean": 0.5}}, "500 ms"),
        ({"train.computation_time": {"type": "uniform", "min": 0.1, "max": 0.2}}, "uniform(100 ms, 200 ms)"),
        ({"train.computation_time": {"type": "gamma", "shape": 4, "scale": 0.01}}, "gamma(40 ms, 20 ms)"),
        ({"train.computation_time": {"type": "exponential", "scale": 0.01}}, "exponential(10 ms)"),
        ({"train.computation_time": {"type": "poisson", "lam": 2.5}}, "poisson(2.5 s)"),
    ],
)  # fmt: skip
def test_times_are_those_of_dlio(tmp_path: Path, given: dict[str, object], phrase: str) -> None:
    pattern = imported(given)
    assert f"compute {phrase}" in lines(pattern)
    assert not pattern.approximations
    compiled(pattern, tmp_path)


@pytest.mark.parametrize("kind", ["gamma", "exponential", "poisson"])
def test_times_of_nothing_are_none(tmp_path: Path, kind: str) -> None:
    pattern = imported({"train.computation_time": {"type": kind, "lam": 0, "scale": 0, "shape": 3}})
    assert not any(line.startswith("compute") for line in lines(pattern))
    compiled(pattern, tmp_path)


@pytest.mark.parametrize(
    ("first", "every", "epochs", "phrase"),
    [(2, 2, 6, "every 2 epochs"), (5, 2, 5, "every 2 epochs from 5"), (5, 5, 4, None)],
)
def test_checkpoints_come_as_often_as_in_dlio_or_it_is_said(
    first: int, every: int, epochs: int, phrase: str | None
) -> None:
    names = ("checkpoint.checkpoint_after_epoch", "checkpoint.epochs_between_checkpoints", "train.epochs")
    pattern = imported(dict(zip(names, (first, every, epochs), strict=True)))
    assert [line for line in lines(pattern) if line.startswith("checkpoint state every")] == (
        [f"checkpoint state {phrase}"] if phrase else []
    )
    assert bool(pattern.approximations) == (phrase is None)


@pytest.mark.parametrize(
    ("first", "every", "phrase"), [(1, 1, "every 1 epoch"), (3, 2, "every 2 epochs from 3"), (6, 1, None)]
)
def test_evaluations_come_as_often_as_in_dlio_or_it_is_said(
    tmp_path: Path, first: int, every: int, phrase: str | None
) -> None:
    evaluation = {"evaluation.eval_after_epoch": first, "evaluation.epochs_between_evals": every}
    pattern = imported({"workflow.evaluation": True, "dataset.num_files_eval": 42, **evaluation})
    assert [line for line in lines(pattern) if line.startswith("evaluate")] == (
        [f"evaluate {phrase} {{"] if phrase else []
    )
    assert bool(pattern.approximations) == (phrase is None)
    compiled(pattern, tmp_path)


#: Llama 3 8B as MLPerf Storage v3 saves it.
LLAMA = {
    "workflow.train": False, "workflow.generate_data": False, "model": None, "model.name": "llama",
    "model.type": "transformer", "model.num_layers": 32, "model.transformer.hidden_size": 4096,
    "model.transformer.ffn_hidden_size": 14336, "model.transformer.vocab_size": 128256,
    "model.parallelism.zero_stage": 3, "checkpoint.num_checkpoints_write": 10, "checkpoint.num_checkpoints_read": 10,
    "checkpoint.time_between_checkpoints": 5, "checkpoint.model_size": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "ranks", "split"),
    [
        ({}, 8, Split(1, 1, 8)),
        ({"tensor": 8, "pipeline": 2, "zero_stage": 1}, 32, Split(8, 2, 2, order="tp-pp-dp")),
        ({"tensor": 8, "pipeline": 2, "zero_stage": 1, "data": 4}, 16, Split(8, 2, 4, 16, "tp-pp-dp")),
        ({"tensor": 8, "data": 4}, 8, Split(8, 1, 4, played=8)),
        ({"tensor": 2, "zero_stage": 0}, 8, Split(2, 1, 4)),
    ],
)
def test_a_transformer_is_split_over_the_ranks(
    tmp_path: Path, given: dict[str, object], ranks: int, split: Split
) -> None:
    mode = "subset" if "data" in given else "default"
    keys = {f"model.parallelism.{name}": value for name, value in given.items()}
    workload = compiled(imported({**LLAMA, **keys, "checkpoint.mode": mode}, "mlperf-v3"), tmp_path, ranks)
    checkpoint = workload.checkpoint("state")
    assert checkpoint.split(ranks) == split
    assert checkpoint.model is not None and checkpoint.model.zero == given.get("zero_stage", 3)
    restore = workload.verbs[-1]
    assert isinstance(restore, Restore)
    assert (restore.once, restore.sent) == ((False, True) if checkpoint.model.zero == 3 else (True, False))


@pytest.mark.parametrize(
    ("write", "read", "each"), [(10, 10, "once"), (10, 3, "of 3 once"), (-1, 10, "of 10 once"), (4, 9, "once")]
)
def test_each_checkpoint_is_loaded_once_the_oldest_first(tmp_path: Path, write: int, read: int, each: str) -> None:
    counts = {"checkpoint.num_checkpoints_write": write, "checkpoint.num_checkpoints_read": read}
    pattern = imported({**LLAMA, **counts, "checkpoint.recovery_rank_shift": True}, "mlperf-v3")
    assert f"each        {each} " in pattern.text and "pause       5 s " in pattern.text
    *_, verb = compiled(pattern, tmp_path, 8).verbs
    assert isinstance(verb, Restore) and (verb.each, verb.shift) == (min(read, write) if write > 0 else read, 8)
    assert not any("oldest" in line or "recovery" in line for line in pattern.approximations)
    assert any("DLIO fails after 4" in line for line in pattern.approximations) == (read == 9)


def test_without_the_flag_of_checkpoints_their_section_has_no_effect() -> None:
    pattern = imported({"workflow.checkpoint": False})
    assert "checkpoint" not in pattern.text
    assert "checkpoint.model_size=499153191: has no effect with the rest of this file" in pattern.unused


def test_keys_that_become_no_line_are_said_with_what_was_wanted() -> None:
    pattern = imported({"workflow.do_eval": True, "reader.batchsize": 3, "reader.file_access": "multi"})
    assert "workflow.do_eval=True: DLIO never reads it; `workflow.evaluation: True` was wanted" in pattern.unused
    assert "warning: reader.batchsize=3: DLIO has no such key; did you mean reader.batch_size?" in pattern.unused
    assert any(line.startswith("reader.file_access=multi: DLIO never reads it") for line in pattern.unused)


@pytest.mark.parametrize("kind", ["s3", "aistore"])
def test_object_storage_is_refused_with_how_much_would_import(kind: str) -> None:
    with pytest.raises(
        UsageError, match=rf"storage_type={kind}: object storage .*; 21 of the 24 keys of this file would"
    ):
        imported({"storage.storage_type": kind})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dataset.format": "npx"}, "expected one of csv, .*\n  = help: write `format: npz` in `dataset:`"),
        ({"dataset.data_folder": 'a"b'}, "not a folder"),
        ({"dataset.num_files_train": 0}, "there are no files"),
        ({"reader.reader_classname": "mine.Reader"}, "a plug-in of DLIO"),
        ({"metric.au": 90}, "metric.au: 90: expected a ratio .*\n  = help: write `au: 0.9` in `metric:`"),
        ({"dataset.format": "jpeg", "dataset.num_samples_per_file": 4}, "`num_samples_per_file: 1` in `dataset:`"),
        (
            {"dataset.format": "hdf5", "dataset.compression": "gzip", "dataset.compression_level": 0},
            "dataset.compression_level: 0: expected a whole number from 1 on",
        ),
        ({"workflow.train": False, "workflow.generate_data": False}, "say how many: checkpoint.num_checkpoints_write"),
        ({"checkpoint.type": "some"}, "expected one of all_ranks, rank_zero"),
        ({"train.computation_time": -1}, "expected seconds"),
        ({"workflow.train": False, "workflow.checkpoint": False, "workflow.generate_data": False}, "nothing to do"),
    ],
)
def test_values_that_no_pattern_has_are_refused_in_words(changed: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        imported(changed)


def test_folders_of_others_stay_below_the_data_folder() -> None:
    for folder in ("/etc/../../usr/x", "../../x", "./x/../y"):
        path = next(line for line in lines(imported({"dataset.data_folder": folder})) if line.startswith("path"))
        assert ".." not in path and not path.startswith('path "/')


@pytest.mark.parametrize(
    ("folder", "below", "place"),
    [
        ("../../etc", "etc/train", "../.."),
        ("/a/b/c", "c/train", "/a/b"),
        ("/a", "a/train", "/"),
        ("a/../../b", "b/train", ".."),
    ],
)
def test_a_folder_that_is_not_below_dir_is_said(folder: str, below: str, place: str) -> None:
    pattern = imported({"dataset.data_folder": folder})
    assert f'path "{below}"' in lines(pattern)
    said = f"dataset.data_folder={folder}: here `{below}` below --dir (./dliosim-data); with `--dir {place}` where"
    assert any(text.startswith(said) for text in pattern.notes)


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({}, "."),
        ({"dataset.data_folder": "../x"}, ".."),
        ({"dataset.data_folder": "x", "storage.storage_root": "/mnt/nvme"}, "/mnt/nvme"),
    ],
)
def test_files_that_are_not_there_are_said_with_the_place_where_they_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    notes = imported(changed, from_files=True).notes
    assert f"train_data: its files are below {place}: add `--dir {place}` to each command" in notes
    assert any(text.startswith(f"warning: there is no file {place}/") for text in notes)


def test_what_a_run_writes_is_said_where_it_is_much() -> None:
    assert any(text.startswith("a run writes 24.6 GB of data") for text in imported().notes)
    assert not any("a run writes" in text for text in imported({"dataset.num_files_train": 6}).notes)
    assert not any("a run writes" in text for text in imported(from_files=True).notes)


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        ({}, 8),
        ({"model.parallelism.zero_stage": 1, "model.num_layers": 3}, 3),
        ({"model.parallelism.tensor": 2, "model.parallelism.zero_stage": 0}, 2),
        ({"model.model_datatype": "fp32", "model.optimizer_datatype": "bf16"}, 1),
    ],
)
def test_what_checkpoints_write_is_said_as_it_is_planned(tmp_path: Path, given: dict[str, object], ranks: int) -> None:
    pattern = imported({**LLAMA, **given}, "mlperf-v3")
    [state] = forecast(compiled(pattern, tmp_path, ranks)).states
    planned = sum(amount for _, amount in state.contents)
    assert state.saves == 10
    [said] = [text for text in pattern.notes if text.startswith("a checkpoint is ")]
    assert f"a run saves 10, which are {size(10 * planned, 3)}: " in said


def test_checkpoints_of_a_loop_are_said_where_they_are_large() -> None:
    large = {"checkpoint.model_size": 12 * 10**9, "checkpoint.type": "all_ranks"}
    said = "a checkpoint is 12.0 GB of each rank; the loop saves one every 2 epochs from 5, and all are kept"
    assert said in imported(large).notes
    assert not any("a checkpoint is" in text for text in imported().notes)


@pytest.mark.parametrize("form", ["indexed_binary", "mmap_indexed_binary"])
@pytest.mark.parametrize("key", [{"reader.odirect": True}, {"storage.storage_type": "direct_fs"}])
def test_indexed_samples_past_the_cache_are_imported_so_that_they_check(
    tmp_path: Path, form: str, key: dict[str, object]
) -> None:
    pattern = imported({"dataset.format": form, "dataset.num_samples_per_file": 4, **key})
    assert "cache off" not in lines(pattern)
    assert any("`align 4 KiB` to the data set and `cache off`" in text for text in pattern.approximations)
    compiled(pattern, tmp_path)
    path = tmp_path / "mended.dlio"
    path.write_text(
        re.sub(" +engine .*\n", "", pattern.text)
        .replace("    format ", "    align 4 KiB\n    format ")
        .replace("    open ", "    cache off\n    open ")
    )
    [loop] = [verb for verb in compile_pattern(path, (), Job(4))[0].verbs if isinstance(verb, Loop)]
    assert loop.access.cache == "off"


@pytest.mark.parametrize("as_run", [False, True])
def test_files_that_dlio_maps_are_mapped_and_it_is_said_that_dlio_reads_nothing(tmp_path: Path, as_run: bool) -> None:
    pattern = imported({"dataset.format": "mmap_indexed_binary"}, as_run=as_run)
    assert {"format raw", "engine mmap"} <= lines(pattern)
    assert any("touches none of its bytes" in text for text in pattern.approximations) == as_run
    compiled(pattern, tmp_path)


@pytest.mark.parametrize(
    ("asked", "version", "comment"),
    [(True, "mlperf-v2", ", which mlperf-v2 does not read"), (False, "mlperf-v2", ""), (True, "mlperf-v3", "")],
)
def test_the_comment_of_fsync_says_why_it_is_not_what_was_asked(asked: bool, version: str, comment: str) -> None:
    pattern = imported({"checkpoint.fsync": asked, "workflow.checkpoint": True}, version, as_run=True)
    line = next(line for line in pattern.text.splitlines() if line.strip().startswith("fsync"))
    assert line.endswith(f"checkpoint.fsync={asked}{comment}")


def test_files_that_dlio_has_written_are_found_by_their_names(tmp_path: Path) -> None:
    pattern = imported({"dataset.num_subfolders_train": 4}, from_files=True)
    assert 'from files "data/unet3d/train/**/*.npz"' in lines(pattern)
    assert not any(line.startswith(("prepare", "samples", "size")) for line in lines(pattern))


@pytest.mark.parametrize(
    ("keys", "version"),
    [
        (["dataset.record_length"], "2.0.0"),
        (["dataset.record_length_bytes"], "mlperf-v2"),
        (["model.name"], "mlperf-v2"),
        (["dataset.skip_listing", "dataset.record_length_bytes"], "mlperf-v3"),
        (["dataset.record_dims"], "main"),
        (["train.epochs"], "2.0.0"),
    ],
)
def test_the_version_is_guessed_from_names_of_keys(keys: list[str], version: str) -> None:
    assert guess_version(dict.fromkeys(keys)).name == version


def test_the_version_is_guessed_from_a_format_that_only_one_has() -> None:
    assert guess_version({"dataset.format": "parquet"}).name == "mlperf-v3"


@pytest.mark.parametrize(
    ("changed", "version", "expected"),
    [
        ({"reader.odirect": True}, "2.0.0", {"through library"}),
        ({"reader.odirect": True}, "main", {"cache off"}),
        ({"storage.storage_type": "direct_fs"}, "mlperf-v3", {"cache off"}),
        ({"storage.storage_options.storage_library": "direct"}, "mlperf-v3", {"cache off"}),
        ({"dataset.format": "jpeg"}, "main", {"decode on"}),
        (
            {"dataset.format": "hdf5", "dataset.record_dims": [181, 9], "dataset.hdf5.chunk_dims": [1, 128, 32]},
            "main",
            {"shape 181 x 9 of uint8", "chunk 128 x 9"},
        ),
        ({"dataset.format": "parquet"}, "mlperf-v3", {"engine queued depth 64", "chunk 1 sample", "transfer 32 MiB"}),
        ({"dataset.format": "hdf5", "dataset.compression": "gzip", "dataset.compression_level": 9}, "2.0.0",
         {"compress gzip 4"}),
        ({"dataset.record_length_stdev": 0}, "main", {"size 64 KiB"}),
        ({"dataset.record_dims": [5], "dataset.record_length_stdev": 0}, "2.0.0", {"size 146_579_449 B"}),
    ],
)  # fmt: skip
def test_as_run_has_what_only_some_versions_do(changed: dict[str, object], version: str, expected: set[str]) -> None:
    assert expected <= lines(imported(changed, version, as_run=True))


@pytest.mark.parametrize(
    ("changed", "version", "said"),
    [
        (
            {},
            "main",
            "dataset.record_length=146600628: main does not read it: `dataset.record_length_bytes` was wanted",
        ),
        ({"dataset.num_samples_per_file": 10, "dataset.format": "csv"}, "2.0.0", "10 times the bytes"),
        ({"dataset.num_samples_per_file": 10, "dataset.format": "hdf5"}, "mlperf-v3", "10 times the bytes"),
        ({"reader.read_threads": 1}, "mlperf-v3", "min(cores / ranks of a node, 8)"),
        ({"reader.odirect": True}, "2.0.0", "2.0.0 has no such key"),
        ({"dataset.format": "csv"}, "main", "3.57 B"),
        ({"dataset.format": "tfrecord", "dataset.compression": "gzip"}, "main", "tfrecord files are not compressed"),
        ({"dataset.format": "hdf5", "dataset.hdf5.chunk_dims": [1, 5]}, "main", "the first number alone"),
        ({"checkpoint.tensor_parallelism": 2}, "2.0.0", "checkpoint.tensor_parallelism=2"),
        ({"model": None, "model.layer_parameters": [5]}, "main", "without model.num_layers"),
    ],
)
def test_what_differs_from_dlio_is_said(changed: dict[str, object], version: str, said: str) -> None:
    assert any(said in text for text in imported(changed, version, as_run=True).approximations)


def test_files_that_dlio_has_written_are_read_where_its_data_folder_is(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    for number in range(3):
        np.savez(folder / f"img_{number}_of_3.npz", x=np.zeros((4, 4, 1), np.uint8), y=[0])
    pattern = imported({"dataset.data_folder": f"{tmp_path}/data", "reader.batch_size": 1}, from_files=True)
    assert pattern.notes == (f"train_data: its files are below {tmp_path}: add `--dir {tmp_path}` to each command",)
    assert pattern.place == str(tmp_path)
    assert any(text.startswith("dataset.num_files_train=168") for text in pattern.approximations)
    path = tmp_path / "imported.dlio"
    path.write_text(pattern.text)
    finder = FileFinder({"data": tmp_path}, ProgressLine(None))
    assert compile_pattern(path, (), Job(1), finder)[0].datasets[0].samples == 3


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The workload files of dlio-benchmark 2.0.0."""
    place = tmp_path_factory.mktemp("dlio")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place)]
    if subprocess.run([*command, "dlio-benchmark==2.0.0"], capture_output=True, timeout=100).returncode:
        pytest.skip("dlio-benchmark 2.0.0 could not be downloaded")
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return sorted(place.glob("dlio_benchmark/configs/workload/*.yaml"))


@pytest.mark.parametrize("as_run", [False, True])
def test_every_file_that_dlio_ships_becomes_a_pattern_that_is_right(
    shipped: list[Path], tmp_path: Path, as_run: bool
) -> None:
    assert len(shipped) == 14
    for path in shipped:
        workload = compiled(import_pattern(path, as_run=as_run), tmp_path)
        assert workload.name == path.stem
        assert compile_pattern(path, (("train.batch", "2 per rank"),), Job(4))[0].name == path.stem


def test_synthetic_samples_are_steps_that_read_nothing(tmp_path: Path) -> None:
    made = imported({"dataset.format": "synthetic", "workflow.evaluation": True, "dataset.num_files_eval": 40})
    path = tmp_path / "synthetic.dlio"
    path.write_text(made.text)
    workload, _ = compile_pattern(path, [], Job(2))
    train = workload.verbs[-1]
    assert isinstance(train, Loop)
    assert (train.dataset, train.steps, workload.datasets, workload.expectations) == ("", 168 // (7 * 2), (), ())
    (evaluation,) = train.evaluations
    assert (evaluation.loop.dataset, evaluation.loop.steps) == ("", 40 // 2)


def test_a_loader_that_makes_its_samples_reads_nothing_but_its_files_can_be_generated(tmp_path: Path) -> None:
    synthetic = {"dataset.format": "npz", "reader.data_loader": "synthetic"}
    made = imported(synthetic | {"workflow.generate_data": True})
    assert any("no loop reads the files" in text for text in made.approximations)
    assert "read " not in made.text
    generated = imported(synthetic | {"workflow.generate_data": True, "workflow.train": False})
    assert [dataset.format for dataset in compiled(generated, tmp_path).datasets] == ["npz"]


def test_a_loader_that_only_dlio_has_is_refused_by_its_key() -> None:
    with pytest.raises(UsageError, match=r"reader\.data_loader=vortex: a loader that only DLIO has"):
        imported({"reader.data_loader": "vortex"})


def test_the_table_of_the_manual_has_the_need_of_every_file_that_dlio_ships(shipped: list[Path]) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "dlio.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \|.* \| ([0-9.]+) \| [^|]* \|$", manual, re.MULTILINE))
    assert sorted(table) == [path.stem for path in shipped]
    for path in shipped:
        found = forecast(compile_pattern(path, [], Job(1))[0])
        demand = next(phase.demand for phase in found.phases if phase.demand)
        assert demand.rate_without_waits / 1e9 == pytest.approx(float(table[path.stem]), rel=0.04), path.stem


def test_the_columns_of_a_table_have_their_types_and_those_that_are_read_come_first(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    columns = [
        {"name": "label", "dtype": "float32", "size": 1},
        {"name": "a", "dtype": "int64", "size": 1},
        {"name": "b", "dtype": "float32", "size": 13},
    ]
    changed = {"dataset.format": "parquet", "dataset.num_samples_per_file": 64, "dataset.parquet.columns": columns}
    made = imported(changed | {"storage.storage_options.columns": ["label", "b"]}, "mlperf-v3")
    path = tmp_path / "table.dlio"
    path.write_text(made.text)
    workload, _ = compile_pattern(path, [], Job(2))
    table, train = workload.dataset("train_data"), workload.verbs[-1]
    assert table.columns == (Columns(1, "float32"), Columns(1, "float32", 13), Columns(1, "int64"))
    assert isinstance(train, Loop)
    assert train.columns == 2
    assert not any("columns" in text for text in (*made.approximations, *made.unused))


def test_absolute_folders_are_said_to_be_below_dir_and_which_one_they_are_at(tmp_path: Path) -> None:
    pattern = imported({"dataset.data_folder": "/mnt/a/unet3d", "checkpoint.checkpoint_folder": "/mnt/b/c/unet3d"})
    assert {'path "unet3d/train"', 'path "c/unet3d"'} <= lines(pattern)
    folders = [text for text in pattern.notes if "--dir" in text]
    assert [re.findall(r"--dir (/\w[/\w]+)", text) for text in folders] == [["/mnt/a"], ["/mnt/b"]]
    relative = (imported(), imported({"dataset.data_folder": None, "checkpoint.checkpoint_folder": None}))
    assert not any("--dir" in text for one in relative for text in one.notes)


@pytest.mark.parametrize("key", ["dataset.data_folder", "checkpoint.checkpoint_folder", "storage.storage_root"])
@pytest.mark.parametrize("scheme", ["s3", "gs", "file", "s3a"])
def test_a_place_with_a_scheme_is_refused_with_the_folder_to_name(key: str, scheme: str) -> None:
    with pytest.raises(
        UsageError, match=rf"(?s){key}={scheme}://bucket/a: storage behind .*\+\+workload.{key}=bucket/a`"
    ):
        imported({key: f"{scheme}://bucket/a"})
    imported({key: "bucket/a"})


@pytest.mark.parametrize(("stdev", "said"), [(0.02, ["17.9 ms on average", "14.0 ms"]), (0.002, [])])
def test_a_spread_that_makes_times_negative_is_said_with_both_means(stdev: float, said: list[str]) -> None:
    found = imported({"train.computation_time": 0.01, "train.computation_time_stdev": stdev}).approximations
    notes = [text for text in found if "computation_time" in text]
    assert len(notes) == bool(said) and all(text in notes[0] for text in said)


@pytest.mark.parametrize(
    "changed",
    [
        {"reader.sample_shuffle": True},
        {"reader.file_shuffle": "sed"},
        {"framework": "jax"},
        {"storage.storage_type": "nfs"},
        {"reader.data_loader": "torch"},
    ],
)
def test_words_that_dlio_does_not_have_are_refused_with_those_that_it_has(changed: dict[str, object]) -> None:
    ((name, _),) = changed.items()
    with pytest.raises(UsageError, match=rf"{name}: \w+: expected one of \w+, "):
        imported(changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"framework": "tensorflow"}, "framework tensorflow with the loader of pytorch"),
        ({"framework": None}, "framework tensorflow with the loader of pytorch"),
        ({"reader.data_loader": "tensorflow"}, "framework pytorch with the loader of tensorflow"),
        ({"dataset.format": "tfrecord"}, "tfrecord with PyTorch's loader"),
    ],
)
def test_loaders_that_dlio_does_not_take_are_said(changed: dict[str, object], said: str) -> None:
    assert [text for text in imported(changed).approximations if "ends with an error" in text] == [
        f"{said}: DLIO ends with an error; here the loader counts"
    ]
    assert not any("ends with an error" in text for text in imported().approximations)


@pytest.mark.parametrize(
    ("kind", "element", "length", "said"),
    [
        ("list", "float32", 5, False),
        ("string", "uint8", 16, True),
        ("binary", "uint8", 9, True),
        ("bool", "uint8", 1, True),
        ("decimal", "float32", 5, True),
    ],
)
def test_columns_of_other_types_have_about_the_bytes_of_dlios(
    tmp_path: Path, kind: str, element: str, length: int, said: bool
) -> None:
    columns = [{"name": "a", "dtype": "int64"}, {"name": "b", "dtype": kind, "size": 5}]
    changed = {"dataset.format": "parquet", "dataset.num_samples_per_file": 64, "dataset.parquet.columns": columns}
    pattern = imported(changed, "mlperf-v3")
    found = compiled(pattern, tmp_path).dataset("train_data").columns
    assert found == (Columns(1, "int64"), Columns(1, element, length))
    assert any(f"`b` of {kind}:" in text for text in pattern.approximations) == said


@pytest.mark.parametrize("size", [0, "many", 1.5, True])
def test_a_column_without_a_size_is_refused(size: object) -> None:
    columns = [{"name": "a", "dtype": "int64", "size": size}]
    with pytest.raises(UsageError, match="size of `a`: expected a whole number from 1 on"):
        imported({"dataset.format": "parquet", "dataset.parquet.columns": columns}, "mlperf-v3")


def test_a_key_of_two_sections_is_suggested_of_the_same_one_each_time() -> None:
    assert suggest_key("train.num_layers") == "checkpoint.num_layers"
