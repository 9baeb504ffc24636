"""The loaders read what making.py has written, in order, and say how long that took and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dliosim.formats.contract_tests import random_contents, write_framed, write_resolved
from dliosim.formats.protocols import Framed, Resolved
from dliosim.formats.registry import bind
from dliosim.language.compile import compile_pattern
from dliosim.model import Dataset, FileSurvey, Job, Layout, Loop, constant
from tests.scripts.fidelity import script
from tests.scripts.stubs import DEV, ROOT

loaders = script("fidelity.loaders")
making = script("fidelity.making")
compare_loaders = script("compare_loaders")

NEEDS = {"tfrecord": "tensorflow", "hdf5": "h5py", "hdf5-chunked": "h5py"}


def made(kind: str, place: Path) -> Path:
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    making.KINDS[kind](place, 7, 300, 2)
    return place


@pytest.mark.parametrize(
    ("loader", "kind"),
    [("raw", "raw"), ("npz", "npz"), ("hdf5", "hdf5"), ("hdf5", "hdf5-chunked"), ("tfrecord", "tfrecord")],
)
def test_whole_batches_come_in_the_order_of_the_files(loader: str, kind: str, tmp_path: Path) -> None:
    epoch = loaders.LOADERS[loader](made(kind, tmp_path), 2, 0)
    found = np.concatenate([np.asarray(batch) for batch in epoch()])
    expected = [np.random.default_rng(number).integers(0, 256, 300, np.uint8) for number in range(6)]
    assert np.array_equal(found, np.stack(expected))


@pytest.mark.parametrize(("loader", "kind"), [("torch-raw", "raw"), ("torch-npz", "npz"), ("torch-hdf5", "hdf5")])
def test_workers_give_the_same(loader: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    epoch = loaders.LOADERS[loader](made(kind, tmp_path), 2, 2)
    found = np.concatenate([np.asarray(batch) for batch in epoch()])
    expected = [np.random.default_rng(number).integers(0, 256, 300, np.uint8) for number in range(6)]
    assert np.array_equal(found, np.stack(expected))


def test_files_next_to_the_data_are_no_samples(tmp_path: Path) -> None:
    for name in ("b.tfrecord", "a.tfrecord", "a.index", "manifest.json"):
        (tmp_path / name).write_bytes(b"x")
    assert [file.name for file in loaders.data_files(tmp_path)] == ["a.tfrecord", "b.tfrecord"]


@pytest.mark.parametrize(
    ("kind", "loader", "form", "needs"),
    [
        ("npz", "npz", "npz", "numpy"),
        ("hdf5", "hdf5", "hdf5", "h5py"),
        ("tfrecord", "tfrecord", "tfrecord", "tensorflow"),
    ],
)
def test_loaders_read_what_the_tool_writes(kind: str, loader: str, form: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    layout = Layout("file per sample", 4) if kind == "npz" else Layout("shared file", 1)
    dataset = Dataset("d", 7, 4, constant(300.0), layout, "d", format=form)
    written = bind(dataset)
    if isinstance(written, Resolved):
        write_resolved(written, tmp_path / "0", 4)
    else:
        assert isinstance(written, Framed)
        each = 1 if kind == "npz" else 4
        for first in range(0, 4, each):
            write_framed(written, tmp_path / f"{first}", np.full(each, 300), first)
    found = np.concatenate([np.asarray(batch) for batch in loaders.LOADERS[loader](tmp_path, 2, 0)()])
    assert np.array_equal(found, np.stack([random_contents(dataset, sample, 300) for sample in range(4)]))


def test_samples_in_memory_cost_a_loader_its_own_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = script("fidelity.costs")
    asked = []

    def ran(command: list[str], seconds: float) -> str:
        asked.append(command)
        step = 0.02 if "0.02" in command else 0.0
        epoch = {"seconds": 1.5 + 10 * step, "first": 0.25, "last": 1.25 + 10 * step, "steps": 11}
        return "[" + ", ".join([json.dumps({**epoch, "first": 9.0}), *[json.dumps(epoch)] * 3]) + "]"

    monkeypatch.setattr(costs, "run", ran)
    found = costs.dataloader("python", 4, 1000)
    assert found.batch == pytest.approx(0.1)
    assert found.step == pytest.approx(1.2 / 11 - 0.02)
    assert (found.start, found.end) == (pytest.approx(0.15), pytest.approx(0.25))
    assert [command[command.index("--workers") + 1] for command in asked] == ["1", "2"]


def test_measured_costs_become_parameters_of_the_pattern() -> None:
    costs = script("fidelity.costs").Costs(start=0.015, end=0.005, batch=0.0008, step=0.0005)
    (plain,) = (case for case in compare_loaders.CASES if case.name == "torch-raw")
    (lasting,) = (case for case in compare_loaders.CASES if case.name == "torch-raw-persistent")
    given = dict(compare_loaders.parameters(plain, 4, costs))
    assert given == {"collate": "200 us", "hand_over": "500 us", "workers": "20000 us"}
    assert dict(compare_loaders.parameters(lasting, 4, costs))["workers"] == "0 us"
    workload, _ = compile_pattern(plain.pattern, list(given.items()), Job(1))
    (loop,) = (verb for verb in workload.verbs if isinstance(verb, Loop))
    assert loop.preprocess is not None
    assert loop.preprocess.time == constant(0.0002)
    assert loop.compute.time == constant(0.0005 + 0.02 * 4 / 64)


def test_a_run_prints_its_epochs_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, str(DEV / "fidelity" / "loaders.py"), "raw", str(made("raw", tmp_path))]
    options = ["--batch", "2", "--compute", "0.01", "--epochs", "2"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=True)
    epochs = json.loads(done.stdout)
    assert [epoch["steps"] for epoch in epochs] == [3, 3]
    assert all(epoch["seconds"] >= 0.03 and 0 < epoch["first"] < epoch["seconds"] for epoch in epochs)


@pytest.mark.parametrize("case", compare_loaders.CASES, ids=lambda case: case.name)
def test_a_pattern_of_a_case_takes_all_that_the_script_sets(case: Any) -> None:
    path: Path = case.pattern
    if not path.exists():
        pytest.skip("dliosim has no pattern for it yet")
    wanted = [("samples", "8"), ("size", "1000 B"), ("batch", "2"), ("compute", "5 us"), ("epochs", "2")]
    found = FileSurvey(8, 2, "0" * 16, constant(1000.0))
    workload, _ = compile_pattern(path, wanted, Job(1), lambda dataset: found)
    (loop,) = (verb for verb in workload.verbs if isinstance(verb, Loop))
    assert (workload.dataset(loop.dataset).samples, loop.epochs) == (8, 2)
    assert (workload.dataset(loop.dataset).source != "") == case.found


def test_no_pattern_stands_there_without_a_case() -> None:
    names = {path.stem for path in (ROOT / "scripts" / "dev" / "fidelity" / "patterns").glob("*.dlio")}
    assert names <= {case.name for case in compare_loaders.CASES}


@pytest.mark.parametrize("profile", ["torch_dataloader", "tf_data"])
def test_a_profile_of_a_loader_can_be_used(profile: str, tmp_path: Path) -> None:
    (tmp_path / "profile.dlio").write_text((ROOT / "patterns" / "profiles" / f"{profile}.dlio").read_text())
    path = tmp_path / "uses.dlio"
    path.write_text(
        'dlio 1\nworkload uses\ninclude "profile.dlio"\ndataset d {\n    samples 8\n    size 1 kB\n    path "d"\n}\n'
        f"train {{\n    read d with {profile}\n}}\n"
    )
    workload, _ = compile_pattern(path, [], Job(2))
    assert workload is not None
