"""Hashes add up over steps and ranks, and notice whatever differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Access, Dataset, Job, Layout, Loop, Shuffle, constant
from dliosim.plan.samples.sampler import extent_hash, order_hash, plan_epoch
from tests.plan.helpers import placed, plans
from tests.strategies import datasets, loops

DATASET = Dataset("d", 1, 100, constant(10), Layout("shared file", 1), "d")
LOOP = Loop("train", "l", "d", Access(), batch=4, shuffle=Shuffle("globally"))


@given(datasets(), loops, st.data())
def test_hashes_add_over_steps(dataset, loop, data):
    extents = plan_epoch(loop, placed(dataset), Job(2), 1, 0)
    cut = data.draw(st.integers(0, extents.steps))
    orders = [order_hash(1, extents, *steps, 3, 5) for steps in ((0, cut), (cut, extents.steps), (0, extents.steps))]
    places = [extent_hash(extents, *steps, 5) for steps in ((0, cut), (cut, extents.steps), (0, extents.steps))]
    assert (orders[0] + orders[1]) % 2**64 == orders[2]
    assert (places[0] + places[1]) % 2**64 == places[2]


def test_equal_plans_have_equal_hashes_and_others_do_not():
    a, again = (plan_epoch(LOOP, placed(DATASET), Job(2), 0, 0) for _ in range(2))
    b = plan_epoch(LOOP, placed(DATASET), Job(2), 0, 1)
    assert order_hash(0, a, 0, a.steps) == order_hash(0, again, 0, a.steps)
    hashes = {
        order_hash(0, a, 0, a.steps),
        order_hash(1, a, 0, a.steps),
        order_hash(0, a, 0, a.steps, epoch=1),
        order_hash(0, a, 0, a.steps, salt=1),
        order_hash(0, b, 0, b.steps),
    }
    assert len(hashes) == 5
    assert all(0 <= value < 2**64 for value in hashes)


def test_lengths_are_part_of_both_hashes():
    a = plan_epoch(LOOP, placed(DATASET), Job(2), 0, 0)
    longer = replace(a, length=a.length + 1)
    assert order_hash(0, a, 0, 3) != order_hash(0, longer, 0, 3)
    assert extent_hash(a, 0, 3) != extent_hash(longer, 0, 3)


def test_samples_that_trade_steps_change_the_order_but_not_the_extents():
    a = plan_epoch(LOOP, placed(DATASET), Job(1), 0, 0)
    swap = np.arange(100)
    swap[[0, 50]] = swap[[50, 0]]
    b = replace(a, sample=a.sample[swap], offset=a.offset[swap])
    assert order_hash(0, a, 0, a.steps) != order_hash(0, b, 0, a.steps)
    assert extent_hash(a, 0, a.steps) == extent_hash(b, 0, a.steps)


@given(st.integers(1, 7), st.integers(1, 7))
def test_the_sum_of_extents_does_not_depend_on_who_reads_what(ranks, others):
    def total(count: int) -> int:
        made = plans(replace(LOOP, last_batch="keep"), DATASET, Job(count))
        return sum(extent_hash(plan, 0, plan.steps) for plan in made) % 2**64

    assert total(ranks) == total(others)
