"""Means of what is drawn, and shares of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.model import Distribution
from dliosim.model.counter_rng import draw, key
from tests.examples import examples


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("normal", (5.0, 1.0)),
        ("normal", (1.0, 8.0)),
        ("normal", (0.0, 3.0)),
        ("normal", (2.0, 0.0)),
        ("uniform", (1.0, 4.0)),
        ("gamma", (3.0, 2.0)),
        ("exponential", (3.0,)),
    ],
)
def test_the_mean_from_zero_is_that_of_draws_cut_off_at_0(kind: str, parameters: tuple[float, ...]) -> None:
    distribution = Distribution(kind, parameters)  # type: ignore[arg-type]
    drawn = np.maximum(draw(distribution, key(0, "size", "d"), np.arange(200_000)), 0).mean()
    assert distribution.nonnegative_mean() == pytest.approx(drawn, rel=0.02)


SPREADS = st.floats(0.05, 6)
KINDS = st.one_of(
    st.tuples(st.sampled_from(["normal", "lognormal", "gamma"]), st.tuples(st.just(1.0), SPREADS)),
    st.tuples(st.just("uniform"), st.tuples(st.floats(-1, 0.9), st.floats(1, 2))),
    st.tuples(st.just("exponential"), st.tuples(SPREADS)),
    st.tuples(st.just("poisson"), st.tuples(st.floats(0.2, 30))),
)


@settings(max_examples=examples(60))
@given(KINDS, st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_shares_that_limits_move_are_those_of_draws(
    drawn: tuple[str, tuple[float, ...]], one: float, other: float
) -> None:
    free = Distribution(*drawn)  # type: ignore[arg-type]
    values = draw(free, key(0, "size", "d"), np.arange(40_000))
    low, high = np.quantile(values, sorted([one, other])).tolist()
    below, above = replace(free, low=low, high=high).shares_clamped()
    assert below == pytest.approx((values < low).mean(), abs=0.025)
    assert above == pytest.approx((values > high).mean(), abs=0.025)


@given(
    st.sampled_from(["normal", "lognormal", "gamma", "uniform", "exponential", "poisson", "constant"]),
    st.floats(0, 1e18),
    st.floats(0, 1e18),
    st.floats(-1e18, 1e18),
)
def test_a_share_is_found_of_the_strangest_parameters(kind: str, first: float, second: float, limit: float) -> None:
    parameters = {"uniform": tuple(sorted([first, second])), "normal": (first, second)}
    usual = (first,) if kind in ("exponential", "poisson", "constant") else (first, second)
    share = Distribution(kind, parameters.get(kind, usual)).share_below(limit)  # type: ignore[arg-type]
    assert np.isnan(share) or -1e-9 <= share <= 1 + 0.02  # of gamma to about 0.01


def test_a_spread_next_to_nothing_changes_no_mean() -> None:
    assert Distribution("normal", (1e18, 1e-300)).nonnegative_mean() == 1e18
