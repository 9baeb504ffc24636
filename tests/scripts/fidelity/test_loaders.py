"""The loaders read what making.py has written, in order, and say how long that took and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from tests.scripts.fidelity import script
from tests.scripts.stubs import ROOT, SCRIPTS

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


def test_a_run_prints_its_epochs_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "fidelity" / "loaders.py"), "raw", str(made("raw", tmp_path))]
    options = ["--batch", "2", "--compute", "0.01", "--epochs", "2"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=True)
    epochs = json.loads(done.stdout)
    assert [epoch["steps"] for epoch in epochs] == [3, 3]
    assert all(epoch["seconds"] >= 0.03 and 0 < epoch["first"] < epoch["seconds"] for epoch in epochs)


@pytest.mark.parametrize("case", compare_loaders.CASES, ids=lambda case: case.name)
def test_a_pattern_beside_a_case_takes_all_that_the_script_sets(case: Any) -> None:
    path: Path = case.pattern
    if not path.exists():
        pytest.skip("dliosim has no pattern for it yet")
    wanted = [("samples", "8"), ("size", "1000 B"), ("batch", "2"), ("compute", "5 us"), ("epochs", "2")]
    workload, _ = compile_pattern(path, wanted, Job(1))
    assert workload is not None


def test_no_pattern_stands_there_without_a_case() -> None:
    names = {path.stem for path in (ROOT / "scripts" / "fidelity" / "patterns").glob("*.dlio")}
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
