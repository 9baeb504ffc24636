"""Bandwidth and activity over time, in bins: of all ranks, and of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.analyze.view import METADATA, View
from dliosim.trace.intervals import Floats, spread_amounts

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
    begin = events.begin[rows]
    shape = (len(view.groups), BINS)
    return spread_amounts(
        begin, begin + events.duration[rows], view.bytes[rows], view.groups_of(rows), shape, view.trace.duration
    )


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
