"""One epoch in virtual time: all ranks go through a step at once, and meet in the queues of a storage."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dliosim.model.counter_rng import draw, key, uniforms
from dliosim.model.distributions import Distribution
from dliosim.model.job import Job
from dliosim.model.storage import StorageModel
from dliosim.model.verbs import Loop
from dliosim.plan.predict.queues import Floats, Ints, StorageQueues, sum_latencies

#: Draws in a step up to which each is made; the mean of more hardly varies.
_MOST_DRAWS = 64

#: Servers of the files of all ranks from which on all servers are used equally: queues of their own would take memory.
_MOST_QUEUED = 1 << 22


@dataclass(frozen=True, slots=True)
class StepDemand:
    """The bytes, requests and files of a rank in a step, mean over ranks and steps."""

    size: float  #: bytes
    requests: float  #: read calls and opens
    opens: float  #: files that are opened
    files: int  #: different files that are read, about
    samples: int  #: samples
    sample_size: Distribution  #: bytes of a sample's contents, whose spread is that of the requests


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """The times of an epoch; seconds."""

    first: float  #: the first step, in which nothing was read ahead
    others: float  #: the other steps together


def run_epoch(
    loop: Loop, demand: StepDemand, steps: int, job: Job, storage: StorageModel | None, seed: int
) -> EpochTimes:
    """Return the times of an epoch of `steps` steps; without a storage, reads take no time.

    Batches are asked for as `execute.batches.prefetch` does: the one of step s + N when that of step s is there, by the
    reader that is free first.
    """
    rank = np.arange(job.ranks)
    read = _make_reads(loop, demand, job, storage, seed)
    access, processing = loop.access, _processing_seconds(loop)
    ahead = access.prefetch if access.readers else 0
    lanes = 1 if access.by == "sample" else max(access.readers, 1)
    free = np.zeros((lanes, job.ranks))  # from when on each reader of each rank is free
    started: deque[Floats] = deque(np.zeros(job.ranks) for _ in range(ahead))  # when the last steps had their batch
    ended, first = np.zeros(job.ranks), 0.0
    every = loop.sync.every if loop.sync.kind != "off" else 0
    overhead, compute = storage.step_time if storage is not None else 0.0, key(seed, "compute")
    for step in range(steps):
        lane = np.full(job.ranks, step % lanes) if access.by == "batch in turn" else free.argmin(axis=0)
        begun = np.maximum(started.popleft() if ahead else ended, free[lane, rank])
        done = free[lane, rank] = read(step, begun) + processing
        ended = np.maximum(ended, done)
        if ahead:
            started.append(ended)
        ended = ended + overhead + _draw_compute(loop, compute, step * job.ranks + rank)
        if every and (step + 1) % every == 0:
            ended = np.full(job.ranks, ended.max())
        if step == 0:
            first = float(ended.max())
    return EpochTimes(first, float(ended.max()) - first)


def stream_rate(storage: StorageModel) -> float:
    """Return the bytes per second of a reader alone, which reads one file at a time, on as many servers as it has."""
    return min(storage.file_servers * storage.servers.rate, storage.client or math.inf)


def _make_reads(
    loop: Loop, demand: StepDemand, job: Job, storage: StorageModel | None, seed: int
) -> Callable[[int, Floats], Floats]:
    """Return the function of a step and the times at which ranks ask for its batch, to those at which they have it."""
    if storage is None:
        return lambda step, begun: begun
    node, rank = np.arange(job.ranks) // job.ranks_per_node, np.arange(job.ranks)
    queues = StorageQueues(storage, job.nodes)
    together = loop.access.readers if loop.access.by == "sample" else 1
    requests = demand.requests / together
    uses_all_servers = (
        demand.files * storage.file_servers >= storage.servers.number or job.ranks * storage.file_servers > _MOST_QUEUED
    )
    rate, called = stream_rate(storage) * together, requests * storage.call_time
    sizes, servers, latencies = (key(seed, purpose) for purpose in ("size", "server", "latency"))

    def read(step: int, begun: Floats) -> Floats:
        counter = step * job.ranks + rank
        size = _draw_sizes(demand, sizes, counter)
        server = None
        if not uses_all_servers:
            server = (uniforms(servers, counter) * storage.servers.number).astype(np.int64)
        latency = sum_latencies(storage, requests, uniforms(latencies, counter))
        served = queues.read(begun, size, demand.opens, node, server)
        return np.maximum(served, begun + size / rate) + latency + called

    return read


def _processing_seconds(loop: Loop) -> float:
    """Return the seconds for which a reader preprocesses a batch."""
    if loop.preprocess is None:
        return 0.0
    together = loop.access.readers if loop.access.by == "sample" else 1
    return loop.preprocess.time.nonnegative_mean() * loop.batch / together


def _draw_sizes(demand: StepDemand, stream: int, counter: Ints) -> Floats:
    """Return the bytes of a step of each rank, with the mean of `demand`; shape (ranks,)."""
    mean = demand.sample_size.nonnegative_mean() * demand.samples
    if mean <= 0:
        return np.full(len(counter), demand.size)
    return _sum_draws(demand.sample_size, demand.samples, stream, counter) * (demand.size / mean)


def _draw_compute(loop: Loop, stream: int, counter: Ints) -> Floats:
    """Return the seconds for which each rank computes in a step; shape (ranks,)."""
    number = loop.batch if loop.compute.per_sample else 1
    return _sum_draws(loop.compute.time, number, stream, counter)


def _sum_draws(drawn: Distribution, number: int, stream: int, counter: Ints) -> Floats:
    """Return a sum of `number` draws for each counter; draws below 0 count as 0. Many draws are their mean."""
    if drawn.is_constant or number > _MOST_DRAWS:
        return np.full(len(counter), drawn.nonnegative_mean() * number)
    slots = (counter[:, None] * number + np.arange(number)).ravel()
    whole: Floats = np.maximum(draw(drawn, stream, slots), 0.0).reshape(-1, number).sum(axis=1)
    return whole
