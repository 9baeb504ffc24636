"""What one I/O thread records while it works: no locks, a list append a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.histogram import Histogram
from dliosim.measure.time_series import EpochSeries

T = TypeVar("T")


class Meter:
    """Counts and times of one thread's calls, in nanoseconds and bytes.

    `call_ns` holds the latencies of write calls that nobody has yet taken (see `take_latencies`), and `stamps` those of
    read calls, in runs made back to back (`add_run`): clock readings, the first of each run, negated, before it and one
    after each call. Calls of which several are in flight at a time go into `spans` instead, by `add_overlapping`: a meter
    has either the one or the other. `read_ns` is how long read calls ran, or any was in flight.
    `how` says by which means the calls are made, where a reader chooses. `moved` is the bytes that the calls really
    moved, alignment and all, where the backend can tell, and what was asked otherwise.
    """

    __slots__ = (
        "call_ns",
        "calls",
        "close_ns",
        "how",
        "moved",
        "open_ns",
        "opens",
        "reached",
        "read_ns",
        "spans",
        "stamps",
        "sync_ns",
        "view_ns",
    )

    def __init__(self) -> None:
        self.call_ns: list[int] = []
        self.stamps: list[int] = []
        self.spans: list[tuple[NDArray[np.int64], NDArray[np.int64], int]] = []
        self.how = ""
        self.calls = 0
        self.moved = 0
        self.read_ns = 0
        self.reached = 0
        self.opens = 0
        self.open_ns = 0
        self.close_ns = 0
        self.view_ns = 0
        self.sync_ns = 0

    @property
    def io_call_ns(self) -> int:
        """How long the thread was inside calls that read: opening, setting views, reading and closing."""
        return self.read_ns + self.open_ns + self.close_ns + self.view_ns

    def add_run(self, began: int, stamps: Sequence[int]) -> None:
        """Record calls made back to back, one at least: the clock before them, and after each of them."""
        self.stamps.extend([-began, *stamps])
        self.read_ns += stamps[-1] - began

    def add_overlapping(self, begin: NDArray[np.int64], end: NDArray[np.int64], since: int | None = None) -> None:
        """Record calls by the clock readings at which each began and ended, in any order; at least one.

        `since` is when the first of the calls began that are still in flight: none that is recorded later may have
        begun before it, or, where none is in flight (None), before the last of these ended.
        """
        first, last = max(int(begin.min()), self.reached), int(end.max())
        self.read_ns += max(0, last - first)
        self.reached = max(self.reached, last)
        self.spans.append((begin, end, last if since is None else since))

    def take_latencies(self) -> NDArray[np.int64]:
        """The latencies recorded since the last time; safe beside the thread that appends."""
        single = np.array(_pop_all(self.call_ns), np.int64)
        latencies, _, _ = self.take_intervals()
        return np.concatenate([single, latencies]) if len(single) else latencies

    def take_intervals(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Of the calls in `stamps` and `spans` since the last time: the latencies, and intervals (2, n) of all calls.

        Then the time before which no later one has begun; 0 where there are none.
        """
        spans = _pop_all(self.spans)
        if not spans:
            return self._take_runs()
        begin, end = (np.concatenate([span[edge] for span in spans]) for edge in (0, 1))
        return end - begin, np.stack([begin, end]), spans[-1][2]

    def _take_runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """See `take_intervals`: an interval for each run of calls made back to back."""
        stamps = _pop_all(self.stamps)
        if not stamps:
            return np.empty(0, np.int64), np.empty((2, 0), np.int64), 0
        edges = np.fromiter(stamps, np.int64, len(stamps))
        begins = edges < 0
        np.abs(edges, out=edges)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(edges)) - 1
        return np.diff(edges)[~begins[1:]], np.stack([edges[first], edges[last]]), int(edges[-1])


def _pop_all(values: list[T]) -> list[T]:
    # One list for ever: a thread that holds on to it for a whole step must not append to one already taken.
    taken = values[:]
    del values[: len(taken)]
    return taken


class MeterGroup:
    """The meters of a rank's readers, taken together for one epoch: latencies, and when any of them was in a call."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters
        self._open = np.empty((2, 0), np.int64)
        self._reached = [0] * len(meters)

    def collect_busy(self, latencies: Histogram, series: EpochSeries | None = None) -> int:
        """Move latencies into a histogram; returns the nanoseconds in which at least one reader was in a call.

        Each is counted once over all takes: what another reader's calls may yet overlap is left for the next one.
        `series` is told when the calls were.
        """
        runs = [self._open]
        for number, meter in enumerate(self._meters):
            taken, made, reached = meter.take_intervals()
            latencies.add(taken)
            if made.size:
                self._reached[number] = reached
                runs.append(made)
                if series is not None:
                    series.add_reads(number, made)
        begin, end = np.concatenate(runs, axis=1)
        until = min(self._reached)
        done, left = begin < until, end > until
        self._open = np.stack([np.maximum(begin[left], until), end[left]])
        return _union_length(begin[done], np.minimum(end[done], until), series)

    def collect_rest(self, series: EpochSeries | None = None) -> int:
        """What the last `take` has left, when no reader makes calls any more."""
        begin, end = self._open
        self._open = np.empty((2, 0), np.int64)
        return _union_length(begin, end, series)


def _union_length(begin: NDArray[np.int64], end: NDArray[np.int64], series: EpochSeries | None) -> int:
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
