"""A job of ranks that wait for command lines of dliosim, and for programs of these tests.

A second of each rank's start is paid once for many runs.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.mpi.launch import ROOT, library_environment, own_cores, run_program, running, start_ranks

PROGRAM = ("-m", "mpi4py", "-m", "tests.mpi.waiting_program")

#: What each rank says on standard error behind all else that it says of a task.
END = "\x1e\n"

#: Tasks after which the ranks of `run_command` and `run_main` are started again.
_USES = 200

#: Variables that tests set for what they run.
_OF_A_TASK = ("PATH",)

#: The number of reads of the output, one each 10 ms, until all of it has come.
_HEARD = 500

#: Seconds for a launcher to end after its ranks, for ranks to say where they are, and for ranks to end when asked.
_DYING, _STACKS, _CLOSING = 10.0, 10.0, 60.0


@dataclass(frozen=True)
class Done:
    """The result of a command: its status, what it said on either stream, and what it has left in its processes."""

    status: int
    printed: str
    said: str
    threads: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """All that it has left."""
        return self.threads + self.files


class Ended(Exception):
    """The ranks have died, or did not answer in time; with all that they said, and the status of their launcher."""

    def __init__(self, text: str, status: int | None = None, said: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.said = said


@dataclass
class WaitingRanks:
    """Up to `most` ranks, started when they are first needed, and again after `uses` commands or when they died."""

    most: int
    uses: int = 60
    started: int = 0
    _job: _Waiting | None = None
    _used: int = 0
    _failed: int = 0

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        below: Path,
        seconds: float,
        directory: Path = ROOT,
        module: str = "",
    ) -> Done:
        """One command on the first of them, in a directory; below `below` nothing may stay open. Raises Ended.

        With a module its `main` is called with the ranks' communicator and the arguments instead.
        """
        if self._used >= self.uses:
            self.close()
        if self._job is None:
            self._job = _Waiting(self.most)
            self.started += 1
        self._used += 1
        task = {
            "ranks": ranks,
            "module": module,
            "arguments": [*arguments],
            "below": f"{below}",
            "directory": f"{directory}",
            "end": END,
            "environment": {name: os.environ[name] for name in _OF_A_TASK if name in os.environ},
        }
        answer = self._job.ask(task, seconds)
        if answer is None:
            job = self._forget()
            assert job is not None
            raise job.end()
        (status,) = answer["statuses"]
        self._failed += status != 0
        return Done(status, answer["printed"], self._job.said(ranks), *map(tuple, answer["left"]))

    def processes(self) -> list[int]:
        """All processes of the job, if it runs."""
        return self._job.processes() if self._job is not None else []

    def close(self) -> None:
        """End the ranks that wait; raises Ended where they do not end by themselves, and well.

        After a command that failed MPI may name open handles, since an error ends a process as a rule.
        """
        failed = self._failed
        job = self._forget()
        said = job.close() if job is not None else ""
        if said and not failed:
            raise Ended(f"the waiting ranks ended with status 0\n{said}")

    def _forget(self) -> _Waiting | None:
        """Let the next command start ranks again; the job until now."""
        job, self._job, self._used, self._failed = self._job, None, 0, 0
        return job


class _Waiting:
    """A job of `waiting_program`, by its pipes: one to each rank, as long as this process has it open."""

    def __init__(self, ranks: int) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._directory = tempfile.TemporaryDirectory()
        pipes = [Path(self._directory.name, f"{rank}") for rank in range(ranks)]
        for pipe in pipes:
            os.mkfifo(pipe)
        # For reading, too: then open does not wait for a reader, and ranks that died are no broken pipe.
        self._tell = [os.open(pipe, os.O_RDWR) for pipe in pipes]
        with own_cores():
            variables = library_environment(ranks)
        self._job = start_ranks(ranks, *PROGRAM, self._directory.name, env=variables, terminal=self._said.fileno())
        self._read = 0

    def processes(self) -> list[int]:
        """Its launcher, the launcher's helpers and its ranks."""
        return self._job.processes()

    def ask(self, task: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return its answer; None where it does not answer in that time."""
        out = self._job.launcher.stdout
        assert out is not None
        for tell in self._tell[: task["ranks"]]:
            os.write(tell, (json.dumps(task) + "\n").encode())
        answered, _, _ = select.select([out], [], [], seconds)
        line = out.readline() if answered else ""
        # Of ranks that were killed, mpiexec says so on the same stream.
        return json.loads(line) if line.startswith("{") and line.endswith("\n") else None

    def said(self, ranks: int = 0) -> str:
        """Return standard error since the last call, when this many ranks have said that it is all."""
        text = ""
        for _ in range(_HEARD):
            # The ranks write where this descriptor stands: it is theirs, too.
            size = os.fstat(self._said.fileno()).st_size
            text += os.pread(self._said.fileno(), size - self._read, self._read).decode(errors="replace")
            self._read = size
            if text.count(END) >= ranks:
                break
            sleep(0.01)
        return text.replace(END, "")

    def end(self) -> Ended:
        """End the job, however it stands: how it ended, or, where it did not, the calls in which its ranks were."""
        with suppress(subprocess.TimeoutExpired):
            self._job.launcher.wait(_DYING)
        alive = self._job.launcher.poll() is None
        ranks = self._job.ranks() if alive else []
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGUSR2)
        if alive:
            self._wait_for_stacks(len(ranks))
        status = None if alive else self._job.launcher.returncode
        with running(self._job):
            text = "did not answer in time" if alive else f"ended with status {status}"
            said = self.said()
            outlived = () if alive else self._job.outliving()
        if outlived:
            text, status = f"{text}, and processes {outlived} outlived their launcher", None
        self._close_pipes()
        return Ended(f"{text}\n{said}", status, said)

    def _wait_for_stacks(self, ranks: int) -> None:
        """Wait until these ranks have written their calls, and nothing more comes; for `_STACKS` at most."""
        until, before, size = monotonic() + _STACKS, -1, 0
        while monotonic() < until:
            before = size
            sleep(0.3)
            text = os.pread(self._said.fileno(), 1 << 20, 0)
            size = len(text)
            if size == before and text.count(b"most recent call first") >= max(ranks, 1):
                return

    def close(self) -> str:
        """Let it come to its end; what it said at that. Raises Ended where that is none."""
        for tell in self._tell:
            os.close(tell)
        self._tell = []
        with running(self._job):
            try:
                done = self._job.finish(_CLOSING)
            except pytest.fail.Exception as failure:
                raise Ended(f"{failure}\n{self.said()}") from failure
            said = self.said()
            if done.returncode:
                raise Ended(f"the waiting ranks ended with status {done.returncode}\n{said}")
        self._close_pipes()
        return said

    def _close_pipes(self) -> None:
        for tell in self._tell:
            os.close(tell)
        self._said.close()
        self._directory.cleanup()


_WAITING: dict[int, WaitingRanks] = {}

#: A program on more ranks than these is a job of its own: few need that many, and all that wait hold memory.
_MOST = 5


def run_command(
    ranks: int, arguments: Sequence[str], directory: Path, seconds: float = 60, module: str = ""
) -> subprocess.CompletedProcess[str]:
    """A command of dliosim on ranks that wait for such, in a directory below which it may leave nothing open.

    With a module its `main` is called instead, which returns the status. What ends the ranks themselves, as an error on
    one of them does, ends with the status of their launcher. Those that take longer are ended, and fail the test.
    """
    waiting = _WAITING.setdefault(ranks, WaitingRanks(ranks, uses=_USES))
    try:
        done = waiting.run(ranks, arguments, directory, seconds, directory, module)
    except Ended as ended:
        if not ended.status:  # mpiexec gives 0 now and then for ranks that were killed
            pytest.fail(f"dliosim {' '.join(arguments)} on {ranks} ranks: {ended}")
        return subprocess.CompletedProcess([*arguments], ended.status, "", ended.said)
    if done.left:
        assert done.status, done.left
        if done.threads:
            waiting.close()  # files may stay open: an error ends a process as a rule
    return subprocess.CompletedProcess([*arguments], done.status, done.printed, done.said)


def run_main(ranks: int, module: str, *arguments: str | Path, seconds: float = 60) -> str:
    """Call a module's `main` on ranks that wait, with their communicator and these arguments; what rank 0 prints.

    It must succeed, and leave nothing open below the first of the arguments that is a path.
    """
    words = [f"{argument}" for argument in arguments]
    if ranks > _MOST:
        return run_program(ranks, module, *words, seconds=seconds)
    below = next((argument for argument in arguments if isinstance(argument, Path)), Path("/proc/none"))
    waiting = _WAITING.setdefault(ranks, WaitingRanks(ranks, uses=_USES))
    try:
        done = waiting.run(ranks, words, below, seconds, module=module)
    except Ended as ended:
        pytest.fail(f"{module} on {ranks} ranks: {ended}")
    assert not done.left, f"{module} on {ranks} ranks: {done.left}"
    return done.printed


def close_all() -> None:
    """End all ranks that wait for `run_command`; raises Ended where some do not end well."""
    for waiting in _WAITING.values():
        waiting.close()
