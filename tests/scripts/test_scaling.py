"""A scaling study runs each number of ranks once, goes on where it ended, and leaves nobody behind."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.mpi.launch import Job, mpiexec, running
from tests.scripts.stubs import RUNS, SCRIPTS, calls, environment, run, stub

PATTERN = """\
dlio 1
workload small
dataset d {
    samples 8
    size    1 kB
    path    "d"
}
prepare d
train {
    read    d
    epochs  2
}
"""

SLOW = """\
dlio 1
workload slow
barrier
pause 5 min
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "small.dlio").write_text(PATTERN)
    (tmp_path / "slow.dlio").write_text(SLOW)
    return tmp_path


def ranks_asked(launcher: Path) -> list[str]:
    said = calls(launcher)
    return [said[place + 1] for place, word in enumerate(said) if word == "-n"]


def test_powers_of_two_up_to_all_of_the_allocation(here: Path) -> None:
    launcher = stub(here, "launcher")
    done = run("scaling.sh", "small.dlio", cwd=here, env={"LAUNCHER": str(launcher), "RANKS": "6"})
    assert ranks_asked(launcher) == ["1", "2", "4", "6"]
    assert done.returncode == 1
    assert "no results for ranks 1 2 4 6" in done.stderr


def test_a_run_with_results_is_not_done_again(here: Path) -> None:
    launcher = stub(here, "launcher", RUNS)  # each time a job of one rank
    env = {"LAUNCHER": str(launcher)}
    first = run("scaling.sh", "--ranks", "1", "--output", "out", "small.dlio", "--verify", cwd=here, env=env)
    assert first.returncode == 0, first.stderr
    assert (here / "out" / "ranks-000001" / "results.json").exists()
    assert "train: 2 epochs" in (here / "out" / "ranks-000001.txt").read_text()
    again = run("scaling.sh", "--ranks", "1 2", "--output", "out", "small.dlio", "--verify", cwd=here, env=env)
    assert again.returncode == 0, again.stderr
    assert ranks_asked(launcher) == ["1", "2"]
    assert calls(launcher).count("--verify") == 2
    assert "ranks 1: done before" in again.stdout
    assert again.stdout.index("\nconditions\n") < again.stdout.index("efficiency %")


def test_ctrl_c_leaves_no_rank_behind(here: Path) -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        ["bash", str(SCRIPTS / "scaling.sh"), "--ranks", "2", "slow.dlio"],
        cwd=here,
        env=environment({"PYTHON": sys.executable, "DLIOSIM_TEST_JOB": mark, "PATH": path_of_mpiexec()}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with running(Job(process, mark)) as job:
        job.wait_until(lambda: len(job.processes("-m dliosim.cli run")) >= 3)  # the launcher and its ranks
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does: the script, and not the group of its job
        done = job.finish()
    assert done.returncode == 130
    assert "start the same line once more" in done.stderr


def path_of_mpiexec() -> str:
    return f"{Path(mpiexec()).parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    "arguments", [(), ("--ranks", "two", "small.dlio"), ("--ranks",), ("--rank", "2", "small.dlio")]
)
def test_wrong_usage_starts_nothing(here: Path, arguments: tuple[str, ...]) -> None:
    launcher = stub(here, "launcher")
    assert run("scaling.sh", *arguments, cwd=here, env={"LAUNCHER": str(launcher)}).returncode == 2
    assert calls(launcher) == []


@pytest.fixture
def scaling_table() -> ModuleType:
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module("scaling_table")
    finally:
        sys.path.remove(str(SCRIPTS))


def run_of(ranks: int, seconds: float) -> dict[str, Any]:
    epochs = [{"bytes": 1000, "loop_seconds": 9 * seconds}, *[{"bytes": 1000, "loop_seconds": seconds}] * 2]
    train = {"kind": "train", "name": "train", "epochs": epochs, "files": None, "seconds": 30.0}
    save = {"kind": "save", "name": "model", "epochs": None, "files": {"bytes": 500}, "seconds": 1.0}
    barrier = {"kind": "barrier", "name": "", "epochs": None, "files": None, "seconds": 1.0}
    return {"ranks": ranks, "phases": [train, save, barrier]}


def test_efficiency_is_the_rate_a_rank_by_that_of_the_fewest_ranks(scaling_table: ModuleType) -> None:
    rows = scaling_table.table([run_of(8, 0.5), run_of(2, 1.0)])
    assert rows == [
        ["train train", 2, 1e-6, 100.0],
        ["train train", 8, 2e-6, 50.0],
        ["save model", 2, 5e-7, 100.0],
        ["save model", 8, 5e-7, 25.0],
    ]
