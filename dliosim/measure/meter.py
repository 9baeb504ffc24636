"""What one I/O thread records while it works: no locks, a list append a call."""

from __future__ import annotations

import threading
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray


class Meter:
    """Counts and times of one thread's calls, in nanoseconds and bytes.

    `call_ns` holds the latencies of read or write calls that nobody has yet taken (see `take_latencies`), and `stamps`
    those of calls made back to back: clock readings, the first of each run, negated, before it and one after each call.
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
        stamps = _taken(self.stamps)
        if not stamps:
            return single
        edges = np.fromiter(stamps, np.int64, len(stamps))
        begins = edges < 0
        spans = np.diff(np.abs(edges, out=edges))[~begins[1:]]
        return np.concatenate([single, spans]) if len(single) else spans


def _taken(values: list[int]) -> list[int]:
    # One list for ever: a thread that holds on to it for a whole step must not append to one already taken.
    taken = values[:]
    del values[: len(taken)]
    return taken


class BusyClock:
    """The union of the intervals in which at least one of a rank's threads is in an I/O call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0
        self._since = 0
        self._busy = 0

    def __enter__(self) -> BusyClock:
        with self._lock:
            if self._active == 0:
                self._since = perf_counter_ns()
            self._active += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0:
                self._busy += perf_counter_ns() - self._since

    def total_ns(self) -> int:
        """Nanoseconds busy so far, those of an interval still open included."""
        with self._lock:
            if self._active:
                return self._busy + perf_counter_ns() - self._since
            return self._busy
