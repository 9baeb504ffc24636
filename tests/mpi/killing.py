"""Jobs that save again and again and are killed at random points, and what must be true of what they leave."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from time import monotonic, sleep
from typing import Literal

from dliosim.execute.store import checkpoint_store
from dliosim.execute.store.locking import NAME as LOCK
from dliosim.execute.store.manifest import load_manifest
from tests.execute.alone import checkpoint_faults
from tests.mpi.launch import ROOT, Job, running, start_ranks
from tests.mpi.waiting import run_command

PROGRAM = "tests.mpi.kill_program"

HEAD = 'dlio 1\nworkload killed "saves again and again"\n'

#: 302 kB from two ranks, 16 calls.
CHECKPOINT = """
checkpoint c {
    part      weights 300 kB total
    part      state 1001 B per rank
    transfer  20 kB
    path      "c"
    keep      2
"""

KEPT = 2

#: Ways of saving, as lines of the checkpoint, and ranks.
SETTINGS = (
    ("", 2),
    ("folder per rank\n    metadata on\n    commit metadata", 2),
    ("writers all ranks into shared file\n    api mpi-independent", 3),
    ("async on\n    in flight 2\n    drain to drained", 2),
    ("async on\n    staging simulated\n    commit none", 2),
)

#: Calls of each kind among which one is drawn: those of about three saves on rank 0, and on another rank.
CALLS = {
    "stage": (20, 20),
    "write": (20, 20),
    "sync": (14, 3),
    "rename": (9, 0),
    "make": (6, 0),
    "delete": (10, 0),
    "time": (1, 1),
}

#: A job that takes longer has hung; seconds.
LONGEST = 60.0

#: The longest time for which a job saves before it is killed from outside; seconds.
_SAVING = 0.06

How = Literal["one", "all", "full", "ended"]


@dataclass(frozen=True)
class Kill:
    """The point of a kill: before a call of a kind on one rank, or (`time`) from outside after `seconds` of saving.

    `how` is whether that rank is killed alone or all are at once; with `full` no disk has room from that call on, and
    with `ended` (`time` alone) the launcher and all ranks get SIGTERM, as from a batch system.
    """

    kind: str
    rank: int = 0
    call: int = 0
    how: How = "one"
    seconds: float = 0.0

    @property
    def point(self) -> str:
        """Return it as an argument of tests/mpi/kill_program.py."""
        kind = "never" if self.kind == "time" else self.kind
        return f"{kind}:{self.rank}:{self.call}:{self.how}"


NEVER = Kill("never")


def draws(seed: int, ranks: int) -> Iterator[Kill]:
    """Kills of all kinds without end, the same for the same seed."""
    source = random.Random(seed)
    while True:
        kind = source.choice(list(CALLS))
        rank = source.randrange(ranks) if CALLS[kind][1] else 0
        call = source.randrange(CALLS[kind][rank > 0])
        ways: tuple[How, ...] = ("one", "all", "ended") if kind == "time" else ("one", "all")
        yield Kill(kind, rank, call, source.choice(ways), source.uniform(0, _SAVING))


@dataclass
class Place:
    """A directory in which jobs save, one after the other; `settings` are lines of the checkpoint.

    `newest` is the number of the newest complete checkpoint after the last one of them, 0 where there is none.
    """

    directory: Path
    settings: str = ""
    ranks: int = 2
    newest: int = 0

    def bases(self) -> list[Path]:
        """The directories of checkpoints: saved ones, then drained ones."""
        return [base for root in ("data", "drained") for base in sorted((self.directory / root).glob("c/*"))]

    def run(self, kill: Kill = NEVER, saves: int = 4) -> CompletedProcess[str]:
        """Restore what there is, save so often, and be killed meanwhile.

        It must restore the newest complete one, and whatever it leaves must be complete or must not count; what was
        complete before must still be there, or a newer one.
        """
        record = self.directory / "restored"
        record.unlink(missing_ok=True)
        self._results.unlink(missing_ok=True)
        locks_before = self._locks()
        command = [f"{record}", *self._command(saves)]
        if kill == NEVER:
            done = run_command(self.ranks, command, self.directory, LONGEST, PROGRAM)
        else:
            with running(self._start(kill, command)) as job:
                if kill.kind == "time":
                    self._kill_from_outside(job, kill, locks_before)
                done = job.finish(LONGEST)
        if kill.how != "full":
            assert "error" not in done.stderr, f"{kill}: {done.stderr}\n{done.stdout}"
        if self.newest and (kill.kind != "time" or self.has_ended()):
            assert record.read_text().split()[-1] == f"{self.newest}", f"{kill}: {self.newest} is the newest"
        self._examine(kill)
        return done

    def has_ended(self) -> bool:
        """Return True if the last job came to its end; the status of mpiexec does not always show it."""
        return self._results.exists()

    def expect_no_litter(self) -> None:
        """Check that a job that was not killed leaves only complete checkpoints, as many as are kept."""
        assert self.has_ended()
        for base in self.bases():
            names = sorted(entry.name for entry in base.iterdir())
            assert names == sorted(f"{number:06d}" for number in checkpoint_store.checkpoint_numbers(base)), (
                f"{base}: {names}"
            )
            assert 1 <= len(names) <= KEPT, f"{base}: {names}"

    @property
    def _results(self) -> Path:
        return self.directory / "out" / "results.json"

    def _command(self, saves: int) -> list[str]:
        """Write the pattern; the command line that runs it."""
        pattern = self.directory / "killed.dlio"
        restore = "restore c\n" if self.newest else ""
        pattern.write_text(f"{HEAD}{CHECKPOINT}    {self.settings}\n}}\n{restore}repeat {saves} {{\n    save c\n}}\n")
        drained = ["--root", f"drained={self.directory / 'drained'}"] if "drained" in self.settings else []
        places = ["--dir", str(self.directory / "data"), "--output", str(self.directory / "out"), *drained]
        return ["run", str(pattern), "--verify", *places]

    def _start(self, kill: Kill, command: list[str]) -> Job:
        program = ("-m", PROGRAM, kill.point, *command)
        return start_ranks(self.ranks, *program, env={"PYTHONPATH": str(ROOT)}, cwd=self.directory)

    def _examine(self, after: Kill) -> None:
        """Check every checkpoint that counts, byte by byte."""
        newest = 0
        for base in self.bases():
            for number in checkpoint_store.checkpoint_numbers(base):
                directory = base / f"{number:06d}"
                try:
                    counts = load_manifest(directory).find_size_fault(directory) is None
                except ValueError:
                    continue
                if counts:
                    assert checkpoint_faults(directory) == [], f"{after}: {directory}"
                    newest = max(newest, number)
        assert newest >= self.newest, f"{after}: {self.newest} was complete, and now the newest is {newest}"
        self.newest = newest

    def _locks(self) -> set[int]:
        """Times when the existing locks were taken; ns."""
        return {path.stat().st_mtime_ns for base in self.bases() for path in base.glob(LOCK)}

    def _kill_from_outside(self, job: Job, kill: Kill, locks_before: set[int]) -> None:
        """Wait until the job saves, and some more, and kill one of its ranks or all of it, launchers included."""
        end = monotonic() + LONGEST
        while job.launcher.poll() is None and monotonic() < end and self._locks() <= locks_before:
            sleep(0.005)
        sleep(kill.seconds)
        if kill.how == "all":
            job.kill()
            return
        if kill.how == "ended":
            with suppress(ProcessLookupError):
                os.killpg(job.launcher.pid, signal.SIGTERM)
            return
        for process in job.ranks()[kill.rank : kill.rank + 1]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
