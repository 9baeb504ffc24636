"""The tail of latencies from their mean and median."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.calibration import Calibration, fit_tail
from dliosim.measure.results.run_summary import Spread

NARROW, WIDE = Spread(100.0, 90.0, 110.0), Spread(100.0, 60.0, 110.0)


@given(st.floats(1.1, 9.5))
def test_the_exponent_is_that_of_the_distribution_with_this_mean_and_median(power: float) -> None:
    mean, median = power / (power - 1), 2 ** (1 / power)
    assert fit_tail(mean / median) == pytest.approx(power, rel=1e-6)


@pytest.mark.parametrize(("ratio", "power"), [(0.99, 10.0), (1.0, 10.0), (1e6, 1.05)])
def test_ratios_beyond_all_exponents_have_the_nearest_one(ratio: float, power: float) -> None:
    assert fit_tail(ratio) == pytest.approx(power)


def test_wide_intervals_are_unreliable_unless_they_hardly_matter() -> None:
    heavy, light = Spread(2.0, 1.2, 2.8), Spread(8.0, 5.0, 10.0)
    assert Calibration(NARROW, light, NARROW, NARROW, WIDE, None, True, False, ()).unreliable == []
    assert Calibration(WIDE, heavy, NARROW, WIDE, WIDE, WIDE, True, True, ()).unreliable == [
        "servers", "latency", "tail", "metadata", "writes",
    ]  # fmt: skip
