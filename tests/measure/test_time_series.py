"""Sums in time bins: exact for any intervals, and after any number of merges of bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dliosim.measure.rank.time_series import (
    BINS,
    MARKS,
    OFFSETS,
    QUANTITIES,
    READS,
    WINDOW_STEPS,
    EpochSeries,
    select_calls,
    widen_bins,
)

ORIGIN = 10**15
NOTHING_READ = np.empty((0, 2), np.int64)

# Of one step: what goes by between two of its marks, and its bytes.
PARTS = ("tool", "data_wait", "check", "compute", "late", "sync_wait", "checkpoint")
times = st.one_of(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 10**10))
made_steps = st.lists(
    st.tuples(*(times for _ in PARTS), st.integers(0, 10**12)).filter(lambda step: sum(step[:-1]) > 0), max_size=40
)


def row(series: EpochSeries, name: str) -> list[int]:
    found: list[int] = series.bins[QUANTITIES.index(name)].tolist()
    return found


def marks_of(steps: list[tuple[int, ...]]) -> NDArray[np.int64]:
    """The marks of steps one after the other."""
    spans = np.array(steps, np.int64).reshape(-1, len(PARTS) + 1)
    clock = ORIGIN + np.cumsum(spans[:, :-1].ravel()).reshape(-1, len(PARTS))
    return np.column_stack([clock, np.cumsum(spans[:, -1])])


def spread(begin: int, end: int, width: int) -> list[int]:
    """Return the ns of an interval that are in each bin, computed one bin at a time."""
    return [max(0, min(end, (at + 1) * width) - max(begin, at * width)) for at in range(BINS)]


@settings(deadline=None)
@given(made_steps, st.integers(1, 7))
def test_times_are_in_the_bins_that_they_overlap_whenever_they_come(steps: list[tuple[int, ...]], taken: int) -> None:
    marks, series = marks_of(steps), EpochSeries(ORIGIN)
    for first in range(0, len(marks), taken):
        series.add_steps(marks[first : first + taken], NOTHING_READ)
    width = 1 << series.shift
    for name, begin, end in (
        ("data_wait_ns", "begun", "ready"),
        ("compute_ns", "compute_begun", "compute_ended"),
        ("sync_wait_ns", "sync_begun", "sync_ended"),
        ("checkpoint_ns", "sync_ended", "saved"),
    ):
        edges = (marks[:, [MARKS.index(begin), MARKS.index(end)]] - ORIGIN).tolist()
        expected = np.sum([spread(*edge, width) for edge in edges] or [[0] * BINS], axis=0)
        assert row(series, name) == expected.tolist(), name
    ended = ((marks[:, MARKS.index("saved")] - ORIGIN) // width).tolist()
    assert row(series, "steps") == [ended.count(at) for at in range(BINS)]
    waits = (marks[:, 1] - marks[:, 0]).tolist()
    slowest = [
        max((wait for wait, at in zip(waits, ended, strict=True) if at == one), default=0) for one in range(BINS)
    ]
    assert row(series, "batch_latency_max_ns") == slowest
    assert sum(row(series, "bytes")) == sum(step[-1] for step in steps)


@settings(deadline=None)
@given(made_steps)
def test_more_than_half_of_the_bins_are_used_and_no_time_is_outside(steps: list[tuple[int, ...]]) -> None:
    marks, series = marks_of(steps), EpochSeries(ORIGIN)
    series.add_steps(marks, NOTHING_READ)
    if len(marks):
        last = int(marks[-1, MARKS.index("saved")]) - ORIGIN >> series.shift
        assert last < BINS and (last >= BINS // 2 or series.shift == 0)


@given(st.integers(0, 9), st.data())
def test_merging_bins_keeps_sums_and_maxima(powers: int, data: st.DataObject) -> None:
    drawn = [data.draw(st.lists(st.integers(0, 99), min_size=BINS, max_size=BINS)) for _ in QUANTITIES]
    wide = widen_bins(np.array(drawn), powers)
    group = 1 << powers
    for before, after in zip(drawn[:-1], wide[:-1].tolist(), strict=True):
        assert after[: -(-BINS // group)] == [sum(before[at : at + group]) for at in range(0, BINS, group)]
        assert sum(after) == sum(before)
    assert max(wide[-1]) == max(drawn[-1])
    assert wide[-1][0] == max(drawn[-1][:group])


def test_bytes_are_spread_over_the_time_that_they_were_read_in() -> None:
    series = EpochSeries(ORIGIN)
    # Ready at 1280 and done at 1281 ns: bins of 16 ns. The first was read from 160 to 320, the second from 320 to 330.
    clock = np.array([[0, 1280, 1280, 1280, 1280, 1280, 1280], [1280, 1280, 1280, 1280, 1280, 1280, 1281]]) + ORIGIN
    series.add_steps(np.column_stack([clock, [1000, 1003]]), np.array([[160, 320], [320, 330]]) + ORIGIN)
    assert 1 << series.shift == 16
    assert row(series, "bytes")[10:21] == [100] * 10 + [3]
    assert sum(row(series, "bytes")) == 1003


def test_bytes_without_anything_to_read_come_while_they_are_waited_for() -> None:
    series = EpochSeries(ORIGIN)
    clock = np.array([[20, 40, 40, 40, 40, 40, 40], [50, 50, 50, 50, 50, 50, 100]]) + ORIGIN
    series.add_steps(np.column_stack([clock, [10, 17]]), np.zeros((2, 2), np.int64))
    assert series.shift == 0
    assert sum(row(series, "bytes")[20:30]) == sum(row(series, "bytes")[30:40]) == 5
    assert row(series, "bytes")[50] == 7


def test_a_checkpoint_after_the_last_step_is_in_the_epoch() -> None:
    series = EpochSeries(ORIGIN)
    series.add_checkpoint(1000, 1999)
    assert sum(row(series, "checkpoint_ns")) == 999
    assert row(series, "checkpoint_ns")[: 1000 >> series.shift] == [0] * (1000 >> series.shift)


def test_the_window_has_the_first_steps_however_they_come() -> None:
    steps = [(1, 2, 3, 4, 5, 6, 7, 8)] * (WINDOW_STEPS + 6)
    series, marks = EpochSeries(ORIGIN), marks_of(steps)
    for first in range(0, len(marks), 30):
        series.add_steps(marks[first : first + 30], NOTHING_READ)
    assert series.steps == len(steps)
    assert series.window[:2].tolist() == [[1, 3, 6, 10, 21, 28], [29, 31, 34, 38, 49, 56]]
    assert series.window[-1, -1] == WINDOW_STEPS * 28
    few = EpochSeries(ORIGIN)
    few.add_steps(marks[:1], NOTHING_READ)
    assert (few.window[1:] == -1).all()


@settings(deadline=None)
@given(st.lists(st.integers(0, 2 * READS), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_reads_are_those_that_began_first_whenever_readers_tell(runs: list[int], seed: int) -> None:
    series, everything, random = EpochSeries(ORIGIN), [], np.random.default_rng(seed)
    for reader, count in enumerate(runs):
        edges = np.cumsum(random.integers(1, 4, 2 * count)).reshape(-1, 2)
        for half in np.array_split(edges, 2):
            series.add_reads(reader, half.T + ORIGIN)
        everything += [(reader, *edge) for edge in edges.tolist()]
    begins = sorted(begin for _, begin, _ in everything)[:READS]
    assert series.reads[:, 1].tolist() == begins
    assert {*map(tuple, series.reads.tolist())} <= {*everything}


def test_reads_after_the_window_are_left_out() -> None:
    series = EpochSeries(ORIGIN)
    series.add_reads(0, np.array([[5, 27, 28, 40], [6, 40, 29, 41]]) + ORIGIN)
    assert len(series.early_reads()) == 0
    series.add_steps(marks_of([(1, 2, 3, 4, 5, 6, 7, 8)]), NOTHING_READ)
    assert series.early_reads().tolist() == [[0, 5, 6], [0, 27, 40]]


@pytest.mark.parametrize("count", [0, 1, OFFSETS, OFFSETS + 1, 10**9])
def test_offsets_are_few_begin_whole_and_reach_to_the_end(count: int) -> None:
    rows = select_calls(count)
    assert len(rows) == min(count, OFFSETS)
    assert (np.diff(rows) > 0).all()
    assert rows[: OFFSETS // 4].tolist() == [*range(min(count, OFFSETS // 4))]
    assert count == 0 or count - count // 1000 - 2 <= rows[-1] < count
