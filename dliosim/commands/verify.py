"""The command `dliosim verify`: rank 0 finds the data, all ranks compare them, rank 0 prints the faults."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dliosim.commands.job.setup import RankCommand, Setup
from dliosim.commands.job.terminal import print_text
from dliosim.errors import HELP, DliosimError, UsageError
from dliosim.execute.mpi.world import World
from dliosim.execute.run.verify import Fault, FaultKind, Tally, Target, verify_target
from dliosim.execute.store.checkpoint_store import CheckpointStores, checkpoint_directory, is_unfinished, list_entries
from dliosim.execute.store.locking import NAME as LOCK
from dliosim.execute.store.manifest import NAME, find_manifest, load_manifest
from dliosim.language.compile import compile_text
from dliosim.model import Job
from dliosim.readable import count, printable, seconds, size

#: The name of a directory that has data of one description.
_DIGEST = re.compile(r"[0-9a-f]{16}")


def find_targets(place: Path, stores: CheckpointStores) -> Iterator[Target]:
    """Yield the targets in a directory, or the directory itself, in the order of names; links are not followed.

    Checkpoints are locked until the next directory is looked at, so that no other job deletes them. Raises UsageError
    if there is no such directory.
    """
    if not place.is_dir():
        usual = Path("dliosim-data")
        hint = f"write `dliosim verify {f'{usual}`, or' if usual.is_dir() else 'DIR`, with'} the --dir of a run"
        reason = "it is a file, not a directory" if place.exists() else "there is no such directory"
        raise UsageError(f"{place}: {reason}{HELP}{hint}")
    if _DIGEST.fullmatch(place.parent.name) and any(entry == place for _, _, entry in list_entries(place.parent)):
        yield from _read_checkpoints(place.parent, stores, place)
        return
    left = [place]
    while left:
        directory = left.pop()
        try:
            if not _DIGEST.fullmatch(directory.name):
                with os.scandir(directory) as entries:
                    inner = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
                left += map(Path, reversed(inner))
            elif list_entries(directory):
                yield from _read_checkpoints(directory, stores)
            elif any(entry.name != LOCK for entry in directory.iterdir()):
                yield _read_dataset(directory)
        except OSError as error:
            yield Target(directory, "directory", fault=_fault(error))


def _read_checkpoints(base: Path, stores: CheckpointStores, only: Path | None = None) -> Iterator[Target]:
    stores.open_to_restore(base)
    try:
        for number, kind, directory in sorted(list_entries(base)):
            if only in (None, directory):
                yield _read_checkpoint(base, number, kind, directory, only is not None)
    finally:
        stores.close(base)


def _read_checkpoint(base: Path, number: int, kind: str, directory: Path, named: bool) -> Target:
    try:
        if kind or is_unfinished(directory):
            fault = Fault("was never finished", "damaged" if named else "unfinished")
            return Target(directory, "checkpoint", fault=fault)
        return Target(directory, "checkpoint", load_manifest(checkpoint_directory(base, number)))
    except (ValueError, OSError) as error:
        return Target(directory, "checkpoint", fault=_fault(error))


def _read_dataset(directory: Path) -> Target:
    """Return the data set that a manifest describes, or why it describes none; that alone is no damage of the data."""

    def refuse(why: str, kind: FaultKind = "unread") -> Target:
        return Target(directory, "data set", fault=Fault(why, kind))

    manifest = find_manifest(directory, directory.name)
    if manifest is None:
        if os.path.lexists(directory / NAME):
            return refuse(f"has something else where it should have its {NAME}", "damaged")
        return refuse("was never finished")  # or is being prepared: data sets have no lock
    pattern, size = manifest.get("pattern"), manifest.get("bytes")
    if not isinstance(pattern, list) or not pattern or not all(isinstance(line, str) for line in pattern):
        return refuse(f"has no description in its {NAME}, so nothing says which bytes are right")
    try:
        workload, _ = compile_text("\n".join(pattern), (), Job(1))
    except ValueError as error:
        return refuse(f"has a description in its {NAME} that is refused: {_fault(error).why}")
    if type(size) is not int or [dataset.digest() for dataset in workload.datasets] != [directory.name]:
        return refuse(f"has the description of other data in its {NAME}", "damaged")
    return Target(directory, "data set", workload.datasets[0], size)


def _fault(error: Exception) -> Fault:
    text = error.message if isinstance(error, DliosimError) else str(error)
    return Fault(text, "unread" if isinstance(error, OSError) else "damaged")


#: Wrong files of one data set or checkpoint that are named.
_SHOWN = 10


class VerifyCommand(RankCommand):
    """One verification of all data below a directory; its status is 1 if any of them are wrong, else 0."""

    unfinished = "what is not listed is not verified"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.targets: Iterator[Target] = iter(())
        self.seen = self.wrong = 0
        self.counts: Counter[str] = Counter()
        self.total = Tally()

    def read(self) -> None:
        """Begin to look for data."""
        if self.setup.world.rank == 0:
            self.targets = find_targets(Path(os.path.realpath(self.setup.parsed.place)), self.setup.stores)

    def run(self) -> None:
        """Compare one data set or checkpoint after the other, and print what was found."""
        world = self.setup.world
        while (target := world.run_on_rank_0("look for data", lambda: next(self.targets, None))) is not None:
            found = verify_target(world, self.setup.progress, target)
            self.seen += 1
            if not target.is_leftover:
                self.counts[target.kind] += 1
                self.wrong += bool(found.faults)
            self.total.files += found.files
            self.total.bytes += found.bytes
            _print(world, "\n".join(map(printable, _result_lines(target, found))))

    def report(self) -> int:
        """Print the summary; return the exit status. Raises UsageError if nothing can be verified."""
        if not self.seen:
            text = "there is no data set or checkpoint of dliosim; other files have no manifest to verify them against"
            raise UsageError(f"{self.setup.parsed.place}: {text}").mark_shared()
        amount = f"{count(self.total.files, 'file')}, {size(self.total.bytes)} in {seconds(self.setup.seconds)}"
        verdict = "all are right" if not self.wrong else f"{self.wrong} {'is' if self.wrong == 1 else 'are'} wrong"
        kinds = f"{count(self.counts['data set'], 'data set')} and {count(self.counts['checkpoint'], 'checkpoint')}"
        _print(self.setup.world, f"{kinds}, {amount}: {verdict}")
        return min(self.wrong, 1)


def _result_lines(target: Target, found: Tally) -> Iterator[str]:
    """Yield what was found of a data set or checkpoint, and what to do if it is wrong."""
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
    world.run_on_rank_0("print what was found", lambda: print_text(text + "\n"))
