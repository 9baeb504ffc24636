"""Queues in virtual time, next to one that serves job after job."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Servers, StorageModel, Stripe
from dliosim.plan.predict.queues import (
    Rhythm,
    StorageQueues,
    find_backlog,
    serve_queues,
    simulate_waits,
    sum_latencies,
    wait_of_calls,
)

TIMES = st.floats(0, 100, allow_nan=False)
JOBS = st.lists(st.tuples(TIMES, TIMES, st.integers(0, 3)), min_size=1, max_size=40)


def storage(**settings: object) -> StorageModel:
    return StorageModel(**{"name": "s", "servers": Servers(4, 1e9), **settings})  # type: ignore[arg-type]


def serve_one_by_one(jobs: list[tuple[float, float, int]], free: list[float]) -> list[float]:
    """The time at which each job is done, by a loop over the jobs in the order of their arrival."""
    done = [0.0] * len(jobs)
    for number, (arrival, service, queue) in sorted(enumerate(jobs), key=lambda one: one[1][0]):
        free[queue] = max(free[queue], arrival) + service
        done[number] = free[queue]
    return done


@given(JOBS, st.lists(TIMES, min_size=4, max_size=4))
def test_jobs_are_done_as_if_they_were_served_one_by_one(
    jobs: list[tuple[float, float, int]], free: list[float]
) -> None:
    arrival, service, queue = (np.array(column) for column in zip(*jobs, strict=True))
    ends = np.array(free)
    done = serve_queues(arrival, service, queue, ends)
    assert done == pytest.approx(serve_one_by_one(jobs, free))
    assert ends == pytest.approx(free)


def test_a_file_on_one_of_several_servers_has_the_rate_of_that_one() -> None:
    size, node, zeros = np.full(2, 1e9), np.zeros(2, np.int64), np.zeros(2)
    apart = StorageQueues(storage(), 1).read(zeros, size, node, np.array([0, 1]))
    assert apart == pytest.approx([1, 1])
    same = StorageQueues(storage(), 1).read(zeros, size, node, np.array([3, 3]))
    assert same == pytest.approx([1, 2])
    wide = StorageQueues(storage(stripe=Stripe(1 << 20, 4)), 1).read(zeros, size, node, np.array([3, 3]), 4)
    assert wide == pytest.approx([0.25, 0.5])
    assert StorageQueues(storage(), 1).read(zeros, size, node, None) == pytest.approx([0.25, 0.5])


def test_ranks_of_a_node_share_the_rate_of_their_client() -> None:
    size, zeros, server = np.full(4, 1e9), np.zeros(4), np.arange(4)
    queues = StorageQueues(storage(client=0.5e9), 2)
    assert queues.read(zeros, size, np.array([0, 0, 1, 1]), server) == pytest.approx([2, 4, 2, 4])


def test_opens_of_all_ranks_wait_in_one_queue() -> None:
    queues = StorageQueues(storage(metadata=1000.0), 1)
    assert queues.open(np.zeros(3), 10) == pytest.approx([0.01, 0.02, 0.03])


def test_a_queue_goes_on_with_the_next_step() -> None:
    queues, node = StorageQueues(storage(), 1), np.zeros(1, np.int64)
    first = queues.read(np.zeros(1), np.full(1, 1e9), node, node)
    assert queues.read(np.full(1, 0.5), np.full(1, 1e9), node, node) == pytest.approx(first + 1)


@pytest.mark.parametrize("requests", [1, 2, 7, 300])
def test_the_mean_of_summed_latencies_is_exact(requests: int) -> None:
    one = storage(latency=400e-6, tail=3.0)
    uniform = (np.arange(1_000_000) + 0.5) / 1_000_000
    assert sum_latencies(one, requests, uniform).mean() == pytest.approx(requests * one.request_latency, rel=2e-3)


@pytest.mark.parametrize("ranks", [16, 256, 4096])
def test_the_slowest_of_many_latencies_is_as_late_as_extreme_values_say(ranks: int) -> None:
    """The mean of the greatest of R Pareto draws is xm R^(1/a) Gamma(1 - 1/a), for large R."""
    one = storage(latency=400e-6, tail=2.1)
    uniform = np.random.default_rng(1).random((4_000_000 // ranks, ranks))
    slowest = sum_latencies(one, 1, uniform).max(axis=1)
    expected = 400e-6 * ranks ** (1 / 2.1) * math.gamma(1 - 1 / 2.1)
    exact = 400e-6 * math.gamma(1 - 1 / 2.1) * math.exp(math.lgamma(ranks + 1) - math.lgamma(ranks + 1 - 1 / 2.1))
    assert exact == pytest.approx(expected, rel=0.03)
    # A variance that is hardly finite: the mean of these draws scatters by a few per cent.
    assert np.median(slowest) == pytest.approx(400e-6 * (1 - 0.5 ** (1 / ranks)) ** (-1 / 2.1), rel=0.03)


def test_without_a_tail_all_latencies_are_equal() -> None:
    assert sum_latencies(storage(latency=1e-3), 5, np.array([0.1, 0.9])) == pytest.approx([5e-3, 5e-3])


@pytest.mark.parametrize("servers", [1, 4])
def test_a_call_in_full_queues_waits_for_those_of_all_others_and_hardly_varies(servers: int) -> None:
    wait = wait_of_calls(1.0, lambda taken: 0.0, 20 * servers, servers)
    mean, stdev = wait.parameters
    assert mean == pytest.approx(19, rel=0.03)
    assert stdev <= (1.0 if servers == 1 else 5.0)


def test_a_call_in_an_empty_queue_does_not_wait() -> None:
    assert wait_of_calls(1.0, lambda taken: 1e6, 2, 1).nonnegative_mean() == pytest.approx(0.0, abs=1e-3)
    assert wait_of_calls(0.0, lambda taken: 1.0, 9, 1).nonnegative_mean() == 0.0
    assert wait_of_calls(1.0, lambda taken: 1.0, 1, 1).nonnegative_mean() == 0.0


def test_a_read_waits_for_half_a_call_of_one_writer_and_for_a_whole_one_if_it_follows_another_read() -> None:
    backlog = find_backlog(4.0, 1.0, 1)
    assert backlog.mean == pytest.approx(4 / 5 * 2)
    assert backlog.wait_of_batch(1, 0.5, has_pause=True).mean == pytest.approx(backlog.mean)
    # The writer's next call came 1 s after its last one, the read 1.5 s after it.
    assert backlog.wait_of_batch(3, 1.5, has_pause=False).mean == pytest.approx(3 * 3.5)
    assert backlog.wait_of_batch(3, 1.5, has_pause=True).mean == pytest.approx(backlog.mean + 2 * 3.5)


def test_a_read_waits_for_the_calls_of_all_writers_of_a_full_server() -> None:
    backlog = find_backlog(1.0, 0.0, 6)
    assert backlog.mean == pytest.approx(5.5, rel=0.05)
    assert backlog.wait_of_batch(2, 0.0, has_pause=False).mean == pytest.approx(12.0)


def test_a_read_that_comes_before_the_next_call_of_a_writer_waits_no_more_than_any() -> None:
    backlog = find_backlog(0.01, 4.0, 1)
    assert backlog.wait_of_batch(5, 0.5, has_pause=False).mean == pytest.approx(5 * backlog.mean)
    assert backlog.mean < 1e-4


def test_nothing_waits_behind_writers_that_are_rare_or_write_nothing() -> None:
    assert find_backlog(0.0, 1.0, 4).wait_of_batch(5, 0.1, has_pause=True).nonnegative_mean() == 0.0
    assert find_backlog(1.0, 1e6, 1).mean == pytest.approx(0.0, abs=1e-3)


def test_two_customers_fall_into_step_if_latencies_are_longer_than_service() -> None:
    rhythm = Rhythm(np.full((2, 400), 1.1), calls=400, stay=400, hops=False)
    mean, _ = simulate_waits(1.0, rhythm, 1.1, 1)
    assert mean < 0.01
    assert wait_of_calls(1.0, lambda taken: 1.1, 2, 1, rhythm).nonnegative_mean() < 0.01
    assert wait_of_calls(1.0, lambda taken: 1.1, 2, 1).nonnegative_mean() > 0.15


def test_customers_of_a_full_server_wait_for_all_others() -> None:
    rhythm = Rhythm(np.full((5, 400), 0.5), calls=10, stay=1, hops=True)
    mean, _ = simulate_waits(1.0, rhythm, 0.5, 1)
    assert mean == pytest.approx(3.5, rel=0.02)


def test_customers_that_go_from_server_to_server_follow_each_other() -> None:
    latency = np.full((4, 400), 1.05)
    follow, _ = simulate_waits(1.0, Rhythm(latency, calls=400, stay=1, hops=False), 1.05, 4)
    meet, _ = simulate_waits(1.0, Rhythm(latency, calls=400, stay=1, hops=True), 1.05, 4)
    assert follow < 0.02 < meet
