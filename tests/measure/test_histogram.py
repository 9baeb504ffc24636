import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.rank.histogram import LIMIT_NS, RELATIVE_ERROR, Histogram, merge_histograms
from tests.measure.ranks import on_ranks

latencies = st.lists(st.integers(0, LIMIT_NS - 1) | st.integers(0, 300), min_size=1, max_size=200)
any_latencies = st.lists(st.integers(0, 2 * LIMIT_NS), max_size=50)


def facts(histogram):
    return histogram.pack_sums().tolist(), histogram.pack_maxima().tolist()


@given(latencies, st.floats(0, 1))
def test_a_quantile_is_within_the_stated_error_of_the_exact_one(values, share):
    exact = np.quantile(values, share, method="inverted_cdf")
    assert math.isclose(Histogram(values).quantile(share), exact, rel_tol=RELATIVE_ERROR, abs_tol=0)


@given(st.lists(st.integers(0, 64), min_size=1), st.floats(0, 1))
def test_short_latencies_are_exact(values, share):
    assert Histogram(values).quantile(share) == np.quantile(values, share, method="inverted_cdf")


@given(latencies)
def test_quantiles_rise_up_to_the_exact_maximum(values):
    found = Histogram(values).quantiles()
    assert 0 <= found.p50 <= found.p90 <= found.p99 <= found.p999 <= found.max == max(values) * 1e-9


@given(any_latencies, any_latencies)
def test_merging_is_counting_both(first, second):
    assert facts(merge_histograms([Histogram(first), Histogram(second)])) == facts(Histogram(first + second))


@given(any_latencies, any_latencies)
def test_adding_in_batches_is_adding_at_once(first, second):
    histogram = Histogram(first)
    histogram.add(np.array(second, np.int64))
    assert facts(histogram) == facts(Histogram(first + second))


def reduce(values, reducer):
    sums = reducer.reduce(Histogram(values).pack_sums(), "sum")
    maxima = reducer.reduce(Histogram(values).pack_maxima(), "max")
    return None if sums is None else Histogram.unpack_histogram(sums, maxima)


@pytest.mark.parametrize("of_ranks", [[[5]], [[1, 2], []], [[], [], []], [[0, 10**9], [7], [], [LIMIT_NS * 3]]])
def test_reducing_over_ranks_is_counting_all_at_the_root_only(of_ranks):
    whole, *others = on_ranks(reduce, of_ranks)
    assert facts(whole) == facts(Histogram([value for values in of_ranks for value in values]))
    assert others == [None] * (len(of_ranks) - 1)


def test_number_sum_minimum_and_maximum_are_exact():
    histogram = Histogram([3, 999_999_937, 123_456_789_123])
    assert (histogram.count, histogram.sum_ns) == (3, 3 + 999_999_937 + 123_456_789_123)
    assert (histogram.min_ns, histogram.max_ns) == (3, 123_456_789_123)


def test_a_quantile_longer_than_the_buckets_reach_is_infinite_and_the_maximum_still_exact():
    found = Histogram([1_000, 5 * LIMIT_NS]).quantiles()
    assert found.p50 == pytest.approx(1e-6, rel=RELATIVE_ERROR)
    assert (found.p99, found.max) == (math.inf, 5 * LIMIT_NS * 1e-9)


def test_the_buckets_reach_beyond_an_hour():
    assert Histogram([int(3600e9)] * 2).quantile(0.5) == 3600e9


def test_nothing_counted_has_no_quantiles_and_no_buckets():
    empty = Histogram()
    assert empty.quantiles() is None
    assert math.isnan(empty.quantile(0.5))
    assert not len(empty.nonempty_buckets())


def test_a_negative_latency_is_refused():
    with pytest.raises(ValueError, match="backwards"):
        Histogram([5, -1])


def test_taking_batches_leaves_the_caller_s_array_alone():
    values = np.array([1, 2, 3], np.int64)
    values.setflags(write=False)
    Histogram(values)
