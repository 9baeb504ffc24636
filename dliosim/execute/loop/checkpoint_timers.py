"""Checkpoints that are due after so many seconds: each rank looks at its own clock, and a sync makes all agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Cadence


class CheckpointTimers:
    """When the lines of a loop that save by seconds are due next, by this rank's perf_counter_ns; none before `start`.

    The time counts from the end of the stall of a line's last save, or from the loop's start.
    """

    def __init__(self, cadences: Sequence[Cadence]) -> None:
        self.cadences = [cadence for cadence in cadences if cadence.unit == "seconds"]
        self._every = np.array([round(cadence.seconds * 1e9) for cadence in self.cadences], np.int64)
        self._next: NDArray[np.int64] | None = None

    def start(self, now: int) -> None:
        """Begin to count, if that has not been done."""
        if self._next is None:
            self._next = now + self._every

    def mark_due(self, due: NDArray[np.int64], now: int) -> None:
        """Set an element of `due` for each line: 1 where it is time, 0 where not."""
        if self._next is not None:
            np.less_equal(self._next, now, out=due, casting="unsafe")

    def delay(self, ns: int) -> None:
        """Leave out time that is none of the loop's."""
        if self._next is not None:
            self._next += ns

    def restart_timer(self, line: int, now: int) -> None:
        """A line has saved."""
        if self._next is not None:
            self._next[line] = now + self._every[line]
