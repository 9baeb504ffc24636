"""Unions, overlaps and amounts in bins, against sets of points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.analyze.arrays import Intervals, merge_intervals, spread_amounts

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def merged(some: list[tuple[int, int]]) -> Intervals:
    begin = np.array([one[0] for one in some], np.int64)
    return merge_intervals(begin, begin + np.array([one[1] for one in some], np.int64))


def points(some: list[tuple[int, int]]) -> set[int]:
    return {point for begin, length in some for point in range(begin, begin + length)}


@given(pairs)
def test_a_union_has_each_point_once_in_order_and_without_touching(some: list[tuple[int, int]]) -> None:
    found = merged(some)
    assert {point for a, b in zip(found.begin, found.end, strict=True) for point in range(a, b)} == points(some)
    assert found.length == len(points(some))
    assert (found.begin[1:] > found.end[:-1]).all()


@given(pairs, pairs)
def test_an_overlap_has_the_points_of_both(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert merged(one).intersect(merged(other)).length == len(points(one) & points(other))


@given(pairs, st.lists(st.integers(-2, 60), max_size=8))
def test_times_are_inside_where_a_point_is(some: list[tuple[int, int]], times: list[int]) -> None:
    assert merged(some).contains(np.array(times, np.int64)).tolist() == [one in points(some) for one in times]


amounts = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 99), st.integers(0, 2)), max_size=8)


@given(amounts, st.integers(1, 7))
def test_amounts_are_spread_evenly_over_their_time(some: list[tuple[int, int, int, int]], bins: int) -> None:
    """The bytes of each bin are those of the part of the interval in it."""
    length = 60
    begin, lasting, amount, row = (np.array([one[at] for one in some], np.int64) for at in range(4))
    found = spread_amounts(begin, begin + lasting, amount, row, (3, bins), length)
    expected = np.zeros((3, bins))
    for first, long, much, which in some:
        if not long:
            expected[which, min(first * bins // length, bins - 1)] += much
        for at in range(bins):
            low, high = max(first, at * length / bins), min(first + long, (at + 1) * length / bins)
            if long and high > low:
                expected[which, at] += much * (high - low) / long
    assert found == pytest.approx(expected, abs=1e-6)
    assert not found[expected == 0].any()  # not even by rounding
