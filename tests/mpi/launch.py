"""Starting ranks from a test: in a process group of their own, with a time limit, and none of them left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest

from dliosim.commands.job.launcher import library_settings
from scripts.dev.harness import is_of_launcher

ROOT = Path(__file__).parents[2]
_MARK = "DLIOSIM_TEST_JOB"


def mpiexec() -> str:
    """The launcher of this environment; the test is skipped where there is none."""
    neighbour = Path(sys.executable).with_name("mpiexec")
    found = str(neighbour) if neighbour.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec")
    return found


@dataclass(frozen=True)
class Job:
    """A job that runs: its launcher, and the mark that all its processes have in their environment."""

    launcher: subprocess.Popen[str]
    mark: str

    def processes(self, part_of_command: str = "") -> list[int]:
        """The job's processes that live, launchers among them, by something that their command lines contain."""
        found = []
        for entry in Path("/proc").iterdir():
            marked = entry.name.isdecimal() and f"{_MARK}={self.mark}" in _text(entry / "environ").split("\0")
            if marked and part_of_command in _text(entry / "cmdline").replace("\0", " "):
                found.append(int(entry.name))
        return found

    def ranks(self) -> list[int]:
        """The processes of the ranks, in the order in which they were started."""
        launchers = ("mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "hydra_bstrap_proxy", "prterun")
        return sorted(
            process
            for process in self.processes()
            if Path(_text(Path(f"/proc/{process}/cmdline")).split("\0")[0]).name not in launchers
        )

    def wait_until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        """Wait for something that the job brings about."""
        end = monotonic() + seconds
        while not condition():
            if self.launcher.poll() is not None:
                out, errors = self.launcher.communicate()
                pytest.fail(f"the job ended before: {out}\n{errors}")
            if monotonic() > end:
                pytest.fail("the job never came so far")
            sleep(0.01)

    def finish(self, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Wait for the end, for at most so long; fails the test if any process of the job outlives its launcher."""
        try:
            out, errors = self.launcher.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            out, errors = self.launcher.communicate()
            pytest.fail(f"the job took more than {seconds} s\n{out}\n{errors}")
        self.expect_no_process_left()
        return subprocess.CompletedProcess(self.launcher.args, self.launcher.returncode, out, errors)

    def expect_no_process_left(self, seconds: float = 5) -> None:
        """Fail the test if processes of the job live on."""
        if left := self.outliving(seconds):
            pytest.fail(f"these processes outlived their launcher: {left}")

    def outliving(self, seconds: float = 5) -> list[int]:
        """The processes of the job that live on so long after its launcher; they are killed."""
        end = monotonic() + seconds
        while left := self.processes():
            if monotonic() > end:
                self.kill()
                break
            sleep(0.02)
        return left

    def kill(self) -> None:
        """End whatever is left of the job."""
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


@contextmanager
def own_cores(spread: bool = False) -> Iterator[None]:
    """Let what starts in the block run on the cores of this worker of pytest-xdist alone, where there are several.

    Ranks that share a core sleep while they wait for each other; otherwise they would take the other workers' time.
    With `spread` it runs on all cores, as it does without workers.
    """
    everywhere = os.sched_getaffinity(0)
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{name}", "") for name in ("", "_COUNT"))
    cores = sorted(everywhere)
    if worker.startswith("gw") and workers.isdecimal() and not spread:
        cores = cores[int(worker[2:]) % len(cores) :: int(workers)]
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


def start_ranks(
    ranks: int,
    *command: str,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    terminal: int | None = None,
    stdin: int | None = None,
    spread: bool = False,
) -> Job:
    """Start `python COMMAND` on that many ranks, with 0 on one and without a launcher.

    `terminal` is a descriptor for what they say on standard error, `stdin` one that rank 0 reads as its standard input.
    For `spread` see `own_cores`.
    """
    launcher = [mpiexec(), "-n", str(ranks)] if ranks else []
    inherited = {name: value for name, value in os.environ.items() if not is_of_launcher(name)}
    path = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
    mark = uuid.uuid4().hex
    with own_cores(spread):
        process = subprocess.Popen(
            [*launcher, sys.executable, *command],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if terminal is None else terminal,
            text=True,
            env={**inherited, "PYTHONPATH": path, _MARK: mark, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
    return Job(process, mark)


@contextmanager
def running(job: Job) -> Iterator[Job]:
    """The job; none of its processes is left after the block."""
    try:
        yield job
    finally:
        job.kill()
        job.launcher.communicate()


def run_ranks(
    ranks: int,
    *command: str,
    seconds: float = 60,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    spread: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `python COMMAND` on that many ranks; a job that takes longer is killed and fails the test."""
    return start_ranks(ranks, *command, env=env, cwd=cwd, spread=spread).finish(seconds)


def library_environment(ranks: int) -> dict[str, str]:
    """The environment that dliosim sets for MPI and numpy; for programs that import them themselves."""
    started = {**os.environ, "MPI_LOCALNRANKS": f"{ranks}", "PMI_SIZE": f"{ranks}"}
    return library_settings(started, len(os.sched_getaffinity(0)))


def run_program(ranks: int, module: str, *arguments: str, seconds: float = 60, spread: bool = False) -> str:
    """Run a module on that many ranks and return its output; all ranks end if one raises. It must succeed."""
    command = ("-m", "mpi4py", "-m", module, *arguments)
    with own_cores(spread):
        variables = library_environment(ranks)
    done = run_ranks(ranks, *command, seconds=seconds, env=variables, spread=spread)
    assert done.returncode == 0, f"{module} on {ranks} ranks: {done.stdout}\n{done.stderr}"
    return done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
