"""The command `dliosim verify`: rank 0 finds what is there, all ranks compare it, rank 0 prints what is wrong."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

from mpi4py import MPI

from dliosim.commands.job.setup import RankCommand, Setup, run_on_ranks
from dliosim.commands.job.terminal import print_text
from dliosim.errors import UsageError
from dliosim.execute.mpi.world import World
from dliosim.execute.run.verify import FaultKind, Tally, Target, verify_target
from dliosim.readable import count, printable, seconds, size

#: Wrong files of one data set or checkpoint that are named.
_SHOWN = 10


def verify_command(comm: MPI.Intracomm, arguments: Sequence[str], parsed: SimpleNamespace | None) -> int:
    """Compare all data below a directory with what was written; return 1 if any of them are wrong, else 0."""
    return run_on_ranks(comm, arguments, parsed, VerifyCommand)


class VerifyCommand(RankCommand):
    """One look at all data below a directory."""

    unfinished = "what is not listed is not verified"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.targets: Iterator[Target] = iter(())
        self.seen = self.wrong = 0
        self.counts = {"data set": 0, "checkpoint": 0}
        self.total = Tally()

    def read(self) -> None:
        """Begin to look for data."""
        if self.setup.world.rank == 0:
            from dliosim.commands.verify_targets import find_targets

            self.targets = find_targets(Path(os.path.realpath(self.setup.parsed.place)), self.setup.stores)

    def run(self) -> None:
        """Compare one data set or checkpoint after the other, and print what was found."""
        world = self.setup.world
        while (target := world.run_on_rank_0("look for data", lambda: next(self.targets, None))) is not None:
            found = verify_target(world, self.setup.progress, target)
            self.seen += 1
            if not target.is_leftover:
                self.counts[target.kind] = self.counts.get(target.kind, 0) + 1
                self.wrong += bool(found.faults)
            self.total.files += found.files
            self.total.bytes += found.bytes
            _print(world, "\n".join(map(printable, _result_lines(target, found))))

    def report(self) -> int:
        """Print the sum; return the exit status. Raises UsageError where nothing can be verified."""
        if not self.seen:
            text = "there is no data set and no checkpoint of dliosim; other files have no manifest to verify them by"
            raise UsageError(f"{self.setup.parsed.place}: {text}").mark_shared()
        amount = f"{count(self.total.files, 'file')}, {size(self.total.bytes)} in {seconds(self.setup.seconds)}"
        verdict = "all are right" if not self.wrong else f"{self.wrong} {'is' if self.wrong == 1 else 'are'} wrong"
        kinds = f"{count(self.counts['data set'], 'data set')} and {count(self.counts['checkpoint'], 'checkpoint')}"
        _print(self.setup.world, f"{kinds}, {amount}: {verdict}")
        return min(self.wrong, 1)


def _result_lines(target: Target, found: Tally) -> Iterator[str]:
    """Yield what was found of a data set or checkpoint, and what to do where it is wrong."""
    kinds = {fault.kind for fault in found.faults.values()}
    word = "ok" if not kinds else "note" if target.is_leftover else "wrong"
    name = f" `{target.made.name}`" if target.made is not None else ""
    amount = f", {count(found.files, 'file')}, {size(found.bytes)}" if found.files else ""
    whole = f" {found.faults['.'].why}" if "." in found.faults else ""
    yield f"{word:6} {target.directory}: {target.kind}{name}{amount}{whole}"
    for path, fault in list(found.faults.items())[:_SHOWN]:
        if path != ".":
            yield f"       {path} {fault.why}"
    more = len(found.faults) + found.more - _SHOWN
    if more > 0:
        yield f"       and {count(more, 'more wrong file')}"
    if found.unknown:
        yield f"       {count(found.unknown, 'sample')} cannot be compared, as no library of their format reads them"
    yield from (f"       = help: {_help(target, kind)}" for kind in sorted(kinds))


def _help(target: Target, kind: FaultKind) -> str:
    if kind == "unread":
        return "nothing proves that it is damaged: see why it cannot be read, and verify it again"
    if kind == "surplus":
        return "move away what does not belong there: no loop and no restore reads it"
    if kind == "unfinished":
        return "it does not count, and the next save removes it"
    remove = f"`rm -r {shlex.quote(str(target.directory))}`"
    if target.kind == "checkpoint":
        return f"restores pass over it; {remove} removes it"
    what = f"prepare {target.made.name}" if target.made is not None else "prepare"
    return f"{remove}, then the next `{what}` writes it again"


def _print(world: World, text: str) -> None:
    def write() -> None:
        error = print_text(text + "\n")
        if error is not None:
            raise error

    world.run_on_rank_0("print what was found", write)
