"""What the statistics call different, on rows of which the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from dliosim.compare.statistics import FEWEST, LEVEL, capped, compare, holm
from tests.compare.synthetic import passes

SEEDS = 1000

#: Noise of the ratio of two passes of 5 %.
PAIRED = 0.05 / 2**0.5


def false_alarms(variants: int, **rows: float | tuple[float, ...]) -> float:
    """The share of comparisons of equal variants in which any is called different."""
    found = (compare(passes(seed, (1.0,) * variants, **rows))[0] for seed in range(SEEDS))  # type: ignore[arg-type]
    return sum(any(one.verdict != "no difference shown" for one in each) for each in found) / SEEDS


def found(slower: tuple[float, ...], **rows: float) -> float:
    """The share of comparisons in which the second variant is called slower."""
    return sum(compare(passes(seed, slower, **rows))[0][0].verdict == "slower" for seed in range(SEEDS)) / SEEDS


@pytest.mark.parametrize("variants", [2, 5])
def test_equal_variants_are_rarely_called_different_under_drift_and_outliers(variants: int) -> None:
    assert false_alarms(variants) <= 0.06


def test_nor_where_one_is_much_noisier_than_the_others_and_outliers_are_frequent() -> None:
    assert false_alarms(4, noise=(0.05, 0.15, 0.05, 0.02), outliers=0.05) <= 0.06


@pytest.mark.parametrize("others", [(), (1.0, 1.0)])
def test_ten_per_cent_at_five_per_cent_noise_is_found_in_eight_of_ten(others: tuple[float, ...]) -> None:
    assert found((1.0, 1.1, *others), noise=PAIRED) >= 0.8


def test_and_at_five_per_cent_noise_of_each_single_pass_where_nothing_is_far_off() -> None:
    assert found((1.0, 1.1), outliers=0.0) >= 0.8


def test_drift_does_not_widen_an_interval() -> None:
    steady, drifting = (compare(passes(3, (1.0, 1.2), drift=drift, outliers=0.0))[0][0] for drift in (0.0, 3.0))
    assert drifting.smallest is not None and steady.smallest is not None
    assert drifting.smallest - 1 < 2 * (steady.smallest - 1)


def test_a_pass_that_took_ten_times_as_long_is_drawn_in_and_told() -> None:
    rows = passes(7, (1.0, 1.2, 1.0), outliers=0.0)
    rows[4, 1] *= 10
    logs, drawn = capped(np.log(rows))
    assert drawn.sum() == 1 and drawn[4, 1]
    assert logs[4, 1] < np.log(rows[4, 1]) and (logs == np.log(rows)).sum() >= rows.size - 1
    assert compare(rows)[0][0].verdict == "slower"


def test_rounding_is_no_pass_far_off() -> None:
    assert not capped(np.log(np.outer(np.arange(1.0, 9.0), [1.0, 1.3, 2.7])))[1].any()


def test_the_smallest_difference_is_found_about_as_often_as_is_said() -> None:
    smallest = [compare(passes(seed, (1.0, 1.0), drift=0.0, outliers=0.0))[0][0].smallest or 0.0 for seed in range(200)]
    typical = float(np.median(smallest))
    assert 0.7 <= found((1.0, typical), drift=0.0, outliers=0.0) <= 0.9


def test_an_interval_holds_one_exactly_where_no_difference_is_shown() -> None:
    for seed in range(100):
        for one in compare(passes(seed, (1.0, 1.03, 1.08, 1.2)))[0]:
            assert one.low is not None and one.high is not None and one.p_adjusted is not None
            assert one.low <= one.ratio <= one.high
            assert (one.low <= 1 <= one.high) == (one.verdict == "no difference shown") == (one.p_adjusted > LEVEL)


def test_below_five_repetitions_there_are_ratios_and_no_verdict() -> None:
    few = compare(passes(0, (1.0, 3.0), blocks=FEWEST - 1))[0][0]
    assert few.verdict == "not judged" and few.ratio == pytest.approx(1 / 3, rel=0.2)
    assert few.low is few.high is few.p_adjusted is few.smallest is None
    assert compare(passes(0, (1.0, 3.0), blocks=FEWEST))[0][0].verdict == "slower"


def test_one_repetition_is_a_ratio_too() -> None:
    assert compare(np.array([[2.0, 1.0]]))[0][0].ratio == pytest.approx(2.0)


def test_times_that_are_all_the_same_differ_in_nothing() -> None:
    one = compare(np.full((6, 2), 1.5))[0][0]
    assert (one.ratio, one.p_adjusted, one.verdict) == (1.0, 1.0, "no difference shown")


def test_holm_corrects_step_by_step() -> None:
    # Holm 1979: the smallest is multiplied by their number, and none is less than one before it.
    adjusted, levels = holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert levels == pytest.approx([0.05 / 3, 0.025, 0.025, 0.0125])
