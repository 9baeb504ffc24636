"""The tail of latencies from their mean and median."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.calibration import fit_tail


@given(st.floats(1.1, 9.5))
def test_the_exponent_is_that_of_the_distribution_with_this_mean_and_median(power: float) -> None:
    mean, median = power / (power - 1), 2 ** (1 / power)
    assert fit_tail(mean / median) == pytest.approx(power, rel=1e-6)


@pytest.mark.parametrize(("ratio", "power"), [(0.99, 10.0), (1.0, 10.0), (1e6, 1.05)])
def test_ratios_beyond_all_exponents_have_the_nearest_one(ratio: float, power: float) -> None:
    assert fit_tail(ratio) == pytest.approx(power)
