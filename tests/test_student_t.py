"""Student's t, against tables."""

from __future__ import annotations

import math

import pytest

from dliosim.measure.answers.intervals import central_probability, critical_value, two_sided_probability


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [
        # Any table of the distribution.
        (0.05, 1, 12.706),
        (0.05, 2, 4.303),
        (0.05, 4, 2.776),
        (0.05, 7, 2.365),
        (0.01, 7, 3.499),
        (0.001, 30, 3.646),
        (0.4, 7, 0.896),
    ],
)
def test_critical_values_are_those_of_tables(level: float, freedom: int, expected: float) -> None:
    assert critical_value(level, freedom) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 51, 400])
def test_a_critical_value_is_exceeded_with_its_probability(freedom: int) -> None:
    for level in (0.5, 0.05, 1e-6):
        assert two_sided_probability(critical_value(level, freedom), freedom) == pytest.approx(level, rel=1e-6)


def test_one_degree_of_freedom_is_the_cauchy_distribution() -> None:
    for t in (0.0, 0.3, 1.0, 20.0):
        assert central_probability(t, 1) == pytest.approx(2 / math.pi * math.atan(t))


def test_the_sign_does_not_matter_and_nothing_is_within_zero() -> None:
    assert two_sided_probability(-2.5, 9) == two_sided_probability(2.5, 9)
    assert central_probability(0.0, 6) == 0.0
