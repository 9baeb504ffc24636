"""The time of a job: I/O, compute, and the parts that do not overlap; bandwidth and activity in bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Floats, Intervals, merge_intervals, spread_amounts, unite_intervals
from dliosim.analyze.figures.view import METADATA, View

#: Kinds that keep a device busy, and those that write.
COMPUTE, WRITES = ("compute",), ("write", "fsync")


@dataclass(frozen=True, slots=True)
class Split:
    """Time of one rank, or of all together; s. Each is the length of a union of intervals."""

    total: float  #: from the first event's begin to the last one's end
    io: float  #: any operation on a file
    compute: float  #: any compute
    overlapped: float  #: I/O and compute at once
    unoverlapped_io: float  #: I/O without compute
    unoverlapped_compute: float  #: compute without I/O
    unoverlapped_write: float  #: writes and fsyncs without compute


@dataclass(frozen=True, slots=True)
class Spread:
    """A time of all ranks, each on its own; s."""

    mean: float  #: mean over ranks
    min: float  #: least of any rank
    max: float  #: most of any rank
    min_rank: str  #: the rank with the least
    max_rank: str  #: the rank with the most


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """The time split by rank and by the union over all ranks; the union hides a single rank that waits."""

    ranks: dict[str, Spread]  #: by the name of a field of `Split`
    union: Split  #: of the intervals of all ranks together
    has_compute: bool  #: False if the trace has no compute: nothing can be hidden behind it
    #: False if compute and I/O are in different processes that the trace assigns to no rank
    is_by_rank: bool


def split_time(view: View) -> TimeSplit:
    """Return the time split of a whole job."""
    events = view.events
    spans = []
    for slices in view.slices_of:
        parts = [part for part in slices if part.stop > part.start]
        first = min((int(events.begin[part].min()) for part in parts), default=0)
        last = max((int((events.begin[part] + events.duration[part]).max()) for part in parts), default=0)
        spans.append(merge_intervals(np.array([first]), np.array([last])))
    whole = merge_intervals(np.array([0]), np.array([view.trace.duration]))
    return _split_within(view, spans, whole)


def split_epochs(view: View) -> TimeSplit | None:
    """Return the time split within the epochs of loops; None if the trace has no epochs."""
    epochs = view.unite(view.events.is_kind("epoch"))
    union = unite_intervals(*epochs)
    return _split_within(view, epochs, union) if union.length else None


def _split_within(view: View, times: Sequence[Intervals], union: Intervals) -> TimeSplit:
    """Return the split of the times of each group, and of all together."""
    events = view.events
    parts = [
        [one.intersect(whole) for one, whole in zip(view.unite(rows), times, strict=True)]
        for rows in (view.operations, events.is_kind(*COMPUTE), view.operations & events.is_kind(*WRITES))
    ]
    ranks = [_split(*each) for each in zip(times, *parts, strict=True)]
    together = _split(union, *(unite_intervals(*part) for part in parts))
    has_compute = together.compute > 0
    lacking = sum(one.compute == 0 and one.io > 0 for one in ranks)
    return TimeSplit(
        {one.name: spread([getattr(rank, one.name) for rank in ranks], view.groups) for one in fields(Split)},
        together,
        has_compute,
        not (has_compute and lacking),
    )


def spread(values: Sequence[float], names: Sequence[str]) -> Spread:
    """Return mean and extremes of a figure of each rank."""
    if not values:
        return Spread(0.0, 0.0, 0.0, "", "")
    low, high = min(values), max(values)
    return Spread(sum(values) / len(values), low, high, names[values.index(low)], names[values.index(high)])


def _split(total: Intervals, io: Intervals, compute: Intervals, write: Intervals) -> Split:
    both, written = io.intersect(compute).length, write.length - write.intersect(compute).length
    times = (total.length, io.length, compute.length, both, io.length - both, compute.length - both, written)
    return Split(*(time / 1e9 for time in times))


#: Bins of bandwidth, and of activity: about the points that a page has room for.
BINS: Final = 120
FINE_BINS: Final = 600

#: What a rank may do, each with its kinds of events; the first three are operations on files.
ACTIVITIES: Final[dict[str, tuple[str, ...]]] = {
    "read": ("read",),
    "write": ("write",),
    "metadata": METADATA,
    "compute": ("compute",),
    "checkpoint": ("save", "restore"),
    "processing": ("decode", "preprocess"),
    "sync wait": ("sync",),
}
IO_ACTIVITIES: Final = ("read", "write", "metadata")


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes in bins that divide the job's time, spread evenly over the call that moved them."""

    bin_seconds: float  #: length of a bin, s
    read: tuple[float, ...]  #: bytes that all ranks read in each bin; (bins,)
    written: tuple[float, ...]  #: bytes that all ranks wrote in each bin; (bins,)

    @property
    def highest(self) -> float:
        """Bytes per second of the bin with most bytes, reads and writes together."""
        most = max(map(sum, zip(self.read, self.written, strict=True)), default=0.0)
        return most / self.bin_seconds if self.bin_seconds else 0.0


def measure_bandwidth(view: View) -> Bandwidth:
    """Return the bytes of all ranks over time."""
    read, written = (tuple(spread_bytes(view, kind).sum(axis=0).tolist()) for kind in ("read", "write"))
    return Bandwidth(view.trace.duration / BINS / 1e9, read, written)


def spread_bytes(view: View, *kinds: str) -> Floats:
    """Return the bytes that each rank moved in each bin; (ranks, bins)."""
    events = view.events
    rows = np.flatnonzero(view.basic & events.is_kind(*kinds))
    begin, shape = events.begin[rows], (len(view.groups), BINS)
    end, group = begin + events.duration[rows], view.groups_of(rows)
    return spread_amounts(begin, end, view.bytes[rows], group, shape, view.trace.duration)


def measure_activity(view: View, name: str) -> Floats:
    """Return the share of each fine bin in which each rank did one of `ACTIVITIES`; (ranks, fine bins)."""
    rows = view.events.is_kind(*ACTIVITIES[name])
    if name in IO_ACTIVITIES:
        rows &= view.operations
    merged = view.unite(rows)
    begin, end = (np.concatenate([getattr(one, side) for one in merged]) for side in ("begin", "end"))
    group = np.repeat(np.arange(len(merged)), [len(one.begin) for one in merged])
    shape = (len(view.groups), FINE_BINS)
    filled = spread_amounts(begin, end, end - begin, group, shape, view.trace.duration)
    return filled / max(view.trace.duration / FINE_BINS, 1.0)
