"""Lines that save by seconds: when each is due."""

from __future__ import annotations

import numpy as np

from dliosim.execute.loop.loop_saves import CheckpointTimers
from dliosim.model import Cadence

S = 1_000_000_000


def timers() -> CheckpointTimers:
    lines = (Cadence("a", "seconds", seconds=2.0), Cadence("b", "steps", 3), Cadence("c", "seconds", seconds=5.0))
    return CheckpointTimers(lines)


def due(timers: CheckpointTimers, now: int) -> list[int]:
    found = np.zeros(2, np.int64)
    timers.mark_due(found, now)
    return found.tolist()


def test_nothing_is_due_before_the_loop_has_begun() -> None:
    assert due(timers(), 100 * S) == [0, 0]


def test_each_line_by_seconds_is_due_after_its_own_time() -> None:
    one = timers()
    one.start(10 * S)
    one.start(11 * S)  # a second epoch changes nothing
    assert [due(one, now) for now in (12 * S - 1, 12 * S, 15 * S)] == [[0, 0], [1, 0], [1, 1]]


def test_a_save_of_one_line_puts_off_that_line_alone() -> None:
    one = timers()
    one.start(0)
    one.restart_timer(0, 3 * S)
    assert [due(one, now) for now in (5 * S - 1, 5 * S)] == [[0, 0], [1, 1]]


def test_time_that_is_none_of_the_loops_puts_off_all() -> None:
    one = timers()
    one.start(0)
    one.delay(S)
    assert [due(one, now) for now in (3 * S - 1, 3 * S, 6 * S)] == [[0, 0], [1, 0], [1, 1]]
