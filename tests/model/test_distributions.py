"""Means of what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from dliosim.model import Distribution
from dliosim.plan.streams import draw, key


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
    assert distribution.mean_from_zero() == pytest.approx(drawn, rel=0.02)


def test_a_spread_next_to_nothing_changes_no_mean() -> None:
    assert Distribution("normal", (1e18, 1e-300)).mean_from_zero() == 1e18
