"""A job of ranks that wait for command lines of dliosim: a second of each rank's start is paid once for many runs."""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.mpi.launch import running, start_ranks

PROGRAM = ("-m", "mpi4py", "-m", "tests.mpi.waiting_program")

#: Seconds for ranks to say where they are, and to end when they are told so.
_STACKS, _CLOSING = 1.0, 60.0


@dataclass(frozen=True)
class Done:
    """What a command did: its status, what it said on both streams, and what it has left in its processes."""

    status: int
    said: str
    left: tuple[str, ...] = ()


class Ended(Exception):
    """The ranks have died, or did not answer in time; with all that they said."""


@dataclass
class WaitingRanks:
    """Up to `most` ranks, started when they are first needed, and anew after `uses` commands or when they died."""

    most: int
    uses: int = 60
    started: int = 0
    _job: _Waiting | None = None
    _used: int = 0

    def run(self, ranks: int, arguments: Sequence[str], below: Path, seconds: float) -> Done:
        """One command on the first of them; `below` is a directory of which nothing may stay open. Raises Ended."""
        if self._used >= self.uses:
            self.close()
        if self._job is None:
            self._job = _Waiting(self.most)
            self.started += 1
        self._used += 1
        answer = self._job.ask({"ranks": ranks, "arguments": [*arguments], "below": f"{below}"}, seconds)
        if answer is None:
            said = self._job.end()
            self._job, self._used = None, 0
            raise Ended(said)
        (status,) = answer["statuses"]
        return Done(status, answer["printed"] + self._job.said(), tuple(answer["left"]))

    def close(self) -> None:
        """End the ranks that wait; raises Ended where they do not end by themselves, and well."""
        job, self._job, self._used = self._job, None, 0
        if job is not None:
            job.close()


class _Waiting:
    """A job of `waiting_program`, by its pipes."""

    def __init__(self, ranks: int) -> None:
        read, self._tell = os.pipe()
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._job = start_ranks(ranks, *PROGRAM, terminal=self._said.fileno(), told=read)
        self._read = 0
        os.close(read)

    def ask(self, task: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """What it answers; None where it does not, in so much time."""
        out = self._job.launcher.stdout
        assert out is not None
        try:
            os.write(self._tell, (json.dumps(task) + "\n").encode())
        except BrokenPipeError:
            return None
        answered, _, _ = select.select([out], [], [], seconds)
        line = out.readline() if answered else ""
        return json.loads(line) if line.endswith("\n") else None

    def said(self) -> str:
        """What was said on standard error since this was last asked."""
        # The ranks write where this descriptor stands: it is theirs, too.
        size = os.fstat(self._said.fileno()).st_size
        text = os.pread(self._said.fileno(), size - self._read, self._read).decode(errors="replace")
        self._read = size
        return text

    def end(self) -> str:
        """End the job, however it stands; what it said, with the calls in which its ranks were."""
        alive = self._job.launcher.poll() is None
        for rank in self._job.ranks() if alive else ():
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGUSR2)
        sleep(_STACKS)
        with running(self._job):
            text = "did not answer in time" if alive else f"ended with status {self._job.launcher.returncode}"
            text = f"{text}\n{self.said()}"
        os.close(self._tell)
        self._said.close()
        return text

    def close(self) -> None:
        """Let it come to its end; raises Ended where that is none."""
        os.close(self._tell)
        with running(self._job):
            try:
                done = self._job.finish(_CLOSING)
            except pytest.fail.Exception as failure:
                raise Ended(f"{failure}\n{self.said()}") from failure
            if done.returncode or self.said():
                raise Ended(f"the waiting ranks ended with status {done.returncode}\n{self.said()}")
        self._said.close()
