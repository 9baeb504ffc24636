"""What one I/O thread records while it works: no locks, a list append a call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.histogram import Histogram
from dliosim.measure.series import EpochSeries


class Meter:
    """Counts and times of one thread's calls, in nanoseconds and bytes.

    `call_ns` holds the latencies of write calls that nobody has yet taken (see `take_latencies`), and `stamps` those of
    read calls, in runs made back to back: clock readings, the first of each run, negated, before it and one after each
    call.
    `moved` is the bytes that the calls really moved, alignment and all, where the backend can tell, and what was asked
    otherwise.
    """

    __slots__ = ("call_ns", "calls", "close_ns", "moved", "open_ns", "opens", "stamps", "sync_ns", "view_ns")

    def __init__(self) -> None:
        self.call_ns: list[int] = []
        self.stamps: list[int] = []
        self.calls = 0
        self.moved = 0
        self.opens = 0
        self.open_ns = 0
        self.close_ns = 0
        self.view_ns = 0
        self.sync_ns = 0

    def take_latencies(self) -> NDArray[np.int64]:
        """The latencies recorded since the last time; safe beside the thread that appends."""
        single = np.array(_taken(self.call_ns), np.int64)
        spans, _ = self.take_runs()
        return np.concatenate([single, spans]) if len(single) else spans

    def take_runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of the calls in `stamps` since the last time: the latencies, and begin and end of each run (2, runs)."""
        stamps = _taken(self.stamps)
        if not stamps:
            return np.empty(0, np.int64), np.empty((2, 0), np.int64)
        edges = np.fromiter(stamps, np.int64, len(stamps))
        begins = edges < 0
        np.abs(edges, out=edges)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(edges)) - 1
        return np.diff(edges)[~begins[1:]], np.stack([edges[first], edges[last]])


def _taken(values: list[int]) -> list[int]:
    # One list for ever: a thread that holds on to it for a whole step must not append to one already taken.
    taken = values[:]
    del values[: len(taken)]
    return taken


class Meters:
    """The meters of a rank's readers, taken together for one epoch: latencies, and when any of them was in a call."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters
        self._open = np.empty((2, 0), np.int64)
        self._reached = [0] * len(meters)

    def take(self, latencies: Histogram, series: EpochSeries | None = None) -> int:
        """Move latencies into a histogram; returns the nanoseconds in which at least one reader was in a call.

        Each is counted once over all takes: what another reader's calls may yet overlap is left for the next one.
        `series` is told when the calls were.
        """
        runs = [self._open]
        for number, meter in enumerate(self._meters):
            spans, made = meter.take_runs()
            latencies.add(spans)
            if made.size:
                self._reached[number] = int(made[1, -1])
                runs.append(made)
                if series is not None:
                    series.add_reads(number, made)
        begin, end = np.concatenate(runs, axis=1)
        until = min(self._reached)
        done, left = begin < until, end > until
        self._open = np.stack([np.maximum(begin[left], until), end[left]])
        return _covered(begin[done], np.minimum(end[done], until), series)

    def rest(self, series: EpochSeries | None = None) -> int:
        """What the last `take` has left, when no reader makes calls any more."""
        begin, end = self._open
        self._open = np.empty((2, 0), np.int64)
        return _covered(begin, end, series)


def _covered(begin: NDArray[np.int64], end: NDArray[np.int64], series: EpochSeries | None) -> int:
    """The length of the union of intervals, which `series` is told of."""
    if not len(begin):
        return 0
    order = np.argsort(begin)
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    apart = begin[1:] > reached[:-1]
    union = np.stack([begin[np.append(True, apart)], reached[np.append(apart, True)]])
    if series is not None:
        series.add_busy(union)
    return int((union[1] - union[0]).sum())
