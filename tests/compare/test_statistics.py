"""Differences that the statistics find, in rows whose truth is known."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from dliosim.compare.statistics import DEALS, FEWEST, LEVEL, compare_variants, judge_pairs, permute_blocks
from tests.compare.synthetic import KINDS, equal, passes

#: Comparisons drawn: of two variants all deals are gone through, which is quick.
SEEDS = {2: 1000, 4: 300, 5: 300}

#: Noise of the ratio of two passes of 5 %.
PAIRED = 0.05 / 2**0.5


def share_different(tables: Iterable[NDArray[np.float64]]) -> float:
    """The share of comparisons of equal variants in which any is called different."""
    return float(
        np.mean([any(one.verdict != "no difference shown" for one in compare_variants(each)) for each in tables])
    )


def found(slower: tuple[float, ...], **rows: float) -> float:
    """The share of comparisons in which the second variant is called slower."""
    seeds = range(SEEDS[len(slower)])
    return float(np.mean([compare_variants(passes(seed, slower, **rows))[0].verdict == "slower" for seed in seeds]))


@pytest.mark.parametrize("kind", KINDS)
def test_two_equal_variants_are_rarely_called_different_whatever_the_noise(kind: str) -> None:
    assert share_different(equal(kind, np.random.default_rng(2), SEEDS[2], 2)) <= 0.06


@pytest.mark.parametrize("kind", ["drift", "two-moded 0.2", "two-moded 0.7"])
def test_nor_are_five(kind: str) -> None:
    assert share_different(equal(kind, np.random.default_rng(5), SEEDS[5], 5)) <= 0.06


def test_nor_where_one_is_much_noisier_than_the_others_and_outliers_are_frequent() -> None:
    noisy = (passes(seed, (1.0,) * 4, noise=(0.05, 0.15, 0.05, 0.02), outliers=0.05) for seed in range(SEEDS[4]))
    assert share_different(noisy) <= 0.06


def test_what_equals_the_first_is_rarely_called_different_next_to_others_that_do_differ() -> None:
    rows = (passes(seed, (1.0, 1.0, 2.0, 30.0), noise=(0.05, 0.15, 0.05, 0.02)) for seed in range(SEEDS[4]))
    assert float(np.mean([compare_variants(each)[0].verdict != "no difference shown" for each in rows])) <= 0.06


@pytest.mark.parametrize("others", [(), (1.0, 1.0), (1.0, 1.3, 30.0)])
def test_ten_per_cent_at_five_per_cent_noise_is_found_in_eight_of_ten(others: tuple[float, ...]) -> None:
    assert found((1.0, 1.1, *others), noise=PAIRED) >= 0.8


def test_and_at_five_per_cent_noise_of_each_single_pass_where_nothing_is_far_off() -> None:
    assert found((1.0, 1.1), outliers=0.0) >= 0.8


@pytest.mark.parametrize("blocks", [6, 8, 9])
@pytest.mark.parametrize("times", [1.1, 3.0])
def test_an_interval_holds_the_truth_in_95_of_100_few_blocks_or_many_small_difference_or_large(
    blocks: int, times: float
) -> None:
    rows = (compare_variants(passes(seed, (1.0, times), blocks=blocks, outliers=0.0))[0] for seed in range(500))
    assert 0.92 <= np.mean([(one.low or 0) <= 1 / times <= (one.high or 0) for one in rows]) <= 0.99


def test_two_variants_are_dealt_in_every_way_and_more_by_chance() -> None:
    table = np.arange(12.0).reshape(6, 2)
    (every,) = permute_blocks(table)
    assert every.shape == (2, 6, 32) and (np.sort(every, axis=0) == table.T[:, :, None]).all()
    signs = np.sign(every[1] - every[0]) * np.sign(every[1, 0] - every[0, 0])
    assert len(np.unique(signs, axis=1).T) == 32
    more = np.concatenate(list(permute_blocks(np.arange(24.0).reshape(8, 3))), axis=2)
    assert more.shape == (3, 8, DEALS) and (np.sort(more, axis=0)[:, 0, :] == [[0.0], [1.0], [2.0]]).all()
    assert (more[:, :, 0] == np.arange(24.0).reshape(8, 3).T).all()


def test_p_of_two_variants_is_the_share_of_deals_with_as_large_a_difference() -> None:
    logs = np.array(
        [[0.0, 0.3], [0.0, 0.4], [0.0, 0.5], [0.0, 0.35], [0.0, 0.45], [0.0, 0.38], [0.0, 0.42], [0.0, 0.4]]
    )
    assert judge_pairs(logs, [(0, 1)])[0].p == 1 / 128
    logs[0, 1] = -0.3  # this deal, and the one with this block the other way, have the same distance
    assert judge_pairs(logs, [(0, 1)])[0].p == pytest.approx(2 / 128)


def test_drift_does_not_widen_an_interval() -> None:
    steady, drifting = (compare_variants(passes(3, (1.0, 1.2), drift=drift, outliers=0.0))[0] for drift in (0.0, 3.0))
    assert drifting.smallest is not None and steady.smallest is not None
    assert drifting.smallest - 1 < 2 * (steady.smallest - 1)


def test_the_smallest_difference_is_found_about_as_often_as_is_said() -> None:
    smallest = [
        compare_variants(passes(seed, (1.0, 1.0), drift=0.0, outliers=0.0))[0].smallest or 0.0 for seed in range(200)
    ]
    typical = float(np.median(smallest))
    assert 0.7 <= found((1.0, typical), drift=0.0, outliers=0.0) <= 0.9


def test_an_interval_holds_one_exactly_where_no_difference_is_shown() -> None:
    for seed in range(100):
        for one in compare_variants(passes(seed, (1.0, 1.03, 1.08, 1.2))):
            assert one.low is not None and one.high is not None and one.p_adjusted is not None
            assert one.low <= one.ratio <= one.high
            assert (one.low <= 1 <= one.high) == (one.verdict == "no difference shown") == (one.p_adjusted > LEVEL)


def test_below_six_repetitions_there_are_ratios_and_no_verdict() -> None:
    few = compare_variants(passes(0, (1.0, 3.0), blocks=FEWEST - 1))[0]
    assert few.verdict == "not judged" and few.ratio == pytest.approx(1 / 3, rel=0.2)
    assert few.low is few.high is few.p_adjusted is few.smallest is None
    assert compare_variants(passes(0, (1.0, 3.0), blocks=FEWEST))[0].verdict == "slower"


def test_one_repetition_is_a_ratio_too() -> None:
    assert compare_variants(np.array([[2.0, 1.0]]))[0].ratio == pytest.approx(2.0)


def test_times_that_are_all_the_same_differ_in_nothing() -> None:
    one = compare_variants(np.full((6, 2), 1.5))[0]
    assert (one.ratio, one.p_adjusted, one.verdict) == (1.0, 1.0, "no difference shown")


def test_what_differs_is_set_aside_and_the_others_judged_by_a_lower_bar() -> None:
    far, near, same = judge_pairs(np.log(passes(0, (1.0, 3.0, 1.1, 1.0), outliers=0.0)), [(0, 1), (0, 2), (0, 3)])
    assert far.critical >= near.critical >= same.critical and far.p <= near.p <= same.p
    assert far.p <= LEVEL < same.p
