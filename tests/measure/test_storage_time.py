"""Storage's part of the waits of steps, on literal arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dliosim.measure.rank.storage_time import align_syncs, limit_steps, split_waits

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
