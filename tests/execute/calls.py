"""Calls made by hand, for tests of the backends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dliosim.plan.extents import Calls


def make_calls(steps: Sequence[Sequence[tuple[int, int, int]]]) -> Calls:
    """The calls of steps, each a list of (file, offset, length); their bytes lie back to back in the buffer."""
    rows = [row for step in steps for row in step]
    file, offset, length = (np.array([row[column] for row in rows], np.int64) for column in range(3))
    starts: list[int] = []
    for step in steps:
        at = 0
        for row in step:
            starts.append(at)
            at += row[2]
    start = np.array(starts, np.int64)
    step_start = np.array([0, *np.cumsum([len(step) for step in steps])], np.int64)
    step_bytes = np.array([sum(row[2] for row in step) for step in steps], np.int64)
    return Calls(file, offset, length, start, step_start, step_bytes, start, step_start)
