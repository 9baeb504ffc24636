"""Checkpoints by seconds: each rank looks at its own clock, and a sync makes all ranks agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Cadence


class CheckpointTimers:
    """Timers of the `checkpoint` lines of a loop that save by seconds, by this rank's perf_counter_ns.

    No line is due before `start`. The time of a line counts from the end of the stall of its last save, or from the
    start of the loop.
    """

    def __init__(self, cadences: Sequence[Cadence]) -> None:
        self.cadences = [cadence for cadence in cadences if cadence.unit == "seconds"]
        self._every = np.array([round(cadence.seconds * 1e9) for cadence in self.cadences], np.int64)
        self._next: NDArray[np.int64] | None = None

    def start(self, now: int) -> None:
        """Start all timers at `now`, perf_counter_ns; do nothing if they run already."""
        if self._next is None:
            self._next = now + self._every

    def mark_due(self, due: NDArray[np.int64], now: int) -> None:
        """Set `due` (lines,) in place: 1 for a line that is due at `now`, 0 for the others."""
        if self._next is not None:
            np.less_equal(self._next, now, out=due, casting="unsafe")

    def delay(self, ns: int) -> None:
        """Delay all timers by `ns`, a time that does not belong to the loop."""
        if self._next is not None:
            self._next += ns

    def restart_timer(self, line: int, now: int) -> None:
        """Restart the timer of a line (an index into `cadences`) at `now`, after it has saved."""
        if self._next is not None:
            self._next[line] = now + self._every[line]
