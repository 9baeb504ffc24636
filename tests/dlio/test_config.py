"""Workload files of DLIO as values: forms, overrides, and what is hostile."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from dliosim.dlio.config import Config, read_config
from dliosim.errors import UsageError

PLAIN = "dataset:\n  num_files_train: 8\n  format: npz\ntrain: {epochs: 5, computation_time: 1e-3}\n"


def write(place: Path, text: str, name: str = "w.yaml") -> Path:
    path = place / name
    path.write_text(text)
    return path


def test_values_have_dotted_names_and_numbers_are_those_of_hydra(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, PLAIN))
    assert (config.name, config.integer("dataset.num_files_train")) == ("w", 8)
    assert config.number("train.computation_time") == 0.001  # text in YAML 1.1, a number for Hydra


def test_what_hydra_leaves_after_a_run_is_the_same(tmp_path: Path) -> None:
    below = "".join(f"  {line}\n" for line in PLAIN.splitlines())
    hydra = read_config(write(tmp_path, f"workload:\n{below}hydra:\n  run: x\n"))
    assert hydra.values == read_config(write(tmp_path, PLAIN)).values


@pytest.mark.parametrize(
    ("folder", "model", "name"),
    [
        ("runs/a b/.hydra", "  model: {name: unet3d}\n", "unet3d"),
        ("runs/a b/.hydra", "  model: resnet-50\n", "resnet_50"),
        ("runs/a b/.hydra", "", "a_b"),
        ("runs/2026-11-24/.hydra", "", "w_2026_11_24"),
        ("mine", "", "mine"),
    ],
)
def test_what_hydra_leaves_has_the_name_of_its_model_or_folder(
    tmp_path: Path, folder: str, model: str, name: str
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    path = write(tmp_path / folder, f"workload:\n{model}  train: {{epochs: 2}}\n", "config.yaml")
    assert read_config(path).name == name


def test_data_reader_is_an_older_name_of_reader(tmp_path: Path) -> None:
    assert read_config(write(tmp_path, "data_reader: {batch_size: 7}\n")).integer("reader.batch_size") == 7


def test_overrides_replace_add_and_remove(tmp_path: Path) -> None:
    overrides = ["++workload.train.epochs=2", "workload.reader.batch_size=4", "~workload.dataset.format"]
    config = read_config(write(tmp_path, PLAIN), overrides)
    assert (config.integer("train.epochs"), config.integer("reader.batch_size")) == (2, 4)
    assert not config.has("dataset.format")
    with pytest.raises(UsageError, match=r"expected an override such as \+\+workload.train.epochs=2"):
        read_config(write(tmp_path, PLAIN), ["train epochs 2"])


@pytest.mark.parametrize(
    ("text", "name", "lines"),
    [
        (f"{PLAIN}dataset:\n  format: hdf5\n", "dataset", "in line 1 and in line 5"),
        (
            "reader:\n  batch_size: 4\n  read_threads: 2\n  batch_size: 7\n",
            "reader.batch_size",
            "in line 2 and in line 4",
        ),
        ("dataset: {parquet: {columns: [{name: a, name: b}]}}\n", "dataset.parquet.columns.name", "in line 1"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_its_lines(tmp_path: Path, text: str, name: str, lines: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is there twice, {lines}"):
        read_config(write(tmp_path, text))


def test_an_override_without_a_value_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no value\n  = help: write `\+\+workload.reader.batch_size=4`"):
        read_config(write(tmp_path, PLAIN), ["++workload.reader.batch_size="])


@pytest.mark.parametrize(
    ("given", "read", "line"),
    [
        ("batch_size: seven", lambda config: config.integer("reader.batch_size"), "`batch_size: 4` in `reader:`"),
        ("batch_size: 1.5", lambda config: config.integer("reader.batch_size"), "`batch_size: 4` in `reader:`"),
        ("odirect: maybe", lambda config: config.flag("reader.odirect"), "`odirect: True` in `reader:`"),
    ],
)
def test_a_wrong_value_ends_with_the_line_to_write(
    tmp_path: Path, given: str, read: Callable[[Config], object], line: str
) -> None:
    config = read_config(write(tmp_path, f"reader: {{{given}}}\n"))
    with pytest.raises(UsageError, match=f"help: write {line}, or `.+workload.reader."):
        read(config)


def test_references_and_defaults_are_resolved(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "base.yaml")
    text = "defaults: [base, _self_]\ntrain: {epochs: 9}\nreader: {batch_size: '${workload.train.epochs}'}\n"
    config = read_config(write(tmp_path, text))
    numbers = [config.integer(name) for name in ("train.epochs", "reader.batch_size", "dataset.num_files_train")]
    assert numbers == [9, 9, 8]
    with pytest.raises(UsageError, match="stands for nothing in this file"):
        read_config(write(tmp_path, "train: {epochs: '${workload.no.such}'}\n"))
    with pytest.raises(UsageError, match="stands for nothing in this file"):
        read_config(write(tmp_path, "train: {epochs: '${train.epochs}'}\n"))


def test_references_within_a_text_are_resolved_and_those_of_hydra_are_refused_where_they_count(tmp_path: Path) -> None:
    text = "storage: {storage_root: /mnt, key: '${oc.env:KEY}'}\ndataset: {data_folder: '%s/u'}\ntrain: {epochs: 1}\n"
    config = read_config(write(tmp_path, text % "${workload.storage.storage_root}"))
    assert config.text("dataset.data_folder") == "/mnt/u"
    config = read_config(write(tmp_path, text % "${oc.env:SCRATCH}"))
    with pytest.raises(UsageError, match=r"(?s)Hydra alone knows.*help: say what it is: \+\+workload\.dataset\.data_f"):
        config.text("dataset.data_folder")
    doubled = "".join(f"k{i}: '${{train.k{i + 1}}}${{train.k{i + 1}}}', " for i in range(40))
    with pytest.raises(UsageError, match="longer than any value of a workload"):
        read_config(write(tmp_path, f"train: {{{doubled} k40: text}}\n"))


def test_a_workload_of_hydras_defaults_is_read_and_self_says_which_counts(tmp_path: Path) -> None:
    (tmp_path / "workload").mkdir()
    write(tmp_path / "workload", PLAIN, "base.yaml")
    own = "workload: {train: {epochs: 9}}\n"
    configs = {
        "last": "[workload: base, override hydra/job_logging: custom]",
        "first": "[_self_, {workload: base}]",
    }
    found = {name: read_config(write(tmp_path, f"defaults: {some}\n{own}")) for name, some in configs.items()}
    assert {name: config.integer("train.epochs") for name, config in found.items()} == {"last": 9, "first": 5}
    assert all(config.integer("dataset.num_files_train") == 8 for config in found.values())


@pytest.mark.parametrize("given", ["[model: x]", "[workload: null]", "[workload/base]", "[{a: b, c: d}]", "[3]"])
def test_other_defaults_are_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError, match=r"`defaults` have .*: expected a file's name here, or `workload: NAME`"):
        read_config(write(tmp_path, f"defaults: {given}\ntrain: {{epochs: 1}}\n"))


def test_files_that_are_each_others_defaults_end(tmp_path: Path) -> None:
    write(tmp_path, "defaults: [w]\ntrain: {epochs: 1}\n", "other.yaml")
    with pytest.raises(UsageError, match="`defaults` lead to more than 8 files"):
        read_config(write(tmp_path, "defaults: [other]\ntrain: {epochs: 1}\n"))


def test_defaults_that_are_missing_or_too_many_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"w\.yaml: cannot read .*gone\.yaml of its `defaults`: No such file"):
        read_config(write(tmp_path, "defaults: [gone]\ntrain: {epochs: 1}\n"))
    write(tmp_path, PLAIN, "base.yaml")
    with pytest.raises(UsageError, match="lead to more than 8 files"):
        read_config(write(tmp_path, f"defaults: [{', '.join(['base'] * 9)}]\ntrain: {{epochs: 1}}\n"))


@pytest.mark.parametrize(("file", "name"), [("3dunet.yaml", "w_3dunet"), ("ü_x.yaml", "__x"), ("a-b.yaml", "a_b")])
def test_the_name_of_a_workload_is_one_that_patterns_take(tmp_path: Path, file: str, name: str) -> None:
    assert read_config(write(tmp_path, PLAIN, file)).name == name


def test_comments_have_no_control_characters() -> None:
    assert Config("w", {"framework": "\x1b[31mred"}).quote("framework") == "framework=\ufffd[31mred"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: !!python/object/apply:os.system ['touch gone']\n", "not YAML that can be read"),
        ("a: &a [1, 2]\ntrain: {epochs: *a}\n", "has aliases"),
        (f"train: {'[' * 2000}{']' * 2000}\n", "more sections within each other"),
        ("train: " + "1" * 5000 + "\n", "a number or a date"),
        ("train: 2001-99-99\n", "a number or a date"),
        ("train: " + "{a: " * 50 + "1" + "}" * 50 + "\n", "fewer values and sections"),
        ("train: {" + ", ".join(f"k{i}: 1" for i in range(11_000)) + "}\n", "fewer values and sections"),
        ("train: [1, 2\n", "not YAML that can be read"),
        ("train:\n\tepochs: 1\n", r"w\.yaml: not YAML that can be read: line 2, column 1: found character '\\t'"),
        ("- 1\n", "not a workload of DLIO"),
        ("services: {web: {image: x}}\n", "it has none of the sections"),
        ("", "not a workload of DLIO"),
    ],
)
def test_what_is_no_workload_or_hostile_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as found:
        read_config(write(tmp_path, text))
    assert len(str(found.value)) < 400
    assert not Path("gone").exists()


def test_a_file_of_100_mb_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    tracemalloc.start()
    began = process_time()
    with pytest.raises(UsageError, match="has more than 262144 bytes"):
        read_config(path)
    assert process_time() - began < 1
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("value", ["seven", True, [1], 1.5, -1, float("nan"), 1e30])
def test_a_number_that_is_none_is_named_with_its_key(value: object) -> None:
    with pytest.raises(UsageError, match=r"train\.epochs: .*: expected a"):
        Config("w", {"train.epochs": value}).integer("train.epochs")  # type: ignore[dict-item]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.yaml")
    with pytest.raises(UsageError, match="a pipe"):
        read_config(tmp_path / "w.yaml")
