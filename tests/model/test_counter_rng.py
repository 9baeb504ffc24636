"""Streams: stateless, unrelated for different purposes, and distributed as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import PlanError
from dliosim.model import Distribution, constant
from dliosim.model.counter_rng import CHUNK, draw, key, random_words, uniforms

MANY = np.arange(200_000)

MOMENTS = [
    (Distribution("normal", (100.0, 15.0)), 100.0, 15.0),
    (Distribution("lognormal", (100.0, 60.0)), 100.0, 60.0),
    (Distribution("uniform", (10.0, 70.0)), 40.0, 60 / math.sqrt(12)),
    (Distribution("exponential", (5.0,)), 5.0, 5.0),
    (Distribution("gamma", (100.0, 40.0)), 100.0, 40.0),
    (Distribution("gamma", (100.0, 180.0)), 100.0, 180.0),
    (Distribution("gamma", (1e6, 0.001)), 1e6, 0.001),  # of a shape at which rejecting draws is lost to rounding
    (Distribution("poisson", (0.3,)), 0.3, math.sqrt(0.3)),
    (Distribution("poisson", (42.0,)), 42.0, math.sqrt(42)),
    (Distribution("poisson", (1e8,)), 1e8, 1e4),
]


def normal_below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


SIGMA = math.sqrt(math.log1p(0.36))
BELOW = [
    (Distribution("normal", (100.0, 15.0)), lambda x: normal_below((x - 100) / 15)),
    (
        Distribution("lognormal", (100.0, 60.0)),
        lambda x: normal_below((math.log(x) - math.log(100) + SIGMA**2 / 2) / SIGMA),
    ),
    (Distribution("uniform", (10.0, 70.0)), lambda x: (x - 10) / 60),
    (Distribution("exponential", (5.0,)), lambda x: 1 - math.exp(-x / 5)),
    # Shape 2: 1 - (1 + x) exp(-x) of x / scale.
    (Distribution("gamma", (math.sqrt(2), 1.0)), lambda x: 1 - (1 + x * math.sqrt(2)) * math.exp(-x * math.sqrt(2))),
    # Shape 1/2 is half the square of a normal.
    (Distribution("gamma", (0.5, math.sqrt(0.5))), lambda x: math.erf(math.sqrt(x))),
]


@pytest.mark.parametrize(("distribution", "mean", "stdev"), MOMENTS, ids=str)
def test_mean_and_deviation_are_those_of_the_value(distribution, mean, stdev):
    values = draw(distribution, key(3, "moments"), MANY)
    assert values.mean() == pytest.approx(mean, abs=5 * stdev / math.sqrt(len(MANY)))
    assert values.std() == pytest.approx(stdev, rel=0.03)


@pytest.mark.parametrize(("distribution", "below"), BELOW, ids=lambda value: getattr(value, "kind", ""))
def test_draws_follow_the_distribution(distribution, below):
    values = np.sort(draw(distribution, key(5, "shape"), MANY))
    expected = np.array([below(x) for x in values[::100].tolist()])
    found = np.arange(len(values))[::100] / len(values)
    assert np.abs(expected - found).max() < 1.95 / math.sqrt(len(values)) + 1 / len(values)  # Kolmogorov-Smirnov, 0.1 %


def test_poisson_has_its_probabilities():
    values = draw(Distribution("poisson", (3.0,)), key(1), MANY).astype(int)
    counts = np.bincount(values, minlength=12)[:12]
    expected = np.array([math.exp(-3) * 3**k / math.factorial(k) for k in range(12)]) * len(MANY)
    assert ((counts - expected) ** 2 / expected).sum() < 33  # chi-square, 11 degrees of freedom, 0.05 %


def test_poisson_of_a_mean_too_large_is_refused():
    with pytest.raises(PlanError, match="at most"):
        draw(Distribution("poisson", (2e9,)), 1, MANY[:1])


def test_clipping_clamps():
    values = draw(Distribution("normal", (0.0, 10.0), low=-5.0, high=5.0), key(2), MANY)
    assert values.min() == -5
    assert values.max() == 5
    assert 0.25 < (values == 5).mean() < 0.35


def test_a_constant_does_not_vary():
    assert (draw(constant(7), 1, MANY[:10]) == 7).all()


@pytest.mark.parametrize("kind", ["normal", "lognormal", "gamma"])
def test_no_deviation_is_a_constant(kind):
    assert np.allclose(draw(Distribution(kind, (7.0, 0.0)), 1, MANY[:100]), 7)


@given(st.integers(0, 2**63), st.integers(0, 2**40), st.sampled_from([row[0] for row in MOMENTS[:8]]))
def test_a_draw_depends_on_its_counter_only(seed, first, distribution):
    counters = first + np.arange(50)
    together = draw(distribution, key(seed), counters)
    assert together[17] == draw(distribution, key(seed), counters[17:18])[0]
    assert (together[::-1] == draw(distribution, key(seed), counters[::-1])).all()


def test_pieces_join_seamlessly():
    counters = np.arange(3 * CHUNK + 5)
    whole = random_words(9, counters)
    assert (whole[CHUNK - 3 : CHUNK + 3] == random_words(9, counters[CHUNK - 3 : CHUNK + 3])).all()


def test_uniforms_are_inside_the_interval_and_are_even():
    values = uniforms(key(4), MANY)
    assert 0 < values.min() < values.max() < 1
    counts = np.bincount((values * 100).astype(int), minlength=100)
    assert ((counts - 2000) ** 2 / 2000).sum() < 160  # chi-square, 99 degrees of freedom, 0.01 %


def test_every_bit_of_a_word_is_even_and_changes_with_the_counter():
    words = random_words(key(6), MANY)
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.006
    flips = bits[1:] != bits[:-1]
    assert np.abs(flips.mean(axis=0) - 0.5).max() < 0.006


def test_keys_give_unrelated_streams():
    values = [uniforms(key(1, purpose, i), MANY) for purpose in ("a", "b") for i in (0, 1)]
    matrix = np.corrcoef([*values, uniforms(key(1, "a", 0) + 1, MANY), np.roll(values[0], 1)])
    assert np.abs(matrix - np.eye(6)).max() < 0.012


def test_purposes_are_distinguished():
    keys = {key(1), key(2), key(1, "a"), key(1, "a", "b"), key(1, "ab"), key(1, 1), key(1, "1"), key(11), key(1, 1, 1)}
    assert len(keys) == 9
    assert all(0 <= value < 2**64 for value in keys)
