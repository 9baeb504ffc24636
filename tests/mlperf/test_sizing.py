"""`dliosim size`: its sizes keep both rules in the plan, a file less breaks one, and MLPerf asks for the same files."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from dliosim import PATTERNS
from dliosim.cli import main
from dliosim.language.compile import compile_pattern
from dliosim.mlperf.rules import count_data
from dliosim.model import Job
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.plan.forecast.forecast import forecast, loops_of

GIB = 2**30

Size: TypeAlias = Callable[..., dict[str, Any]]

TINY = """dlio 1
workload tiny "a test"
dataset d {
    samples  41
    size     1 MiB
    layout   shared file
    path     "d"
}
prepare d
train {
    read   d
    batch  4 per rank
}
"""

EXISTING = """dlio 1
workload there "a test"
dataset d {
    from files "*.npy"
}
train {
    read       d
    last batch keep
}
"""


@pytest.fixture
def size(capsys: pytest.CaptureFixture[str]) -> Size:
    """Return what `size --json` prints for a pattern and more words."""

    def run(pattern: str, *words: str, ranks: int = 8, nodes: int = 2, memory: str = "2 GiB") -> dict[str, Any]:
        line = ["size", pattern, "--ranks", str(ranks), "--nodes", str(nodes), "--memory", memory, "--json", *words]
        assert main(line) == 0
        content: dict[str, Any] = json.loads(capsys.readouterr().out)
        return content

    return run


@pytest.mark.parametrize("memory", [GIB // 64, 4 * GIB])
@pytest.mark.parametrize("name", ["unet3d", "resnet50", "cosmoflow", "retinanet", "deepcam", "bert", "webdataset"])
def test_the_plan_says_the_same_and_a_file_less_breaks_a_rule(name: str, memory: int, size: Size) -> None:
    job = Job(8, 2)
    content = size(name, memory=f"{memory} B")
    defined = [tuple(one.split("=", 1)) for one in content["define"]]
    for each in content["datasets"]:
        key = each["dataset"]
        counts = max(each["by_memory"], each["by_steps"])
        for less in (0, 1):
            samples, files = counts[0] * (counts[1] - less) // counts[1], counts[1] - less
            changed = {f"{key}.samples": str(samples), f"{key}.layout": f"{files} files"}
            values = [(key, changed.get(key, value)) for key, value in defined]
            workload, _ = compile_pattern(PATTERNS / f"{name}.dlio", values, job)
            plan, dataset = forecast(workload), workload.dataset(key)
            (stored,) = [one.bytes for one in plan.storage if one.name == key]
            loops = [loop for loop in loops_of(workload.verbs) if loop.dataset == key]
            steps = min(steps_of_epoch(loop, dataset, job.ranks) for loop in loops)
            if less:
                held = count_data(dataset, stored) >= 5 * 2 * memory
                assert (steps < 500) if each["bound_by"] == "steps" else not held
            else:
                assert (dataset.samples, dataset.layout.files) == tuple(counts)
                assert stored == each["bytes"] >= 5 * 2 * memory
                assert steps >= 500


@pytest.mark.parametrize(("ranks", "nodes", "memory"), [(8, 2, 256), (1, 1, 16), (411, 137, 64), (64, 4, 1)])
@pytest.mark.parametrize(
    ("name", "samples_per_file", "record", "batch"),
    [("unet3d", 1, 146_600_628, 7), ("resnet50", 1251, 114_660, 400), ("cosmoflow", 1, 2_828_486, 1)],
)
def test_mlperf_asks_for_as_many_files(
    name: str, samples_per_file: int, record: int, batch: int, ranks: int, nodes: int, memory: int, size: Size
) -> None:
    """`num_files_train` by `calculate_training_data_size` of mlpstorage v3 (mlpstorage_py/rules/utils.py)."""
    by_bytes = math.ceil(5 * nodes * memory * GIB / (samples_per_file * record))
    by_steps = math.ceil(500 * ranks * batch / samples_per_file)
    (found,) = size(name, "-D", "scale=1", ranks=ranks, nodes=nodes, memory=f"{memory}GiB")["datasets"]
    assert (found["by_memory"][1], found["by_steps"][1]) == (by_bytes, by_steps)
    assert found["bound_by"] == ("memory" if by_bytes > by_steps else "steps")


def test_the_line_to_type_is_a_plan_that_keeps_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "resnet50", "--ranks", "4", "--memory", "1 GiB", "-D", "format=npz"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert '-D imagenet.layout="80 files"' in line
    words = shlex.split(line)
    assert words[:3] == ["dliosim", "plan", "resnet50"]
    assert words[words.index("--memory") + 1] == "1 GiB"
    assert main(words[1:]) == 0


@pytest.mark.parametrize(
    ("change", "define"),
    [
        ("", ["d.samples=25600"]),
        ("layout   3 files", ["d.samples=25606", "d.layout=1829 files"]),
        ("layout   4 files in 2 folders", ["d.samples=25608", "d.layout=2328 files in 2 folders"]),
        ("layout   file per rank", ["d.samples=25600"]),
        ("layout   file per sample", ["d.samples=25600"]),
    ],
)
def test_files_stay_whole(change: str, define: list[str], tmp_path: Path, size: Size) -> None:
    path = tmp_path / "tiny.dlio"
    path.write_text(TINY.replace("layout   shared file", change) if change else TINY)
    assert size(str(path), memory="2.5 GiB")["define"] == define


def test_a_step_of_more_samples_than_there_are_is_sized(tmp_path: Path, size: Size) -> None:
    path = tmp_path / "tiny.dlio"
    path.write_text(TINY)
    assert size(str(path), ranks=64, memory="1 MiB")["define"] == ["d.samples=128000"]


def test_steps_that_limit_an_epoch_are_raised(tmp_path: Path, size: Size) -> None:
    path = tmp_path / "tiny.dlio"
    path.write_text(TINY.replace("batch  4 per rank", "batch  4 per rank\n    steps  20"))
    content = size(str(path), memory="1 MiB")
    assert content["define"] == ["d.samples=16000", "train.steps=500"]


def test_a_workload_file_of_dlio_is_sized(tmp_path: Path, size: Size, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "unet3d.yaml"
    path.write_text(
        "model: {name: unet3d}\nframework: pytorch\nworkflow: {train: True}\n"
        "dataset: {data_folder: d, format: npz, num_files_train: 168, num_samples_per_file: 2, record_length: 4096}\n"
        "reader: {data_loader: pytorch, batch_size: 7}\ntrain: {epochs: 1, computation_time: 0.1}\n"
    )
    assert main(["size", str(path), "--ranks", "8", "--memory", "1 MiB"]) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert words[3] == "++workload.dataset.num_files_train=14000" and "-D" not in words
    assert main(words[1:]) == 0
    capsys.readouterr()
    for ranks in 8, 512:  # a step of 512 ranks takes more samples than the file has
        content = size(str(path), "++workload.reader.batch_size=4", ranks=ranks, memory="1 MiB")
        (found,) = content["datasets"]
        assert (found["by_steps"], found["by_memory"]) == ([2000 * ranks, 1000 * ranks], [2560, 1280])
        assert content["define"][1].endswith(f".layout={1000 * ranks} files")


def test_checkpoints_smaller_than_memory_need_a_flush(size: Size) -> None:
    for memory, drop in (("32 GiB", False), ("40 GiB", True)):
        (found,) = size("llama3_8b", "-D", "scale=1", nodes=1, memory=memory)["checkpoints"]
        assert found["bytes"] == found["node_bytes"] == 112_423_657_472
        assert found["drop_caches"] is drop


def test_a_checkpoint_that_nothing_restores_needs_no_flush(size: Size) -> None:
    (found,) = size("unet3d")["checkpoints"]
    assert found["drop_caches"] is False


@pytest.mark.parametrize(
    ("pattern", "more", "said"),
    [
        (
            'dlio 1\nworkload w\ndataset d { from files "*.npy" }\ntrain {\n read d\n last batch keep\n}\n',
            [],
            "cannot be set",
        ),
        (TINY.split("train")[0], [], "no loop reads a data set, and nothing is saved"),
        (TINY, ["--memory", "2 XB"], "is not a size"),
        (TINY.replace("size     1 MiB", "size     1 B"), ["--memory", "2 PB"], "are not enough"),
    ],
)
def test_what_cannot_be_sized_is_said(
    pattern: str, more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.dlio"
    path.write_text(pattern)
    np.save(tmp_path / "a.npy", np.zeros((8, 4)))
    line = ["size", str(path), "--ranks", "4", "--memory", "2 GiB", "--dir", str(tmp_path), *more]
    try:
        status = main(line)
    except SystemExit as end:
        status = int(end.code or 0)
    assert status == 2
    assert said in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_values_that_the_pattern_refuses_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "openfold_prepare", "--ranks", "4", "--memory", "2 GiB"]) == 2
    assert "does not take -D packed.samples=" in capsys.readouterr().err


def test_a_data_set_that_no_size_keeps_is_left_out(size: Size) -> None:
    content = size("climate_segmentation", memory="512 GiB")
    assert content["datasets"] == content["define"] == []
    assert "`statistics`" in content["left_out"][0]
    assert content["checkpoints"]
