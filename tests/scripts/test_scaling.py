"""A scaling study runs each number of ranks once, continues where it ended, and leaves no process."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dliosim.measure.results.machine import Environment, FileSystem
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RunSummary, SavePhase
from tests.mpi.launch import Job, mpiexec, running
from tests.report.sample import change, epoch, spread, verb
from tests.report.sample import run as sample
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
    assert "\ntrain 2 " in (here / "out" / "ranks-000001.txt").read_text()
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


@pytest.fixture
def study(here: Path) -> dict[str, str]:
    """The environment of a study whose first run is in the directory `out`."""
    env = {"LAUNCHER": str(stub(here, "launcher", RUNS))}
    done = run("scaling.sh", "--ranks", "1", "--output", "out", "small.dlio", "--dir", "data", cwd=here, env=env)
    assert done.returncode == 0, done.stderr
    return env


def test_other_options_are_another_study(here: Path, study: dict[str, str]) -> None:
    for options in (("--dir", "data", "-D", "seed=2"), (), ("--dir", "other"), ("--dir data",)):
        done = run("scaling.sh", "--ranks", "1 2", "--output", "out", "small.dlio", *options, cwd=here, env=study)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--output out holds another study" in done.stderr
        assert "there options: --dir data\n" in done.stderr
        assert ranks_asked(here / "launcher") == ["1"]


def test_another_text_or_place_of_the_pattern_is_another_study(here: Path, study: dict[str, str]) -> None:
    (here / "other.dlio").write_text(PATTERN)
    again = ("--output", "out", "--ranks", "1")
    moved = run("scaling.sh", *again, "other.dlio", "--dir", "data", cwd=here, env=study)
    assert moved.returncode == 2 and "other.dlio" in moved.stderr
    (here / "small.dlio").write_text(PATTERN.replace("epochs  2", "epochs  3"))
    changed = run("scaling.sh", *again, "small.dlio", "--dir", "data", cwd=here, env=study)
    assert changed.returncode == 2 and "now   sha256: " in changed.stderr


def test_runs_of_an_unknown_study_are_not_gone_on_with(here: Path, study: dict[str, str]) -> None:
    (here / "out" / "study.txt").unlink()
    done = run("scaling.sh", "--ranks", "1", "--output", "out", "small.dlio", "--dir", "data", cwd=here, env=study)
    assert done.returncode == 2 and "no study.txt" in done.stderr


@pytest.mark.parametrize("file", ["results.json", "compare.json"])
def test_a_directory_of_other_results_is_refused(here: Path, file: str) -> None:
    launcher = stub(here, "launcher")
    (here / "out").mkdir()
    (here / "out" / file).write_text("{}")
    env = {"LAUNCHER": str(launcher)}
    done = run("scaling.sh", "--ranks", "1", "--output", "out", "small.dlio", cwd=here, env=env)
    assert done.returncode == 2 and f"--output out holds a {file}" in done.stderr
    assert calls(launcher) == []
    assert [path.name for path in (here / "out").iterdir()] == [file]


def test_a_mistake_in_the_pattern_is_reported_once_and_may_be_mended(here: Path) -> None:
    launcher = stub(here, "launcher", RUNS)
    env = {"LAUNCHER": str(launcher)}
    (here / "small.dlio").write_text(PATTERN.replace("epochs", "epoch"))
    done = run("scaling.sh", "--ranks", "1 2 4", "--output", "out", "small.dlio", cwd=here, env=env)
    assert done.returncode == 2
    assert ranks_asked(launcher) == ["1"]
    assert "no results for ranks 1\nno more numbers of ranks were tried" in done.stderr
    (here / "small.dlio").write_text(PATTERN)
    mended = run("scaling.sh", "--ranks", "1", "--output", "out", "small.dlio", cwd=here, env=env)
    assert mended.returncode == 0, mended.stderr


def path_of_mpiexec() -> str:
    return f"{Path(mpiexec()).parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no pattern\n"),
        (("--ranks", "two", "small.dlio"), "--ranks: two is not a number of ranks\n"),
        (("--ranks",), "--ranks: no numbers behind it\n"),
        (("--output", "", "small.dlio"), "--output: no directory behind it\n"),
        (("--rank", "2", "small.dlio"), "--rank: no option of scaling.sh"),
        (("smal.dlio",), "smal.dlio: no pattern file"),
    ],
)
def test_wrong_usage_is_named_first_and_starts_nothing(here: Path, arguments: tuple[str, ...], said: str) -> None:
    launcher = stub(here, "launcher")
    done = run("scaling.sh", *arguments, cwd=here, env={"LAUNCHER": str(launcher)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said) and len(done.stderr.splitlines()) == 2
    assert calls(launcher) == []


@pytest.fixture
def scaling_table() -> ModuleType:
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module("scaling_table")
    finally:
        sys.path.remove(str(SCRIPTS))


def run_of(ranks: int, seconds: float, cores: int = 8, **changed: Any) -> RunSummary:
    """A run of one loop, whose first epoch alone counts, and of a checkpoint."""
    known = {"bytes": 1_000_000_000, "bytes_moved": 1_000_000_000, "storage_amplification": 1.0} | changed
    first = epoch(0, loop_seconds=seconds, **known)
    warm = change(first, epoch=1, loop_seconds=seconds / 9, storage_amplification=0.0)
    train = LoopPhase("train", "train", 30.0, epochs=(first, warm, warm), resident_share=0.0)
    save = SavePhase("model", "save", 1.0, verb=verb(1.0, bytes=500_000_000))
    where = FileSystem("data", "/scratch", "ext4")
    environment = Environment("MPICH", cores, ranks, 2**30, 0.0, file_systems=(where,))
    return sample(ranks=ranks, phases=(train, save, PhaseSummary("", "barrier", 1.0)), environment=environment)


def test_efficiency_of_loops_is_the_rate_a_rank_by_that_of_the_fewest_ranks(scaling_table: ModuleType) -> None:
    runs = [run_of(8, 0.5), run_of(2, 1.0)]
    assert scaling_table.table(runs) == [
        ("train train", 2, "1.000", "100.0"),
        ("train train", 8, "2.000", "50.0"),
        ("save model", 2, "0.500", "-"),
        ("save model", 8, "0.500", "-"),
    ]
    assert list(scaling_table.remarks(runs)) == []


@pytest.mark.parametrize(
    ("doubtful", "why"),
    [
        (
            run_of(8, 0.5, cores=4, core_wait_seconds=None),
            "there are more ranks than cores, and the kernel does not count waits for a core",
        ),
        (run_of(8, 0.5, core_wait_seconds=spread(0.05)), "ranks waited 10 % of the loop for a core"),
        (replace(run_of(8, 0.5), verify=True), "steps also checked what they read (--verify)"),
        (run_of(8, 0.5, oversleep_share=0.02), "compute took up to 2.00 % longer than asked"),
    ],
)
def test_doubtful_efficiencies_are_marked(scaling_table: ModuleType, doubtful: RunSummary, why: str) -> None:
    fewer, more = run_of(4, 1.0), run_of(16, 0.25, cores=16)
    efficiencies = [row[3] for row in scaling_table.table([fewer, doubtful, more])]
    assert efficiencies == ["100.0", "100.0?", "100.0", "-", "-", "-"]
    assert list(scaling_table.remarks([fewer, doubtful, more])) == [f"? on 8 ranks: {why}"]
    # What the others are measured by makes them doubtful, too.
    assert [row[3] for row in scaling_table.table([doubtful, more])] == ["100.0?", "100.0?", "-", "-"]


def test_without_io_there_is_neither_rate_nor_efficiency(scaling_table: ModuleType) -> None:
    null = replace(run_of(2, 1.0, null=True), null=True)
    assert scaling_table.table([null])[0] == ("train train", 2, "-", "-")
    assert list(scaling_table.remarks([null])) == ["? on 2 ranks: nothing was read (--null)"]


def test_a_study_in_memory_says_so_once(scaling_table: ModuleType) -> None:
    (place,) = sample().environment.file_systems
    in_memory = replace(sample().environment, file_systems=(replace(place, kind="tmpfs"),))
    runs = [sample(ranks=ranks, environment=in_memory) for ranks in (1, 2)]
    said = list(scaling_table.remarks(runs))
    assert said == ["root data is in memory (tmpfs): rates and efficiency say nothing about storage"]


def test_the_table_is_of_results_that_runs_have_written(here: Path, study: dict[str, str]) -> None:
    again = run("scaling.sh", "--ranks", "1", "--output", "out", "small.dlio", "--dir", "data", cwd=here, env=study)
    cells = [line.split() for line in again.stdout[again.stdout.index("efficiency %") :].splitlines()]
    assert ["train", "train", "1"] in [row[:3] for row in cells]
    (row,) = (row for row in cells if row[:2] == ["prepare", "d"])
    assert row[4] == "-"


@pytest.mark.parametrize("option", ["--repeat", "--repeat=3"])
def test_a_study_of_several_runs_each_is_refused(here: Path, option: str) -> None:
    done = run("scaling.sh", "--ranks", "1", "small.dlio", option, "3", cwd=here, env={})
    assert done.returncode == 2 and "--repeat: " in done.stderr
    assert not (here / "dliosim-scaling").exists()
