"""Needs of storage and memory, on literal figures and on the shipped patterns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.measure.answers.answer import answer_run
from dliosim.model import (
    Access,
    Cadence,
    Checkpoint,
    Compute,
    Dataset,
    Job,
    Layout,
    Loop,
    Part,
    Save,
    Shuffle,
    Workload,
    Writers,
    constant,
)
from dliosim.model.expectation import GOAL, goals_of
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.needs import UNLIMITED, LoopNeeds, Reach, SaveNeeds, StorageRates, loop_needs, save_needs
from dliosim.plan.forecast.rank_memory import RANK_BYTES
from tests.report import sample

MB = 10**6
PATTERNS = sorted((Path(__file__).parents[3] / "patterns").glob("*.dlio"))
DATASET = Dataset("d", 1, 400, constant(MB), Layout("file per sample", 400), "d")
LOOP = Loop("train", "l", "d", Access(readers=1, prefetch=2), batch=5, epochs=3, compute=Compute(constant(0.09)))
CHECKPOINT = Checkpoint("c", 1, (Part("w", 100 * MB, "total"),), Writers("rank", 0), Access(), "c")


JOB = Job(4)


def workload(*verbs: Any, job: Job = JOB) -> Workload:
    return Workload("w", "", 1, job, (DATASET,), (CHECKPOINT,), verbs)


def needs(loop: Loop, memory: float = 1e12, job: Job = JOB, storage: StorageRates = UNLIMITED) -> LoopNeeds:
    made = workload(loop, job=job)
    return next(loop_needs(made, forecast(made), memory, storage))


def saves(*verbs: Any) -> SaveNeeds:
    made = workload(*verbs)
    return next(save_needs(made, forecast(made)))


def test_a_loop_needs_the_bytes_of_its_steps_in_their_compute_by_the_goal() -> None:
    found = needs(LOOP)
    assert found.demand is not None and found.demand.needs == pytest.approx(50 * MB)
    assert (found.epoch_bytes, found.epochs, found.estimated) == (400 * MB, 3, False)


@pytest.mark.parametrize("path", PATTERNS, ids=lambda path: path.stem)
def test_the_needs_of_a_plan_are_those_of_a_run_of_the_same_steps(path: Path) -> None:
    """A run that reads what is planned, whatever its storage gives, asks for the same rate."""
    planned = compile_pattern(path, (), Job(2))[0]
    goals = goals_of(planned.expectations)
    found = {one.loop.name: one for one in loop_needs(planned, forecast(planned), 1e12)}
    for name, one in found.items():
        demand = one.demand
        if demand is None or demand.needs is None:
            continue
        for alone in (0.3, 0.97):
            amount = round(100 * demand.step_bytes * planned.job.ranks)
            epoch = sample.epoch(
                bytes=amount,
                bytes_moved=amount,
                steady_bytes=amount,
                amplification=1.0,
                storage_amplification=1.0,
                storage_utilization=alone,
                storage_step_seconds=100 * demand.least / alone,
            )
            loop = replace(sample.run().loops[0], name=name, epochs=(epoch,), prefetch=0)
            run = replace(sample.run(), phases=(loop,))
            (answer,) = answer_run(run, [[loop]], goals, lambda override: None)
            assert answer.goal == demand.goal == goals.get(name, GOAL)
            assert answer.needs_bytes_per_second is not None
            assert answer.needs_bytes_per_second.mean == pytest.approx(demand.needs * planned.job.ranks, rel=1e-6)


@pytest.mark.parametrize(
    ("memory", "share"), [(1e12, 1.0), (100 * MB, 0.25), (0.0, 0.0)], ids=["all fits", "a quarter fits", "nothing"]
)
def test_memory_has_of_later_epochs_what_fits_next_to_the_ranks(memory: float, share: float) -> None:
    made = workload(LOOP)
    found = needs(LOOP, memory + forecast(made).node_bytes)
    assert found.data_bytes == 400 * MB and found.memory_share == pytest.approx(share)
    assert needs(LOOP, 4 * RANK_BYTES).memory_share == 0


def test_a_node_whose_ranks_read_others_samples_each_epoch_finds_few_of_them_in_memory() -> None:
    """Each of two nodes has read half of the samples before epoch 2, and three quarters before epoch 3."""
    job = Job(4, 2)
    assert needs(LOOP, job=job).memory_share == 1 and needs(LOOP, job=job).data_bytes == 200 * MB
    found = needs(replace(LOOP, shuffle=Shuffle("globally")), job=job)
    assert (found.memory_share, found.data_bytes) == (pytest.approx(0.75), pytest.approx(350 * MB))


def test_nothing_comes_from_memory_in_one_epoch_or_past_the_page_cache() -> None:
    assert needs(replace(LOOP, epochs=1)).memory_share == 0
    assert needs(replace(LOOP, access=Access(cache="off"))).memory_share == 0


def test_a_goal_needs_the_opens_and_calls_of_its_steps() -> None:
    """A step of 100 ms at the goal opens 20 files, one for each sample, and reads each by one call."""
    found = needs(LOOP)
    assert (found.opens_per_second, found.calls_per_second) == (pytest.approx(200), pytest.approx(200))
    pieces = needs(replace(LOOP, access=replace(LOOP.access, transfer=MB // 4)))
    assert (pieces.opens_per_second, pieces.calls_per_second) == (pytest.approx(200), pytest.approx(800))
    idle = needs(replace(LOOP, compute=Compute(constant(0.0))), storage=StorageRates(1.0, 1.0))
    assert (idle.opens_per_second, idle.reach) == (None, None)


@pytest.mark.parametrize(
    ("storage", "utilization", "bound"),
    [
        (StorageRates(100 * MB), 0.45, "bandwidth"),
        (StorageRates(None, 50), 0.225, "opens"),
        (StorageRates(100 * MB, 50), 0.225, "opens"),
        (StorageRates(50 * MB, 100), 0.225, "bandwidth"),
        (StorageRates(1000 * MB, 1000), 1.0, "compute"),
    ],
)
def test_a_storage_allows_a_utilization_at_most(storage: StorageRates, utilization: float, bound: str) -> None:
    """Steps of 90 ms ask for 20 MB and 20 opens; readers read during compute, without them steps wait as well."""
    reach = needs(LOOP, storage=storage).reach
    assert reach is not None and (reach.bound, reach.utilization) == (bound, pytest.approx(utilization))
    alone = needs(replace(LOOP, access=Access()), storage=storage).reach
    reading = max(20 * MB / (storage.bandwidth or 1e12), 20 / (storage.opens or 1e12))
    assert alone is not None and alone.utilization == pytest.approx(0.09 / (0.09 + reading))


@pytest.mark.parametrize("readers", [0, 1])
@pytest.mark.parametrize("compute", [0.0035, 0.09, 2.5])
def test_a_storage_with_the_rate_that_a_loop_needs_reaches_its_goal(compute: float, readers: int) -> None:
    loop = replace(LOOP, compute=Compute(constant(compute)), access=Access(readers=readers, prefetch=2 * readers))
    demand = needs(loop).demand
    assert demand is not None and demand.rate is not None
    rate = demand.needs if readers else demand.rate  # without readers storage has the time between two computes
    assert rate is not None
    reach = needs(loop, storage=StorageRates(rate * JOB.ranks)).reach
    assert reach is not None and reach.utilization == pytest.approx(GOAL)


def test_what_several_ranks_of_a_node_read_takes_storage_once_but_not_past_the_page_cache() -> None:
    """Four ranks of one node read all 400 samples each: 400 MB from storage, or 1.6 GB with O_DIRECT; 80 steps."""
    every = replace(LOOP, shard="off")
    once, direct = (
        needs(replace(every, access=replace(LOOP.access, cache=cache)), storage=StorageRates(10 * MB)).reach
        for cache in ("use", "off")
    )
    assert once == Reach(pytest.approx(0.09 / 0.5), "bandwidth")
    assert direct == Reach(pytest.approx(0.09 / 2.0), "bandwidth")


def test_a_save_may_take_a_twentieth_of_the_time() -> None:
    """20 steps of 90 ms an epoch: there are 1.8 s between saves, and a save may take a nineteenth of that."""
    found = saves(replace(LOOP, checkpoints=(Cadence("c", "epochs", 1), Cadence("c", "end"))))
    assert found.interval == pytest.approx(1.8) and found.rate == pytest.approx(100 * MB * 19 / 1.8)
    often = saves(replace(LOOP, checkpoints=(Cadence("c", "epochs", 1), Cadence("c", "steps", 2))))
    assert often.interval == pytest.approx(0.18) and often.cadence == Cadence("c", "steps", 2)


def test_a_save_may_take_the_share_that_is_given() -> None:
    """182 GB, a 13B model with its optimizer, every 30 minutes for 2 % of the time."""
    large = replace(CHECKPOINT, parts=(Part("w", 182 * 10**9, "total"),))
    loop = replace(LOOP, checkpoints=(Cadence("c", "seconds", seconds=1800.0),))
    made = Workload("w", "", 1, JOB, (DATASET,), (large,), (loop,))
    (found,) = save_needs(made, forecast(made), 0.02)
    assert found.rate == pytest.approx(182e9 / (1800 * 0.02 / 0.98)) == pytest.approx(5.0e9, rel=0.01)


def test_of_saves_without_an_interval_only_the_bytes_are_known() -> None:
    assert (saves(Save("c")).interval, saves(Save("c")).rate) == (None, None)
    assert saves(replace(LOOP, checkpoints=(Cadence("c", "end"),))).interval is None
