"""Permutations without a table, and the shuffle buffer of tf.data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model.counter_rng import key, random_words
from dliosim.plan.samples.sample_to_file import TABLE_LIMIT, Permutation, shuffle_buffer_order


@pytest.mark.parametrize("n", [1, 2, 3, 100, TABLE_LIMIT, TABLE_LIMIT + 1, 5041, 10_007, 65_536, 300_001])
def test_every_value_comes_once(n):
    assert (np.sort(Permutation(n, 5)(np.arange(n))) == np.arange(n)).all()


@given(st.integers(TABLE_LIMIT + 1, 2**60), st.integers(0, 2**64 - 1))
def test_values_stay_in_range_and_distinct(n, seed):
    positions = np.unique(np.linspace(0, n - 1, 500).astype(np.int64).clip(0, n - 1))
    images = Permutation(n, seed)(positions)
    assert images.min() >= 0
    assert images.max() < n
    assert len(np.unique(images)) == len(positions)


@given(st.integers(1, 10**6), st.integers(0, 1000), st.integers(1, 300))
def test_a_value_does_not_depend_on_what_else_is_asked(n, seed, step):
    positions = np.arange(0, n, step)
    order = Permutation(n, seed)
    assert order(positions[-1:])[0] == order(positions)[-1]


@pytest.mark.parametrize("n", [4000, 5000, 1_000_003])
def test_images_show_no_pattern(n):
    positions = np.arange(min(n, 100_000))
    images = Permutation(n, 77)(positions)
    scale = 1 / math.sqrt(len(positions))
    assert abs(np.corrcoef(positions, images)[0, 1]) < 4 * scale
    assert abs(np.corrcoef(images[1:], images[:-1])[0, 1]) < 4 * scale
    steps = np.bincount((np.diff(images) % n) * 20 // n, minlength=20)
    expected = steps.sum() / 20
    assert ((steps - expected) ** 2 / expected).sum() < 50  # chi-square, 19 degrees of freedom, 0.01 %


def test_all_orders_of_a_few_are_equally_likely():
    counts: dict[bytes, int] = {}
    for seed in range(12_000):
        order = Permutation(4, key(seed))(np.arange(4)).tobytes()
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 60  # 23 degrees of freedom, 0.01 %


@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 10**6), st.data())
def test_a_buffer_lets_every_input_out_once(n, buffer, seed, data):
    whole = shuffle_buffer_order(n, buffer, seed, n)
    assert sorted(whole) == list(range(n))
    outputs = data.draw(st.integers(0, n))
    assert (shuffle_buffer_order(n, buffer, seed, outputs) == whole[:outputs]).all()


@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 10**6))
def test_an_input_leaves_no_earlier_than_the_buffer_allows(n, buffer, seed):
    assert (shuffle_buffer_order(n, buffer, seed, n) < np.arange(n) + buffer).all()


def test_a_buffer_of_one_keeps_the_order():
    assert (shuffle_buffer_order(50, 1, 3, 50) == np.arange(50)).all()


def test_the_buffer_is_the_one_slot_at_a_time_of_tf_data():
    """The vectorised chains against the loop that they stand for, with the same picks."""
    n, buffer, seed = 500, 37, 11
    picks = ((random_words(seed, np.arange(n - buffer)) >> np.uint64(32)) * np.uint64(buffer)) >> np.uint64(32)
    slots = list(range(buffer))
    expected = []
    for i, pick in enumerate(picks.tolist()):
        expected.append(slots[pick])
        slots[pick] = buffer + i
    found = shuffle_buffer_order(n, buffer, seed, n)
    assert found[: n - buffer].tolist() == expected
    assert sorted(found[n - buffer :]) == sorted(slots)


def test_an_input_waits_as_long_as_a_slot_is_missed():
    """An input stays for a geometric number of outputs with the buffer's size as its mean."""
    n, buffer = 200_000, 100
    found = shuffle_buffer_order(n, buffer, 5, n - buffer)
    waited = np.arange(len(found)) - (found - buffer)
    middle = waited[(found >= buffer) & (found < n - 5000)]
    assert middle.mean() == pytest.approx(buffer, rel=0.02)
    assert (middle > 3 * buffer).mean() == pytest.approx((1 - 1 / buffer) ** (3 * buffer), rel=0.05)
