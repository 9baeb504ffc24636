"""Times that are drawn for samples: the sum of each step, and no matter which rank has a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dliosim.execute.batches.decode_preprocess import sample_times
from dliosim.model import Dataset, Distribution, Job, Loop
from dliosim.plan.forecast.layout_forecast import place_samples
from dliosim.plan.samples.sampler import plan_epoch
from tests.strategies import datasets, loops, rank_counts

TIME = Distribution("gamma", (0.002, 0.001))


def times_of_ranks(loop: Loop, dataset: Dataset, ranks: int) -> list[np.ndarray]:
    places = place_samples(dataset).places
    plans = [plan_epoch(loop, places, Job(ranks), rank, 0) for rank in range(ranks)]
    return [sample_times(TIME, 7, plan) for plan in plans]


@given(datasets(), loops, rank_counts)
def test_all_samples_take_the_same_time_however_many_ranks_share_them(dataset: Dataset, loop: Loop, ranks: int) -> None:
    loop = replace(loop, shard="by sample", last_batch="keep", steps=None)
    one, several = (sum(int(times.sum()) for times in times_of_ranks(loop, dataset, many)) for many in (1, ranks))
    assert one == several > 0


@given(datasets(), loops, st.integers(1, 5))
def test_a_step_takes_the_time_of_its_samples_and_an_empty_one_none(dataset: Dataset, loop: Loop, ranks: int) -> None:
    plan = plan_epoch(loop, place_samples(dataset).places, Job(ranks), 0, 0)
    constant = sample_times(Distribution("constant", (0.003,)), 7, plan)
    assert (constant == 3_000_000 * np.diff(plan.step_start)).all()
