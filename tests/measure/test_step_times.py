"""Times of steps as array expressions, on literal arrays; it does not matter how many come at a time."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.records import CAUSES, EpochRecord, StepBlock, unpack_arrivals, unpack_waits
from dliosim.measure.rank.step_times import (
    ROW,
    PlannedSteps,
    StepAccount,
    StepTimes,
    find_causes,
    overlap_mask,
    sum_groups,
)
from dliosim.measure.rank.time_series import EpochSeries

# came, begun, fetched, called, decoded, processing, compute begun and ended, sync begun and ended, saved, content
STEPS = np.array(
    [
        [
            100,
            100,
            150,
            30,
            0,
            10,
            155,
            175,
            180,
            200,
            200,
            0,
        ],  # 50 of fetching: 30 in calls, 10 decoding, 10 the tool's
        [
            205,
            245,
            255,
            90,
            9,
            0,
            255,
            255,
            260,
            260,
            300,
            15,
        ],  # a request after 40; calls longer than the wait; a save
        [310, 310, 320, 10, 0, 0, 325, 425, 430, 435, 435, 0],
    ],
    np.int64,
)


def test_the_parts_of_a_step_are_differences_of_its_readings() -> None:
    times = StepTimes(STEPS, 90)
    assert times.whole.tolist() == [110, 60, 135]
    assert times.idle.tolist() == [0, 40, 0]
    assert times.data_wait.tolist() == [30, 10, 10]
    assert times.processing.tolist() == [10, 0, 0]
    assert times.compute.tolist() == [20, 0, 100]
    assert times.sync_wait.tolist() == [20, 0, 5]
    assert (times.checkpoint.tolist(), times.content.tolist()) == ([0, 25, 0], [0, 15, 0])
    assert times.tool.tolist() == [30, 10, 20]


@pytest.mark.parametrize(
    ("times", "cause"),
    [
        ([5, 4, 4, 4, 4], "storage"),
        ([4, 5, 4, 4, 4], "compute"),
        ([4, 4, 5, 4, 4], "decode"),
        ([4, 4, 4, 5, 4], "tool"),
        ([4, 4, 4, 4, 5], "arrivals"),
        ([5, 5, 5, 5, 5], "storage"),
        ([0, 5, 5, 5, 5], "compute"),
        ([0, 0, 5, 5, 5], "decode"),
        ([0, 0, 0, 5, 5], "tool"),
    ],
)
def test_the_cause_is_the_longest_time_and_the_first_of_equal_ones(times: list[int], cause: str) -> None:
    assert CAUSES[find_causes(np.array([times, [0] * 5]))[0]] == cause


def test_groups_end_where_they_are_said_to_and_the_rest_is_carried() -> None:
    rows = np.array([[1, 10], [2, 20], [3, 30], [4, 40]])
    groups, rest = sum_groups(rows, np.array([False, True, True, False]), np.array([100, 1000]))
    assert (groups.tolist(), rest.tolist()) == ([[103, 1030], [3, 30]], [4, 40])
    groups, rest = sum_groups(rows, np.zeros(4, np.bool_), np.array([100, 1000]))
    assert (groups.tolist(), rest.tolist()) == ([], [110, 1100])


def test_a_time_overlaps_an_interval_that_it_shares_a_moment_with() -> None:
    begin, end = np.array([0, 10, 20]), np.array([10, 20, 30])
    assert overlap_mask(begin, end, np.array([[12, 15], [29, 99]])).tolist() == [False, True, True]
    assert overlap_mask(begin, end, np.empty((0, 2), np.int64)).tolist() == [False] * 3


def account_of(steps: np.ndarray, cuts: list[int], every: int, series: EpochSeries, ahead: bool = False) -> EpochRecord:
    """Return the record of steps that are worked out in parts."""
    count = len(steps)
    plan = PlannedSteps(np.full(count, 4), [100 * (each + 1) for each in range(count)], [7] * count, [], every, ahead)
    account = StepAccount(plan, 3, series, [], lambda since: np.array([[250, 320]]))
    account.start(90)
    for first, last in zip([0, *cuts], [*cuts, count], strict=True):
        for place, row in enumerate(steps[first:last].tolist()):
            ROW.pack_into(account.rows, place * ROW.size, *row)
        account.work_out(last - first)
    return account.make_record(0, 0, 4, False)


def test_a_record_has_the_sums_of_its_steps() -> None:
    record = account_of(STEPS, [], 1, EpochSeries())
    assert (record.steps, record.samples, record.bytes) == (3, 12, 300)
    assert (record.wall_ns, record.loop_ns, record.checkpoint_ns, record.content_ns) == (330, 305, 25, 15)
    assert (record.steady_ns, record.steady_samples, record.nominal_ns) == (195, 8, 14)
    assert (record.data_wait_ns, record.arrival_wait_ns, record.processing_ns) == (50, 40, 10)
    assert (record.compute_ns, record.oversleep_ns, record.sync_wait_ns, record.tool_ns) == (120, 99, 25, 60)
    assert (record.flush_steps, record.flush_steps_ns, record.flush_data_wait_ns) == (2, 140, 20)
    assert record.clear_steps == 0
    assert record.blocks == [StepBlock(2, 170, 70, 0), StepBlock(1, 135, 110, 0)]
    # The first step counts nothing; the others 7 of compute, and their waits in calls.
    assert record.storage_ns[:, :2].tolist() == [[0, 0], [7, 17], [7, 17], [0, 0]]
    # Times between its syncs, from an origin of all ranks.
    assert np.diff(-record.storage_ns[:-1, 2]).tolist() == np.diff(STEPS[:, 9]).tolist()
    assert unpack_waits(record.last_arrival).tolist() == [20, 0, 5]
    ranks, causes = unpack_arrivals(record.last_arrival)
    assert (ranks.tolist(), [CAUSES[each] for each in causes]) == ([3] * 3, ["storage", "arrivals", "compute"])


def test_what_held_a_step_hides_reading_ahead() -> None:
    # The second step takes 60 with 7 of compute and 10 of waiting: 43 of it hid reading, of what it took 90 in calls.
    # The third waited 10, and reading it took no longer.
    record = account_of(STEPS, [2], 2, EpochSeries(), True)
    assert record.storage_ns[:, :2].tolist() == [[7, 7 + 10 + 43], [7, 7 + 10]]


@given(st.lists(st.lists(st.integers(0, 50), min_size=12, max_size=12), min_size=2, max_size=12), st.booleans())
def test_a_step_with_this_storage_alone_is_never_longer_than_it_was(gaps: list[list[int]], ahead: bool) -> None:
    now, steps = 90, []
    for came, begun, fetched, called, decoded, processing, asked, computed, arrived, synced, saved, _ in gaps:
        # A step computes the 7 that it was asked for, or longer.
        times = [now + came, begun, fetched + processing, asked, computed + 7, arrived, synced, saved]
        clock = np.cumsum(times).tolist()
        steps.append([*clock[:3], called, decoded, processing, *clock[3:], 0])
        now = clock[-1]
    table = np.array(steps, np.int64)
    alone = account_of(table, [], 1, EpochSeries(), ahead).storage_ns[1:-1, :2]
    whole = StepTimes(table, 90).whole[1:]
    assert (alone[:, 0] <= alone[:, 1]).all() and (alone[:, 1] <= whole).all()


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=12, max_size=12), min_size=1, max_size=12),
    st.sets(st.integers(0, 12)),
    st.integers(0, 5),
    st.booleans(),
)
def test_it_does_not_matter_how_many_steps_are_worked_out_at_a_time(
    gaps: list[list[int]], cuts: set[int], every: int, ahead: bool
) -> None:
    now, steps = 90, []
    for came, begun, fetched, called, decoded, processing, asked, computed, arrived, synced, saved, content in gaps:
        clock = np.cumsum([now + came, begun, fetched + processing, asked, computed, arrived, synced, saved]).tolist()
        steps.append([*clock[:3], called, decoded, processing, *clock[3:], min(content, saved)])
        now = clock[-1]
    table = np.array(steps, np.int64)
    parts, whole = EpochSeries(), EpochSeries()
    found = account_of(table, sorted(cut for cut in cuts if cut < len(steps)), every, parts, ahead)
    expected = account_of(table, [], every, whole, ahead)
    for each in fields(EpochRecord):
        one, other = getattr(found, each.name), getattr(expected, each.name)
        if isinstance(one, Histogram):
            assert np.array_equal(one.pack_sums(), other.pack_sums()), each.name
        else:
            assert np.array_equal(one, other), each.name
    assert np.array_equal(parts.window, whole.window)
