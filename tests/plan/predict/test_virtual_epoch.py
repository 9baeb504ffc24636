"""Epochs in virtual time: closed forms, and a simulation that goes from event to event."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import (
    Access,
    Cadence,
    Compute,
    Dataset,
    Distribution,
    Job,
    Layout,
    Loop,
    Servers,
    Shuffle,
    StorageModel,
    Stripe,
    Sync,
    constant,
)
from dliosim.plan.predict import virtual_epoch
from dliosim.plan.predict.saves import Flush, FlushQueue, share_behind
from dliosim.plan.predict.virtual_epoch import EpochTimes, StepDemand

STORAGE = StorageModel("s", Servers(1, 1e9))


#: more files than steps, so that each reads another one
FILES = Dataset("d", 1, 1 << 20, constant(1.0), Layout("files", 1 << 20, 1), "d")


def loop(seconds: float, readers: int = 1, prefetch: int = 2, **changes: object) -> Loop:
    access = Access(readers=readers, prefetch=prefetch if readers else 0)
    return replace(Loop("train", "l", "d", access, compute=Compute(constant(seconds))), **changes)  # type: ignore[arg-type]


#: Bytes, requests, opens and calls of a rank in a step.
Demand = tuple[float, float, float, float]


def demand(size: float, requests: float = 1, opens: float = 0) -> Demand:
    return size, requests, opens, requests


def run_epoch(
    one: Loop,
    dataset: Dataset,
    asked: Demand,
    steps: int,
    job: Job,
    storage: StorageModel | None,
    seed: int,
    flushes: Sequence[Flush] = (),
) -> EpochTimes:
    of_loop = StepDemand(one, dataset, job, job.ranks_per_node, *asked)
    return virtual_epoch.run_epoch(of_loop, steps, storage, seed, flushes)


def test_without_readers_a_step_is_reading_and_computing() -> None:
    times = run_epoch(loop(0.5, 0), FILES, demand(2e9), 4, Job(1), STORAGE, 0)
    assert (times.first, times.others) == pytest.approx((2.5, 7.5))


def test_readers_hide_what_is_shorter_than_compute() -> None:
    times = run_epoch(loop(0.5), FILES, demand(0.4e9), 5, Job(1), STORAGE, 0)
    assert (times.first, times.others) == pytest.approx((0.9, 2.0))


def test_reading_that_is_longer_than_compute_decides() -> None:
    times = run_epoch(loop(0.5), FILES, demand(2e9), 5, Job(1), STORAGE, 0)
    assert times.others == pytest.approx(4 * 2.0)


def test_ranks_share_a_server_and_a_barrier_makes_all_wait_for_the_last() -> None:
    times = run_epoch(loop(0.5), FILES, demand(1e9), 20, Job(3), STORAGE, 0)
    assert times.others / 19 == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(("readers", "rate"), [(1, 1e9), (4, 4e9)])
def test_readers_get_more_servers_until_their_client_is_full(readers: int, rate: float) -> None:
    """Files are on one of many servers of 1 GB/s each; the client takes 4 GB/s."""
    storage = StorageModel("s", Servers(1000, 1e9), client=4e9)
    times = run_epoch(loop(0.0, readers, 8), FILES, demand(1e9), 200, Job(1), storage, 0)
    assert 199e9 / times.others == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize("compute", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_a_slow_read_is_hidden_by_the_batches_that_are_ahead(ahead: int, compute: float) -> None:
    """A step waits max(0, d - k c) for a read of d with k batches ahead, each computed in c."""
    storage = StorageModel("s", Servers(1, 1e9), latency=3.0)
    times = run_epoch(loop(compute, ahead, ahead), FILES, demand(0.0), ahead + 1, Job(1), storage, 0)
    assert times.others == pytest.approx(ahead * compute + max(0.0, 3.0 - ahead * compute))


def test_without_a_storage_only_compute_and_preprocessing_take_time() -> None:
    times = run_epoch(loop(0.25), FILES, demand(1e12), 9, Job(7, 2), None, 0)
    assert (times.first, times.others) == pytest.approx((0.25, 2.0))


def test_ranks_without_sync_do_not_wait_for_each_other() -> None:
    drawn = Compute(Distribution("uniform", (0.0, 1.0)))
    alone = run_epoch(loop(0.0, compute=drawn, sync=Sync("off")), FILES, demand(1.0), 200, Job(64), None, 0)
    together = run_epoch(loop(0.0, compute=drawn), FILES, demand(1.0), 200, Job(64), None, 0)
    assert together.others == pytest.approx(199 * 64 / 65, rel=0.01)
    assert alone.others < 0.7 * together.others


@pytest.mark.parametrize(("ranks", "tail"), [(1, 3.0), (16, 2.5), (256, 3.0)])
def test_with_a_barrier_a_step_takes_the_longest_of_the_ranks_own_times(ranks: int, tail: float) -> None:
    slow = replace(STORAGE, step_time=0.01, step_tail=tail)
    steps = 4000
    times = run_epoch(loop(0.5), FILES, demand(0.0), steps, Job(ranks), slow, 3)
    lost = times.others / (steps - 1) - 0.5
    assert lost == pytest.approx(slow.step_overhead(ranks), rel=0.05)
    assert replace(slow, step_tail=None).step_overhead(ranks) == 0.01


def test_the_longest_of_many_own_times_follows_the_law_of_extremes() -> None:
    slow = replace(STORAGE, step_time=0.01, step_tail=2.0)
    assert slow.step_overhead(1) == pytest.approx(0.01 * 2)
    assert slow.step_overhead(4096) == pytest.approx(0.01 * 64 * math.gamma(0.5), rel=0.01)


def test_the_same_seed_gives_the_same_epoch() -> None:
    varied = replace(FILES, size=Distribution("normal", (1e6, 3e5)))
    storage = replace(STORAGE, servers=Servers(8, 1e9), latency=1e-3, tail=2.5)
    one, asked, job = loop(1e-3, batch=4), demand(1e6), Job(5, 2)
    first, second, other = (run_epoch(one, varied, asked, 50, job, storage, seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def simulate_events(one: Loop, size: float, steps: int, ranks: int, rate: float) -> float:
    """The end of an epoch on one server with a queue, from event to event; a barrier ends each step."""
    readers, ahead = one.access.readers, one.access.prefetch
    events: list[tuple[float, int, str, int, int]] = []
    order = 0

    def push(time: float, kind: str, rank: int, step: int) -> None:
        nonlocal order
        heapq.heappush(events, (time, order, kind, rank, step))
        order += 1

    waiting = [list(range(min(ahead, steps))) for _ in range(ranks)]
    idle, there = [readers] * ranks, [set[int]() for _ in range(ranks)]
    step_of, arrived, free, now = [0] * ranks, 0, 0.0, 0.0
    wants = [True] * ranks
    for rank in range(ranks):
        push(0.0, "look", rank, 0)
    while events:
        now, _, kind, rank, step = heapq.heappop(events)
        if kind == "read":
            idle[rank] += 1
            there[rank].add(step)
        elif kind == "computed":
            arrived += 1
            if arrived == ranks:
                arrived = 0
                for other in range(ranks):
                    step_of[other] += 1
                    wants[other] = step_of[other] < steps
                    push(now, "look", other, 0)
            continue
        if wants[rank] and step_of[rank] in there[rank]:
            wants[rank] = False
            push(now + one.compute.time.mean, "computed", rank, 0)
            if step_of[rank] + ahead < steps:
                waiting[rank].append(step_of[rank] + ahead)
        if idle[rank] and waiting[rank]:
            idle[rank] -= 1
            free = max(free, now) + size / rate
            push(free, "read", rank, waiting[rank].pop(0))
            push(now, "look", rank, 0)  # ranks that ask together ask in turn
    return now


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([0.05, 0.3, 1.0, 2.0]),
    st.integers(1, 30),
)
def test_an_epoch_takes_as_long_as_by_events(ranks: int, readers: int, ahead: int, size: float, steps: int) -> None:
    one = loop(0.5, readers, ahead)
    times = run_epoch(one, FILES, demand(size * 1e9), steps, Job(ranks), STORAGE, 0)
    assert times.first + times.others == pytest.approx(simulate_events(one, size * 1e9, steps, ranks, 1e9), rel=0.02)


def test_times_are_finite_for_ranks_that_do_not_fill_their_nodes() -> None:
    storage = replace(STORAGE, client=1e9, metadata=1e4)
    times = run_epoch(loop(0.01), FILES, demand(1e6, 2, 1), 10, Job(5, 3), storage, 0)
    assert np.isfinite(times.others)
    assert times.others > 0


def test_many_ranks_with_wide_stripes_use_all_servers() -> None:
    storage = replace(STORAGE, servers=Servers(5000, 1e9), stripe=Stripe(1 << 20, 1000))
    times = run_epoch(loop(0.0), FILES, demand(1e9), 3, Job(100_000), storage, 0)
    assert times.others == pytest.approx(2 * 100_000 * 1e9 / 5e12, rel=0.01)


def test_a_batch_of_several_readers_waits_for_the_slowest_of_them() -> None:
    """The mean of the greatest of n Pareto draws is n B(n, 1 - 1/a)."""
    access = Access(readers=8, by="sample", prefetch=0)
    one = replace(loop(0.0), access=access, batch=8)
    storage = replace(STORAGE, latency=1e-3, tail=3.0)
    times = run_epoch(one, FILES, demand(8e3, 8), 4000, Job(1), storage, 0)
    power = 1 / 3
    longest = 1e-3 * math.exp(math.lgamma(9) + math.lgamma(1 - power) - math.lgamma(9 - power))
    assert times.others / 3999 == pytest.approx(longest, rel=0.03)


#: A save of 10 s after every 20th step; a read of one call waits for 0.2 s on server 0, its only one.
FLUSH = Flush(Cadence("c", "steps", 20), 10.0, constant(0.2), constant(0.0), 1)


@pytest.mark.parametrize(("servers", "share"), [(1, 1.0), (4, 0.25)])
def test_reads_wait_for_a_flush_on_the_servers_that_it_writes_to(servers: int, share: float) -> None:
    storage = replace(STORAGE, servers=Servers(servers, 1e9))
    shuffled = loop(0.5, 0, shuffle=Shuffle("globally"))

    def run(*flushes: Flush) -> float:
        return run_epoch(shuffled, FILES, demand(1e6), 400, Job(1), storage, 0, flushes).others

    # In all steps of the 10 s after each 20th.
    slower = 0.5 + 0.2 * share
    during = 19 * 10 / slower  # steps
    assert run(FLUSH) - run() == pytest.approx(during * 0.2 * share, rel=0.15)
    assert run(replace(FLUSH, cadence=Cadence("c", "steps", 500))) == run()


def test_a_flush_that_read_ahead_hides_costs_nothing() -> None:
    hidden = replace(FLUSH, on_server=constant(0.4))
    asked = loop(0.5, 2, 4), FILES, demand(1e6), 100, Job(1), STORAGE, 0
    assert run_epoch(*asked, [hidden]) == run_epoch(*asked)


def test_saves_by_the_clock_come_by_the_clock_and_one_thread_writes_all() -> None:
    queue = FlushQueue([replace(FLUSH, cadence=Cadence("c", "seconds", seconds=30.0)), FLUSH])
    times = np.arange(0.0, 100.0)

    def list_times() -> list[tuple[float, float]]:
        return [(times[is_active][0], times[is_active][-1]) for _, is_active in queue.list_active(times)]

    queue.begin_due(19, 29.0)
    assert list_times() == []
    queue.begin_due(20, 31.0)
    assert list_times() == [(31.0, 40.0), (41.0, 50.0)]
    queue.begin_due(21, 60.0)
    assert list_times() == [(31.0, 40.0), (41.0, 50.0)]
    queue.begin_due(22, 61.0)
    assert list_times() == [(61.0, 70.0), (41.0, 50.0)]


@pytest.mark.parametrize(("span", "expected"), [(1, [0.5, 0.5, 0.0]), (4, [1.0, 1.0, 0.0])])
def test_a_call_waits_if_any_of_its_servers_is_written_to(span: int, expected: list[float]) -> None:
    storage, flush = StorageModel("s", Servers(8, 1e9)), replace(FLUSH, servers=2)
    share = share_behind(flush, storage, np.array([0, 6, 2]), 4, span)
    assert share.tolist() == expected
    assert share_behind(flush, storage, None, 8, span).tolist() == [(2 + span - 1) / 8]


def simulate_opens(ranks: int, opens: int, steps: int, service: float, latency: float, compute: float) -> float:
    """The time of steps whose opens wait in one queue, each after the last, event by event; ranks begin one by one."""
    free, ends = 0.0, 0.0
    events = [(rank * service, rank, 0) for rank in range(ranks)]
    heapq.heapify(events)
    while events:
        now, rank, done = heapq.heappop(events)
        free = max(free, now) + service
        done += 1
        after = free + latency + (compute if done % opens == 0 else 0.0)
        ends = max(ends, after)
        if done < opens * steps:
            heapq.heappush(events, (after, rank, done))
    return ends


@pytest.mark.parametrize("ranks", [1, 4, 12, 16, 40])
def test_opens_one_after_the_other_take_longer_than_all_at_once(ranks: int) -> None:
    opens, service, latency, compute = 8, 2e-3, 20e-3, 10e-3
    storage = replace(STORAGE, metadata=1 / service, latency=latency)
    one = loop(compute, 0, sync=Sync("off"))
    times = run_epoch(one, FILES, (1.0, opens + 1, opens, 1), 100, Job(ranks), storage, 0)
    expected = simulate_opens(ranks, opens, 100, service, latency, compute + latency)
    assert times.first + times.others == pytest.approx(expected, rel=0.1)
