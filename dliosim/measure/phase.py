"""What a verb or loop of a run gave, and how far a run is: on every rank, with figures on rank 0 only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dliosim.measure.epoch_summaries import EpochSummary, VerbSummary


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """One verb or loop of a run. `kind` is its keyword, `seconds` the wall time of the slowest rank.

    A loop has `epochs`, a verb that touches files has `verb`, a pause has neither. `resident_share` is how much of the
    files was in the page cache when the phase began (or, after `drop caches`, when it ended), None if unknown. `cache`
    is what a loop does with the page cache (`page`, `off`, `memory`), `prefetch` how many batches its `readers` threads
    keep ahead, both 0 where it reads in its steps. `through` is `library` where the format's own library read, else
    `direct`. `hints` are asked and granted ones of the files that the phase opened; `notes` are sentences worth
    knowing, such as that data were kept. `within` is the name of the loop that made a save, None for the verb; `fsync`
    and `commit` are how it became durable and complete, None of what is no save. `how` tells a restore from others of
    the same checkpoint. `root` names the place of what was read or written, None if unknown. `part_of` is what a save
    has less than its checkpoint is named for (`scale`, `subset`).
    """

    name: str
    kind: str
    seconds: float
    epochs: tuple[EpochSummary, ...] = ()
    verb: VerbSummary | None = None
    resident_share: float | None = None
    null_seconds: float | None = None
    api: str | None = None
    cache: str | None = None
    prefetch: int = 0
    readers: int = 0
    through: str = "direct"
    hints_asked: tuple[tuple[str, str], ...] = ()
    hints_granted: tuple[tuple[str, str], ...] = ()
    hint_set: str = "library"
    notes: tuple[str, ...] = ()
    within: str | None = None
    fsync: bool | None = None
    commit: str | None = None
    how: str = ""
    root: str | None = None
    part_of: str = ""

    @property
    def hints_refused(self) -> tuple[tuple[str, str, str | None], ...]:
        """Hints that were not granted as asked: key, value asked, value granted (None: the library dropped it)."""
        granted = dict(self.hints_granted)
        return tuple((key, value, granted.get(key)) for key, value in self.hints_asked if granted.get(key) != value)


@dataclass(frozen=True, slots=True)
class LoopProgress:
    """How many of its epochs a loop has done; `epochs` is None where a limit of time decides."""

    name: str
    epochs_done: int
    epochs: int | None


@dataclass(frozen=True, slots=True)
class PartialProgress:
    """How far a run was when a signal asked for its figures: verbs, and the loop that ran with those inside it."""

    signal: str
    verbs_done: int
    verbs: int
    loops: tuple[LoopProgress, ...]


def add_null_times(phase: PhaseSummary, null: PhaseSummary) -> PhaseSummary:
    """The phase beside the same one without I/O: gives both its epochs and itself their slowdown.

    Epochs of other lengths (`for D` ends them where time is up) cannot be compared, and get none.
    """
    seconds = {(epoch.epoch, epoch.steps): epoch.seconds for epoch in null.epochs}
    epochs = tuple(replace(epoch, null_seconds=seconds.get((epoch.epoch, epoch.steps))) for epoch in phase.epochs)
    alike = all(epoch.null_seconds is not None for epoch in epochs)
    return replace(phase, epochs=epochs, null_seconds=null.seconds if alike else None)
