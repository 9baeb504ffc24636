"""Select the checkpoint to restore: the newest complete one of all roots, with the reasons why no newer one counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.phases.context import Session
from dliosim.execute.store import checkpoint_store
from dliosim.execute.store.manifest import CheckpointManifest, load_manifest
from dliosim.model import Checkpoint, Split
from dliosim.plan.checkpoints.layout import METADATA, state_files
from dliosim.readable import count


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint that can be restored."""

    #: number of the checkpoint
    number: int
    #: the directory that holds it
    directory: Path
    #: name of its root
    root: str
    #: its manifest
    saved: CheckpointManifest
    #: why each lost file is not what was saved, by its name; only files that partners keep copies of
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _CheckpointRoot:
    """A root that may hold checkpoints."""

    #: name of the root
    root: str
    #: the directory of all numbers of the checkpoint in this root
    base: Path
    #: only checkpoints with a lower number count; None: all
    below: int | None = None
    #: why each newer checkpoint does not count
    passed_over: list[str] = field(default_factory=list)


class CheckpointSearch:
    """Search of the complete checkpoints that ranks split as `written` have saved, newest first; for rank 0."""

    def __init__(self, session: Session, checkpoint: Checkpoint, written: Split, number: int | None = None) -> None:
        """Search all, or the one of this number alone."""
        self._checkpoint = checkpoint
        self._written = written
        self._number = number
        self._files = state_files(checkpoint, written)
        self._places = [_CheckpointRoot(checkpoint.root, session.save_directory(checkpoint, written))]
        drained = session.drain_directory(checkpoint, written)
        if drained is not None and checkpoint.drain is not None:
            self._places.append(_CheckpointRoot(checkpoint.drain, drained))
        for place in self._places:
            place.below = None if number is None else number + 1

    def find(self) -> FoundCheckpoint:
        """Return the newest checkpoint that was not passed over; of equal numbers, the one on its own root.

        Raises ExecutionError [R404] if there is none, and what `checkpoint_store.find_newest_complete` raises.
        """
        found: list[FoundCheckpoint] = []
        failures: list[ExecutionError] = []
        for place in self._places:
            try:
                found.append(self._find_newest(place))
            except ExecutionError as error:
                if error.code != "R404":
                    raise
                failures.append(error)
        if not found:
            text = "; ".join(failure.message for failure in failures)
            raise ExecutionError(text + self._other_writers_hint(), failures[0].code)
        newest = max(found, key=lambda one: one.number)
        if self._number is not None and newest.number != self._number:
            reasons = [text.partition(": ")[2] for place in self._places for text in place.passed_over]
            why = "; ".join(reasons) or "it is not there"
            raise ExecutionError(f"checkpoint {self._number:06d} of `{self._checkpoint.name}`: {why}", "R404")
        return newest

    def list_oldest(self, count: int, own: Sequence[int]) -> list[int]:
        """Return the numbers of the `count` oldest checkpoints on any root; only those in `own`, if there are any.

        Unfinished checkpoints do not count. Raises ExecutionError [R404] if there are fewer.
        """
        bases = [place.base for place in self._places]
        there = {
            number
            for base in bases
            for number in checkpoint_store.checkpoint_numbers(base)
            if not checkpoint_store.is_unfinished(checkpoint_store.checkpoint_directory(base, number))
        }
        found = sorted(there.intersection(own) if own else there)
        if len(found) < count:
            text = f"{count} checkpoints of `{self._checkpoint.name}` are to be restored, and {len(found)} are there"
            text += f", in {' and '.join(map(str, bases))}"
            if len(own) >= count:
                text += f"; {len(own)} were saved and `keep {self._checkpoint.keep}` has deleted the oldest"
            raise ExecutionError(text + self._other_writers_hint(), "R404")
        return found[:count]

    def pass_over(self, found: FoundCheckpoint, why: str) -> None:
        """Exclude a checkpoint that `find` returned, and say why: reading it showed that it does not count."""
        place = next(place for place in self._places if place.root == found.root)
        place.passed_over.append(f"{found.directory.name}: {why}")
        place.below = found.number

    def restore_notes(self, found: FoundCheckpoint) -> tuple[str, ...]:
        """Return the notes for the report after `found` was restored."""
        has_roots = len(self._places) > 1
        notes = [
            f"passed over {text}{f' (root `{place.root}`)' * has_roots}"
            for place in self._places
            for text in place.passed_over
            if int(text.partition(":")[0]) >= found.number
        ]
        if has_roots:
            notes.append(f"read {found.directory.name} from root `{found.root}`")
        elif notes:
            notes.append(f"read {found.directory.name}")
        copies = "what it held was read from partners' copies"
        notes += [f"{found.directory.name}: {why}; {copies}" for why in found.lost.values()]
        if found.saved.commit_warning:
            notes.append(f"{found.directory.name}: {found.saved.commit_warning}")
        return tuple(notes)

    def _find_newest(self, place: _CheckpointRoot) -> FoundCheckpoint:
        name, ranks, passed = self._checkpoint.name, self._written.present_ranks, place.passed_over
        try:
            number, saved, passed = checkpoint_store.find_newest_complete(place.base, name, ranks, place.below, passed)
        except ExecutionError as error:
            mended = self._find_recoverable(place, 0) if error.code == "R404" else None
            if mended is None:
                raise
            return mended
        mended = self._find_recoverable(place, number)
        if mended is not None:
            return mended
        place.passed_over = passed
        # `passed_over` has the reasons of all newer ones now.
        place.below = number + 1
        return FoundCheckpoint(number, checkpoint_store.checkpoint_directory(place.base, number), place.root, saved)

    def _find_recoverable(self, place: _CheckpointRoot, above: int) -> FoundCheckpoint | None:
        """Return the newest with a number above `above` that lost files, if partners keep copies of all of them."""
        copies = {name for name, _ in self._files.partner_files()}
        for number in checkpoint_store.checkpoint_numbers(place.base) if copies else ():
            if number > above and (place.below is None or number < place.below):
                directory = checkpoint_store.checkpoint_directory(place.base, number)
                with suppress(ValueError):
                    saved = load_manifest(directory)
                    lost = dict(_find_file_faults(saved, directory))
                    if saved.files.keys() >= copies and not lost.keys() & {*copies, METADATA}:
                        return FoundCheckpoint(number, directory, place.root, saved, lost)
        return None

    def _other_writers_hint(self) -> str:
        """Return a hint on checkpoints that other numbers of ranks or splits have saved, and how to restore them."""
        checkpoint, base = self._checkpoint, self._places[0].base
        others: dict[Path, Split] = {}
        with suppress(OSError):
            others |= checkpoint_store.find_other_writers(base, checkpoint.name)
        if not others:
            return ""
        digests = {other.name for other in others}
        splits = [split for split in dict.fromkeys(others.values()) if checkpoint.digest(split) in digests]
        if splits:
            ways = " or ".join(_restore_phrase(checkpoint.name, split) for split in splits)
            return f"; others have saved it there: say {ways}"
        return f"; a checkpoint of another description is there, in {next(iter(others))}"


def _find_file_faults(saved: CheckpointManifest, directory: Path) -> Iterator[tuple[str, str]]:
    """Yield each file that is missing or has another size, and why."""
    for name, found in saved.files.items():
        fault = replace(saved, files={name: found}).find_size_fault(directory)
        if fault is not None:
            yield name, fault


def _restore_phrase(name: str, split: Split) -> str:
    """Return the statement of a pattern that restores what ranks of this split have saved."""
    if split.tensor == split.pipeline == 1 and not split.played:
        return f"`restore {name} written by {count(split.ranks, 'rank')}`"
    played = f" subset {split.played}" if split.played else ""
    return f"`restore {name} {{ written by {split.phrase}{played} }}`"
