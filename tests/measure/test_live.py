"""Figures of `--live` from rows of a board that tests write as ranks do."""

from __future__ import annotations

import numpy as np
import pytest

from dliosim.measure.progress.board import BARRIER, DONE, ROW_BYTES, STEP, BoardRow, BoardRows
from dliosim.measure.progress.live import LiveMeter, find_late
from dliosim.measure.progress.task import Task
from dliosim.measure.rank.step_times import AT_ONCE, READINGS, ROW

SECOND = 1_000_000_000


def rows_of(ranks: int) -> tuple[BoardRow, ...]:
    rows = list(BoardRows(memoryview(bytearray(ranks * ROW_BYTES))))
    for rank, row in enumerate(rows):
        row.introduce(rank)
        row.begin("train", 1)
    return rows


def advance(row: BoardRow, step: int, done: int) -> None:
    row.words[STEP], row.words[DONE] = step, done


def meet(*rows: BoardRow) -> None:
    """Let ranks arrive at their next meeting."""
    for row in rows:
        row.arrive(BARRIER)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_wait_for_those_that_have_not_reached_their_meeting(ranks: int) -> None:
    rows = rows_of(ranks)
    assert find_late(rows) == ([], [])
    meet(*rows[1:])
    assert find_late(rows) == (list(rows[1:]), [rows[0]])
    meet(rows[0])
    assert find_late(rows) == (list(rows), [])
    rows[0].leave()
    meet(rows[0])
    assert find_late(rows) == ([rows[0]], list(rows[1:]))


def test_where_all_ranks_of_a_node_wait_it_is_for_another_node() -> None:
    rows = rows_of(3)
    meet(*rows)
    for ranks, waiting in ((3, ()), (7, (0, 1, 2))):
        found = LiveMeter(rows, rows[0], ranks).look(SECOND, Task("train"))
        assert (found.waiting, found.late, found.slowest) == (waiting, (), None)
    rows[1].leave()
    assert LiveMeter(rows, rows[0], 7).look(SECOND, Task("train")).waiting == ()


def test_rows_that_change_while_they_are_read_say_nothing() -> None:
    class Moving(BoardRow):
        @property
        def attendance(self) -> tuple[int, bool]:
            self.arrive(BARRIER)
            self.leave()
            return super().attendance

    still = rows_of(1)[0]
    meet(still, still, still)
    assert find_late([still, Moving(memoryview(bytearray(ROW_BYTES)))]) == ([], [])


def test_bandwidth_now_is_of_the_last_second_and_the_mean_of_the_epoch() -> None:
    rows = rows_of(3)
    meter, task = LiveMeter(rows, rows[0], len(rows)), Task("train", steps=100)
    assert meter.look(SECOND, task).now is None
    for quarter in range(1, 13):  # 4 B/s a rank for 2 s, then 40 B/s
        for row in rows:
            advance(row, quarter, quarter if quarter <= 8 else 8 + 10 * (quarter - 8))
        found = meter.look(SECOND + quarter * SECOND // 4, task)
        if quarter == 8:
            assert found.now == pytest.approx(12)
    assert (found.now, found.moved) == (pytest.approx(120), 144)
    assert found.mean == pytest.approx(144 / 4)


def test_bytes_of_epochs_that_ended_between_two_looks_count() -> None:
    rows = rows_of(2)
    meter = LiveMeter(rows, rows[0], len(rows))
    meter.look(SECOND, Task("train", started=SECOND))
    for epoch in range(2, 6):
        for row in rows:
            advance(row, 10, 1000)
            row.begin("train", epoch)
    found = meter.look(2 * SECOND, Task("train", 5, 5, started=2 * SECOND))
    assert (found.now, found.moved, found.mean) == (8000, 0, None)


def test_a_phase_that_continues_after_another_counts_no_byte_twice() -> None:
    (row,) = rows_of(1)
    advance(row, 7, 700)
    row.begin("save c", 0)
    advance(row, 0, 50)
    row.resume("train", 1, 7, 700)
    assert (row.phase, row.epoch, row.step, row.bytes_done, row.all_bytes) == ("train", 1, 7, 700, 750)


def test_the_mean_is_without_what_interrupted_the_epoch() -> None:
    rows = rows_of(1)
    advance(rows[0], 1, 100)
    found = LiveMeter(rows, rows[0], len(rows)).look(10 * SECOND, Task("train", steps=5, held=5 * SECOND))
    assert (found.mean, found.left) == (20, 40)


def test_the_slowest_rank_is_the_one_that_was_late_most_often() -> None:
    rows = rows_of(3)
    meter, task = LiveMeter(rows, rows[0], len(rows)), Task("train", steps=9)
    for look, late in enumerate((2, 1, 2, 0, 2)):
        others = [row for row in rows if row.rank != late]
        meet(*others)
        found = meter.look(look * SECOND, task)
        assert (found.waiting, found.late) == (tuple(row.rank for row in others), (late,))
        meet(rows[late])
        meter.look(look * SECOND + 1, task)
        for row in rows:
            row.leave()
    assert found.slowest == (2, 3, 5)
    assert meter.look(9 * SECOND, Task("evaluate")).slowest is None


def test_steps_give_the_time_that_is_left_of_the_epoch_and_of_all() -> None:
    rows = rows_of(2)
    advance(rows[0], 25, 0)
    advance(rows[1], 28, 0)
    found = LiveMeter(rows, rows[0], len(rows)).look(5 * SECOND, Task("train", 2, 4, steps=100))
    assert (found.left, found.left_of_all, found.step_range) == (15, 15 + 2 * 20, (25, 28))


def test_bytes_give_it_where_there_are_no_steps() -> None:
    rows = rows_of(1)
    advance(rows[0], 0, 30)
    found = LiveMeter(rows, rows[0], len(rows)).look(3 * SECOND, Task("save c", total=lambda: 40))
    assert (found.total, found.left, found.left_of_all) == (40, 1, 1)


@pytest.mark.parametrize(("steps", "seen"), [(0, 0), (1, 1), (300, 300), (5000, AT_ONCE)])
def test_p99_is_of_the_last_batch_waits_of_rank_0(steps: int, seen: int) -> None:
    rows, readings = rows_of(1), memoryview(bytearray(AT_ONCE * ROW.size))
    waits = np.random.default_rng(1).integers(1, 10**9, max(steps, 1))
    for step in range(steps):
        begun = (step + 1) * 2 * SECOND
        row = dict.fromkeys(READINGS, begun) | {"fetched": begun + waits[step], "called": waits[step]}
        row |= {"decoded": 0, "processing": 0, "content": 0}
        ROW.pack_into(readings, step % AT_ONCE * ROW.size, *(int(row[name]) for name in READINGS))
    advance(rows[0], steps, 0)
    found = LiveMeter(rows, rows[0], len(rows)).look(SECOND, Task("train", steps=steps, readings=readings))
    assert found.waits == seen
    if seen:
        assert found.p99 == pytest.approx(np.quantile(waits[-seen:], 0.99, method="inverted_cdf") * 1e-9)
    else:
        assert found.p99 is None
