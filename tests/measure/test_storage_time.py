"""Storage's part of the waits of steps, on literal arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.figures.summary import summarise
from dliosim.measure.rank.records import EpochRecord
from dliosim.measure.rank.step_times import ROW, PlannedSteps, StepAccount, align_syncs, limit_steps, split_waits
from dliosim.measure.rank.time_series import EpochSeries
from tests.examples import examples
from tests.measure.ranks import on_ranks

NS = np.int64


def split(waited: int, called: int, decoded: int, extra: int | None) -> tuple[int, int]:
    """Return the storage's wait and the decoder's of one step."""
    columns: list[Any] = [None if each is None else np.array([each], NS) for each in (waited, called, decoded, extra)]
    storage, decoding = split_waits(*columns)
    return int(storage[0]), int(decoding[0])


@pytest.mark.parametrize(
    ("waited", "called", "decoded", "extra", "expected"),
    [
        (30, 30, 0, None, (30, 0)),  # the step reads by itself: all of the time inside calls
        (30, 100, 0, 0, (30, 0)),  # a reader takes 100 for a batch, and 70 passed before the step waited
        (30, 100, 0, 20, (50, 0)),  # 20 of those 70 were not compute: without them the step had waited 50
        (30, 100, 0, 90, (100, 0)),  # it never waits longer than its batch takes
        (0, 100, 0, 90, (0, 0)),  # a batch that was early is early without the tool's time, too
        (30, 10, 90, 0, (10, 20)),  # with calls that take no time it would still have waited 20 for decoding
        (30, 40, 60, 0, (30, 0)),  # with calls that take no time, decoding would have been done before
        (30, 40, 60, -5, (30, 0)),  # time of a step is never below its compute, but for the clock's resolution
    ],
)
def test_a_wait_is_storages_as_far_as_faster_calls_would_take_it_away(
    waited: int, called: int, decoded: int, extra: int | None, expected: tuple[int, int]
) -> None:
    assert split(waited, called, decoded, extra) == expected


@given(st.integers(1, 100), st.integers(0, 100), st.integers(0, 300), st.integers(0, 300))
def test_a_pipeline_of_one_reader_is_split_by_arithmetic(compute: int, tool: int, called: int, decoded: int) -> None:
    # A reader that has always room takes called + decoded for each batch; the step has its compute and the tool's time.
    held, takes = compute + tool, called + decoded
    waited = max(0, takes - held)
    storage, decoding = split(waited, called, decoded, tool)
    if waited:
        assert storage + decoding == min(takes - compute, takes)
        assert decoding == max(0, decoded - compute)
    else:
        assert (storage, decoding) == (0, 0)


def rows_of(left: NDArray[np.int64], whole: int) -> NDArray[np.int64]:
    """The rows of a rank that left syncs at these times, whose steps need 10 of `whole`."""
    rows = np.column_stack([np.full_like(left, 10), np.full_like(left, whole), -left])
    return align_syncs(np.concatenate([rows, [[0, 0, 0]]]))


def test_a_rank_that_left_the_first_sync_late_does_not_count_from_then() -> None:
    even = np.arange(100, dtype=NS) * 20
    late = even + 10_000  # the clock of another node
    late[0] += 5
    found = limit_steps(np.maximum(rows_of(even, 20), rows_of(late, 20)))
    assert abs(found[1:-1, 1].sum() - 99 * 20) < 5


def epoch_of(reads: list[list[int]], late: list[list[int]]) -> EpochSummary:
    """An epoch of steps that read and compute 100, then meet; after each sync ranks continue late. (steps, ranks)."""
    ranks, steps = len(reads[0]), len(reads)
    left, readings = np.zeros(ranks, NS), []
    for read, waits in zip(reads, late, strict=True):
        fetched = left + read
        arrived = fetched + 100
        synced = arrived.max() + waits
        columns = [left, left, fetched, read, 0 * left, 0 * left, fetched, arrived, arrived, synced, synced, 0 * left]
        readings.append(np.stack([np.asarray(each, NS) for each in columns], axis=1))
        left = synced

    def record(rank: int) -> EpochRecord:
        plan = PlannedSteps(np.ones(steps, NS), [1] * steps, [100] * steps, [], 1, False)
        account = StepAccount(plan, rank, EpochSeries(), [], lambda since: np.empty((0, 2), NS))
        account.start(0)
        for number, rows in enumerate(readings):
            ROW.pack_into(account.rows, number * ROW.size, *rows[rank].tolist())
        account.work_out(steps)
        return account.make_record(0, 1, 1, False)

    summary = on_ranks(summarise, [record(rank) for rank in range(ranks)])[0]
    assert summary is not None
    return summary


def test_a_rank_that_left_the_first_sync_late_is_busier_than_storage_alone_allows() -> None:
    found = epoch_of([[0, 0], [50, 0], *[[50, 50]] * 8], [[0, 40], *[[0, 0]] * 9])
    # Nine steps of 100 + 50, but the second rank's own clock has only 110 for its first one after the sync.
    assert (found.utilization_min, found.utilization_max) == pytest.approx((900 / 1350, 900 / 1310))
    assert found.storage_utilization == pytest.approx(900 / 1350, rel=0.01)


@settings(max_examples=examples(100))
@given(st.data(), st.integers(1, 4), st.integers(2, 8))
def test_the_rank_that_is_busy_least_is_no_busier_than_with_storage_alone(
    data: st.DataObject, ranks: int, steps: int
) -> None:
    def table(most: int) -> list[list[int]]:
        row = st.lists(st.integers(0, most), min_size=ranks, max_size=ranks)
        return data.draw(st.lists(row, min_size=steps, max_size=steps))

    found = epoch_of(table(300), table(100))
    assert found.utilization_min is not None and found.storage_utilization is not None
    assert found.utilization_min <= found.storage_utilization * (1 + 1e-9)
