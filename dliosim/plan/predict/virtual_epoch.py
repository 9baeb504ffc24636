"""One epoch in virtual time: all ranks go through a step at once, and meet in the queues of a storage."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dliosim.model import Dataset
from dliosim.model.counter_rng import draw, key, uniforms
from dliosim.model.distributions import Distribution, constant
from dliosim.model.job import Job
from dliosim.model.storage import StorageModel
from dliosim.model.verbs import Loop
from dliosim.plan.predict.flushes import Flush, FlushQueue, share_behind
from dliosim.plan.predict.queues import (
    Floats,
    Ints,
    StorageQueues,
    draw_step_times,
    mean_latency,
    sum_latencies,
    wait_of_calls,
)

#: Shuffles of samples after which the files of a step are random.
_SHUFFLED = ("globally", "within shard")

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
    calls: float  #: read calls
    samples: int  #: samples
    sample_size: Distribution  #: bytes of a sample's contents, whose spread is that of the requests

    @property
    def call(self) -> float:
        """Bytes of a read call."""
        return self.size / self.calls


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """The times of an epoch; seconds."""

    first: float  #: the first step, in which nothing was read ahead
    others: float  #: the other steps together


def run_epoch(
    loop: Loop,
    dataset: Dataset,
    demand: StepDemand,
    steps: int,
    job: Job,
    storage: StorageModel | None,
    seed: int,
    node_ranks: int,
    flushes: Sequence[Flush] = (),
) -> EpochTimes:
    """Return the times of an epoch of `steps` steps on nodes of `node_ranks`; without a storage, reads take no time.

    Batches are asked for as `execute.batches.prefetch` does: the one of step s + N when that of step s is there, by the
    reader that is free first. What is asked for while a save of `flushes` is written waits for its calls, too.
    """
    rank = np.arange(job.ranks)
    read = _make_reads(loop, dataset, demand, job, storage, seed, node_ranks)
    access, processing = loop.access, _processing_seconds(loop)
    ahead = access.prefetch if access.readers else 0
    lanes = 1 if access.by == "sample" else max(access.readers, 1)
    free = np.zeros((lanes, job.ranks))  # from when on each reader of each rank is free
    started: deque[Floats] = deque(np.zeros(job.ranks) for _ in range(ahead))  # when the last steps had their batch
    ended, first = np.zeros(job.ranks), 0.0
    every = loop.sync.every if loop.sync.kind != "off" else 0
    compute, own = key(seed, "compute"), key(seed, "step")
    saving = FlushQueue(flushes)
    for step in range(steps):
        lane = np.full(job.ranks, step % lanes) if access.by == "batch in turn" else free.argmin(axis=0)
        begun = np.maximum(started.popleft() if ahead else ended, free[lane, rank])
        done = free[lane, rank] = read(step, begun, saving) + processing
        ended = np.maximum(ended, done)
        if ahead:
            started.append(ended)
        counter = step * job.ranks + rank
        ended = ended + _draw_compute(loop, compute, counter)
        if storage is not None and storage.step_time:
            ended += draw_step_times(storage, own, counter)
        if every and (step + 1) % every == 0:
            ended = np.full(job.ranks, ended.max())
        saving.begin_due(step + 1, float(ended.max()))
        if step == 0:
            first = float(ended.max())
    return EpochTimes(first, float(ended.max()) - first)


def _make_reads(
    loop: Loop, dataset: Dataset, demand: StepDemand, job: Job, storage: StorageModel | None, seed: int, node_ranks: int
) -> Callable[[int, Floats, FlushQueue], Floats]:
    """Return the function of a step and the times at which ranks ask for its batch, to those at which they have it.

    Its last argument is the saves that are written meanwhile.
    """
    if storage is None:
        return lambda step, begun, saving: begun
    rank = np.arange(job.ranks)
    node = rank // node_ranks
    queues = StorageQueues(storage, int(node[-1]) + 1)
    together = loop.access.readers if loop.access.by == "sample" else 1  # readers of a batch
    requests = demand.requests / together
    width = _count_files(loop, dataset) - 1 + storage.count_servers(mean_file_size(dataset))
    uses_all_servers = width >= storage.servers.number or job.ranks * width > _MOST_QUEUED
    called = requests * storage.call_time
    alone = call_seconds(demand, storage) * demand.calls / together / max(demand.size, 1.0)  # seconds for each byte
    wait, opening = wait_of_batch(loop, demand, job, storage), _time_of_opens(loop, demand, job, storage)
    sizes, latencies, waits, behind, opened = (
        key(seed, purpose) for purpose in ("size", "latency", "wait", "save", "open")
    )
    find_file = _make_file_draws(loop, dataset, job, key(seed, "file"))

    def read(step: int, begun: Floats, saving: FlushQueue) -> Floats:
        counter = step * job.ranks + rank
        size = _draw_sizes(demand, sizes, counter)
        server = None if uses_all_servers else find_file(step, rank) % storage.servers.number
        draws = uniforms(latencies, (counter[:, None] * together + np.arange(together)).ravel())
        longest = sum_latencies(storage, requests, draws).reshape(-1, together).max(axis=1)  # of the slowest reader
        latency: Floats = longest + called
        served = queues.read(begun, size, demand.opens, node, server, width)
        waited = (draw(wait, waits, counter) + draw(opening, opened, counter)) / together
        for flush, is_active in saving.list_active(begun):
            share = share_behind(flush, storage, server, width, storage.count_servers(demand.call))
            queued = np.maximum(draw(flush.on_server, behind, counter) * share, draw(flush.on_client, behind, counter))
            waited += np.where(is_active, queued, 0.0)
        # Calls of others are served during latencies: after a full queue only that of the last call is left.
        return np.maximum(served + latency / max(requests, 1.0), begun + size * alone + waited + latency)

    return read


def requests_at_once(loop: Loop) -> int:
    """Return the number of readers of a rank that can be reading: no more than batches that may be ahead."""
    access, readers = loop.access, max(loop.access.readers, 1)
    return readers if access.by == "sample" else min(readers, max(access.prefetch, 1))


def mean_file_size(dataset: Dataset) -> float:
    """Return the mean bytes of the contents of a file."""
    return dataset.size.nonnegative_mean() * dataset.samples / dataset.layout.files


def call_seconds(demand: StepDemand, storage: StorageModel) -> float:
    """Return the time of a read call without its latency, if no other reads, in s."""
    rate = min(storage.client or math.inf, storage.stream or math.inf)
    return max(storage.server_seconds(demand.call), demand.call / rate)


def wait_of_batch(loop: Loop, demand: StepDemand, job: Job, storage: StorageModel) -> Distribution:
    """Return for how long the calls of a batch after the first wait for calls of other readers, all together; in s.

    `StorageQueues` has the wait of the first call, and so that of a batch that is one call.
    """
    mean, stdev, *_ = (*wait_of_call(loop, demand, job, storage).parameters, 0.0)
    later = max(demand.calls - 1, 0.0)
    return Distribution("gamma", (mean * later, stdev * math.sqrt(later))) if mean * later > 0 else constant(0.0)


def wait_of_call(loop: Loop, demand: StepDemand, job: Job, storage: StorageModel, others: int = 0) -> Distribution:
    """Return for how long a call waits for calls of readers, s; `others` call as readers do."""
    calls, readers = demand.calls, requests_at_once(loop) if loop.access.readers else 0
    latency = mean_latency(storage) * demand.requests / calls + storage.call_time
    compute = _compute_seconds(loop) + storage.step_time

    def think(taken: float) -> float:
        """Return for how long a reader does not read between two calls: readers may wait for the steps."""
        return max(latency, readers * compute / calls - taken) if readers else latency + compute / calls

    customers = job.ranks * max(readers, 1) + others
    return wait_of_calls(storage.server_seconds(demand.call), think, customers, storage.servers.number)


def _time_of_opens(loop: Loop, demand: StepDemand, job: Job, storage: StorageModel) -> Distribution:
    """Return for how long the opens of a batch after the first are served and wait for those of other readers; in s.

    Between two opens a reader reads what it has opened.
    """
    later = max(demand.opens - 1, 0.0)
    if storage.metadata is None or not later:
        return constant(0.0)
    calls, readers = demand.calls / demand.opens, requests_at_once(loop) if loop.access.readers else 0
    call = call_seconds(demand, storage) + wait_of_call(loop, demand, job, storage).nonnegative_mean()
    reading = mean_latency(storage) + storage.call_time + calls * (call + mean_latency(storage) + storage.call_time)
    compute = (_compute_seconds(loop) + storage.step_time) / demand.opens

    def think(taken: float) -> float:
        """Return for how long a reader does not open between two opens."""
        return max(reading, readers * compute - taken) if readers else reading + compute

    service = 1 / storage.metadata
    mean, stdev, *_ = (*wait_of_calls(service, think, job.ranks * max(readers, 1), 1).parameters, 0.0)
    return Distribution("gamma", (later * (service + mean), max(stdev, service / 100) * math.sqrt(later)))


def _compute_seconds(loop: Loop) -> float:
    """Return the mean time for which a step computes; s."""
    return loop.compute.time.nonnegative_mean() * (loop.batch if loop.compute.per_sample else 1)


def _make_file_draws(loop: Loop, dataset: Dataset, job: Job, stream: int) -> Callable[[int, Ints], Ints]:
    """Return the function of a step and of ranks to the file that each reads first; files of shuffled ones are random.

    Without a shuffle, and within a buffer, ranks go through the samples as `plan.samples.sampler` shards them.
    """
    files, samples, shuffle = dataset.layout.files, dataset.samples, loop.shuffle

    def find_place(step: int, rank: Ints) -> Ints:
        """Return the place in the order of the files."""
        if loop.shard == "by sample":
            position = (step * job.ranks + rank) * loop.batch
        elif loop.shard == "off":
            position = np.full(len(rank), step * loop.batch)
        else:
            position = rank * samples // job.ranks + step * loop.batch
        # As floats: samples times files may be more than an integer holds.
        place: Ints = np.minimum(position % samples / samples * files, files - 1).astype(np.int64)
        return place

    def draw_file(step: int, rank: Ints) -> Ints:
        counter = step * job.ranks + rank if shuffle.samples in _SHUFFLED else find_place(step, rank)
        drawn: Ints = (uniforms(stream, counter) * files).astype(np.int64)
        return drawn

    return draw_file if shuffle.samples in _SHUFFLED or shuffle.files != "off" else find_place


def _count_files(loop: Loop, dataset: Dataset) -> int:
    """Return the number of different files that a rank reads in a step, about."""
    files = dataset.layout.files
    if loop.shuffle.samples in _SHUFFLED:
        return max(round(files * (1 - (1 - 1 / files) ** loop.batch)), 1)
    return -(-loop.batch * files // dataset.samples)


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
