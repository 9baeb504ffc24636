"""The result of one verb or loop, and the progress of a run; every rank has them, but only rank 0 has the figures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dliosim.model.access import write_readers

if TYPE_CHECKING:
    from dliosim.measure.figures.epoch_summaries import EpochSummary


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """One verb or loop of a run. A pause, a barrier and any verb without figures have only this."""

    #: name of the loop, data set or checkpoint
    name: str
    #: keyword of the verb
    kind: str
    #: wall time of the slowest rank, in s
    seconds: float
    #: share of the files in the page cache at the begin (after `drop caches`: at the end); None if unknown
    resident_share: float | None = None
    #: setting `api`
    api: str | None = None
    #: MPI_Info pairs asked for the files that the phase opened
    hints_asked: tuple[tuple[str, str], ...] = ()
    #: MPI_Info pairs granted for them
    hints_granted: tuple[tuple[str, str], ...] = ()
    #: setting `hints`
    hint_set: str = "library"
    #: sentences for the report: that data were kept
    notes: tuple[str, ...] = ()
    #: name of the root that was read or written; None if unknown
    root: str | None = None

    @property
    def hints_refused(self) -> tuple[tuple[str, str, str | None], ...]:
        """Return hints not granted as asked: key, value asked, value granted (None: the library dropped it)."""
        granted = dict(self.hints_granted)
        return tuple((key, value, granted.get(key)) for key, value in self.hints_asked if granted.get(key) != value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPhase(PhaseSummary):
    """A run of a loop."""

    #: figures of each epoch
    epochs: tuple[EpochSummary, ...] = ()
    #: `seconds` of the same phase without I/O, in s
    null_seconds: float | None = None
    #: bytes that the node of rank 0 could still give at the ends of epochs, the least; what its page cache had included
    free_memory: int | None = None
    #: setting `cache`: `page`, `off` or `memory`
    cache: str | None = None
    #: setting `caches`: the pages of the data set were dropped before each epoch, and `resident_share` is the most left
    cold_each_epoch: bool = False
    #: batches that the readers keep ahead; 0 if the steps read
    prefetch: int = 0
    #: readers of a rank; 0 if the steps read
    readers: int = 0
    #: they are processes, not threads
    reader_processes: bool = field(default=False, metadata={"may_lack": True})
    #: `library` where the format's own library read, else `direct`
    through: str = "direct"

    def write_readers(self, number: int) -> str:
        """Return the phrase of the setting `readers` for another number of readers of the same kind."""
        return write_readers(number, self.reader_processes)

    @property
    def reads_nothing(self) -> bool:
        """Return True if no step had a sample, as the loop has no `read`."""
        return bool(self.epochs) and not any(epoch.samples for epoch in self.epochs)


@dataclass(frozen=True, slots=True)
class LoopProgress:
    """Epochs of a loop that are done."""

    #: name of the loop
    name: str
    #: complete epochs
    epochs_done: int
    #: epochs in all; None if a time limit decides
    epochs: int | None


@dataclass(frozen=True, slots=True)
class PartialProgress:
    """Progress of a run at the time when its figures were written before its end."""

    #: name of the signal that asked for them; empty for those that a run writes now and then
    signal: str
    #: complete verbs
    verbs_done: int
    #: verbs in all
    verbs: int
    #: the loop that ran, and its evaluations
    loops: tuple[LoopProgress, ...]


def add_null_times(phase: LoopPhase, null: LoopPhase) -> LoopPhase:
    """Return the phase with the times of the same phase without I/O, which give the slowdown.

    Epochs with different numbers of steps (`for D` ends them by the clock) cannot be compared, and get none.
    """
    seconds = {(epoch.epoch, epoch.steps): epoch.seconds for epoch in null.epochs}
    epochs = tuple(replace(epoch, null_seconds=seconds.get((epoch.epoch, epoch.steps))) for epoch in phase.epochs)
    all_known = all(epoch.null_seconds is not None for epoch in epochs)
    return replace(phase, epochs=epochs, null_seconds=null.seconds if all_known else None)
