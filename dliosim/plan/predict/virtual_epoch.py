"""One epoch in virtual time: all ranks go through a step at once, and meet in the queues of a storage."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dliosim.model import Dataset, Distribution, Job, Loop, StorageModel, constant
from dliosim.model.counter_rng import draw, key, uniforms
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.plan.predict import queues
from dliosim.plan.predict.queues import Floats, Ints
from dliosim.plan.predict.saves import Flush, FlushQueue, share_behind

#: Shuffles of samples after which the files of a step are random.
_SHUFFLED = ("globally", "within shard")

#: Draws in a step up to which each is made; the mean of more hardly varies.
_MOST_DRAWS = 64

#: Readers up to which their calls are simulated, and the calls of all.
_FEW, _CALLS = 32, 3200

#: Servers of the files of all ranks from which on all servers are used equally: queues of their own would take memory.
_MOST_QUEUED = 1 << 22


@dataclass(frozen=True, slots=True)
class StepDemand:
    """A loop with the bytes, requests and files of a rank in a step of it, mean over ranks and steps."""

    loop: Loop  #: the loop
    dataset: Dataset  #: its data set: the spread of sizes of samples is that of the requests
    job: Job  #: ranks and nodes
    node_ranks: int  #: ranks of each node; the last one has those that are left
    size: float  #: bytes
    requests: float  #: read calls and opens
    opens: float  #: files that are opened
    calls: float  #: read calls
    servers: float = 0.0  #: as `StorageModel.even_servers`; 0: all servers have equally many files
    step: float = 0.0  #: seconds of a step, if known: readers wait for steps, and these for other ranks

    @property
    def call(self) -> float:
        """Bytes of a read call."""
        return self.size / self.calls

    @property
    def file_size(self) -> float:
        """Mean bytes of the contents of a file."""
        return self.dataset.size.nonnegative_mean() * self.dataset.samples / self.dataset.layout.files


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """The times of an epoch; seconds."""

    first: float  #: the first step, in which nothing was read ahead
    others: float  #: the other steps together


def run_epoch(
    demand: StepDemand, steps: int, storage: StorageModel | None, seed: int, flushes: Sequence[Flush] = ()
) -> EpochTimes:
    """Return the times of an epoch of `steps` steps; without a storage, reads take no time.

    Batches are asked for as `execute.batches.prefetch` does: the one of step s + N when that of step s is there, by the
    reader that is free first. What is asked for while a save of `flushes` is written waits for its calls, too.
    """
    loop, job, access = demand.loop, demand.job, demand.loop.access
    rank, processing = np.arange(job.ranks), _processing_seconds(loop)
    read = _make_reads(demand, storage, seed)
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
            ended += queues.draw_step_times(storage, own, counter)
        if every and (step + 1) % every == 0:
            ended = np.full(job.ranks, ended.max())
        saving.begin_due(step + 1, float(ended.max()))
        if step == 0:
            first = float(ended.max())
    return EpochTimes(first, float(ended.max()) - first)


def _make_reads(
    demand: StepDemand, storage: StorageModel | None, seed: int
) -> Callable[[int, Floats, FlushQueue], Floats]:
    """Return the function of a step and the times at which ranks ask for its batch, to those at which they have it.

    Its last argument is the saves that are written meanwhile.
    """
    if storage is None:
        return lambda step, begun, saving: begun
    loop, job = demand.loop, demand.job
    rank = np.arange(job.ranks)
    node = rank // demand.node_ranks
    serving = queues.StorageQueues(storage, int(node[-1]) + 1, demand.servers)
    together = loop.access.readers if loop.access.by == "sample" else 1  # readers of a batch
    requests = demand.requests / together
    width = _count_files(demand) - 1 + storage.count_servers(demand.file_size)
    uses_all_servers = width >= storage.servers.number or job.ranks * width > _MOST_QUEUED
    opens, calls = demand.opens / together, demand.calls / together  # of a reader
    alone = call_seconds(demand, storage) * calls / max(demand.size, 1.0)  # seconds for each byte
    waits = _wait_of_requests(wait_of_call(demand, storage), calls)
    opening = _wait_of_requests(_wait_of_open(demand, storage), opens)
    served_opens = opens / storage.metadata if storage.metadata is not None else 0.0
    sizes, latencies, waited, behind, opened = (
        key(seed, purpose) for purpose in ("size", "latency", "wait", "save", "open")
    )
    find_file, find_share = _make_file_draws(demand, key(seed, "file")), _make_open_shares(demand)

    def read(step: int, begun: Floats, saving: FlushQueue) -> Floats:
        counter = step * job.ranks + rank
        size = _draw_sizes(demand, sizes, counter)
        server = None if uses_all_servers else find_file(step, rank) % storage.servers.number
        draws = uniforms(latencies, (counter[:, None] * together + np.arange(together)).ravel())
        of_readers = queues.sum_latencies(storage, requests, draws).reshape(-1, together)
        latency: Floats = of_readers.max(axis=1) / max(requests, 1.0) + storage.call_time  # of a request of the slowest
        # All files of a batch are opened before the first is read.
        ready = begun
        if opens:
            fresh = find_share(step)
            queued = serving.open(begun, demand.opens * fresh) + min(opens * fresh, 1.0) * latency
            taken = served_opens + draw(opening, opened, counter) + opens * latency
            ready = np.maximum(queued, begun + taken * fresh)
        served = serving.read(ready, size, node, server, width)
        wait = draw(waits, waited, counter)
        for flush, is_active in saving.list_active(begun):
            share = share_behind(flush, storage, server, width, storage.count_servers(demand.call))
            queued = np.maximum(draw(flush.on_server, behind, counter) * share, draw(flush.on_client, behind, counter))
            wait += np.where(is_active, queued, 0.0)
        # Calls of others are served during latencies: after a full queue only that of the last call is left.
        return np.maximum(served + latency, ready + size * alone + wait + calls * latency)

    return read


def requests_at_once(loop: Loop) -> int:
    """Return the number of readers of a rank that can be reading: no more than batches that may be ahead."""
    access, readers = loop.access, max(loop.access.readers, 1)
    return readers if access.by == "sample" else min(readers, max(access.prefetch, 1))


def call_seconds(demand: StepDemand, storage: StorageModel) -> float:
    """Return the time of a read call without its latency, if no other reads, in s."""
    rate = min(storage.client or math.inf, storage.stream or math.inf)
    return max(storage.server_seconds(demand.call), demand.call / rate)


def _wait_of_requests(wait: Distribution, number: float) -> Distribution:
    """Return for how long the requests of a batch wait for those of other readers, all together; in s.

    `wait` is that of each. `StorageQueues` has the wait of a batch that is one request.
    """
    mean, stdev, *_ = (*wait.parameters, 0.0)
    waiting = min(2 * max(number - 1, 0.0), number)
    if mean * waiting <= 0:
        return constant(0.0)
    return Distribution("gamma", (mean * waiting, stdev * math.sqrt(waiting)))


def _find_rhythm(demand: StepDemand, storage: StorageModel, customers: int) -> queues.Rhythm:
    """Return the calls of some readers, one after the other in each batch."""
    draws = uniforms(key(0, "rhythm"), np.arange(_CALLS // customers * customers)).reshape(customers, -1)
    latency = queues.sum_latencies(storage, 1, draws) + storage.call_time
    hops = demand.loop.shuffle.samples in _SHUFFLED
    part = demand.size / demand.loop.batch if hops else demand.file_size
    stripe = storage.stripe.size if storage.stripe is not None else part
    stay = max(round(min(part, stripe) / max(demand.call, 1.0)), 1)
    return queues.Rhythm(latency, max(round(demand.calls), 1), stay, hops)


def wait_of_call(demand: StepDemand, storage: StorageModel, others: int = 0) -> Distribution:
    """Return for how long a call waits for calls of readers, s; `others` call as readers do.

    It is served by its server and by its node together: the later one counts.
    """
    opening = demand.opens * (storage.request_latency + 1 / (storage.metadata or math.inf))
    # Steps that read begin together after a sync. Calls with a tail soon differ, and readers begin batch after batch.
    loop, ranks = demand.loop, demand.job.ranks
    together = loop.sync.kind != "off" and not loop.access.readers and storage.tail is None
    think = partial(_time_between, demand, storage, demand.calls, opening, together)

    alone, each, waits = call_seconds(demand, storage), _count_lanes(loop), []
    servers = demand.servers or storage.servers.number
    for service, customers, number in (
        (storage.server_seconds(demand.call), ranks * each + others, servers),
        (demand.call / (storage.client or math.inf), min(demand.node_ranks, ranks) * each + others, 1.0),
    ):
        few = not together and 2 <= customers <= _FEW
        rhythm = _find_rhythm(demand, storage, round(customers)) if few else None
        wait = queues.wait_of_calls(service, think, customers, number, rhythm)
        mean, stdev, *_ = (*wait.parameters, 0.0)
        waits.append((max(mean + service - alone, 0.0), stdev))
    mean, stdev = max(waits)
    return Distribution("gamma", (mean, stdev)) if mean > 0 else constant(0.0)


def _wait_of_open(demand: StepDemand, storage: StorageModel) -> Distribution:
    """Return for how long an open waits for those of other readers; in s."""
    if storage.metadata is None or not demand.opens:
        return constant(0.0)
    call = call_seconds(demand, storage) + wait_of_call(demand, storage).nonnegative_mean()
    reading = demand.calls * (call + storage.request_latency)
    think = partial(_time_between, demand, storage, demand.opens, reading, False)
    return queues.wait_of_calls(1 / storage.metadata, think, demand.job.ranks * _count_lanes(demand.loop), 1)


def _time_between(
    demand: StepDemand, storage: StorageModel, number: float, rest: float, together: bool, whole: float
) -> float:
    """Return the time from the end of a reader's request to its next one of the same kind; s.

    A batch has `number` of them, which take `whole` seconds each without their latency, and the `rest` seconds for
    others. Readers of ranks that sync read `together`, as steps begin together; others read at any time.
    """
    loop, cycle = demand.loop, whole + storage.request_latency
    lanes, taken = _count_lanes(loop), number * cycle + rest
    compute = _compute_seconds(loop) + storage.step_time
    step = max(compute if loop.access.readers else compute + taken, demand.step)
    if together:
        return cycle * max(lanes / max(taken / step, 1.0), 1.0) - whole
    return max(lanes * step, taken) / number - whole


def _count_lanes(loop: Loop) -> int:
    """Return the readers of a rank, or 1 if its steps read."""
    return requests_at_once(loop) if loop.access.readers else 1


def _compute_seconds(loop: Loop) -> float:
    """Return the mean time for which a step computes; s."""
    return loop.compute.time.nonnegative_mean() * (loop.batch if loop.compute.per_sample else 1)


def _make_file_draws(demand: StepDemand, stream: int) -> Callable[[int, Ints], Ints]:
    """Return the function of a step and of ranks to the file that each reads first; files of shuffled ones are random.

    Without a shuffle, and within a buffer, ranks go through the samples as `plan.samples.sampler` shards them.
    """
    loop, job, shuffle = demand.loop, demand.job, demand.loop.shuffle
    files, samples = demand.dataset.layout.files, demand.dataset.samples

    def find_place(step: int, rank: Ints) -> Ints:
        """Return the place in the order of the files."""
        if loop.shard == "by sample":
            position = (step * job.ranks + rank) * loop.batch
        elif loop.shard == "off":
            position = np.full(len(rank), step * loop.batch)
        else:
            position = rank * samples // job.ranks + step * loop.batch
        # As floats: samples times files may be more than an integer holds.
        return np.minimum(position % samples / samples * files, files - 1).astype(np.int64)

    def draw_file(step: int, rank: Ints) -> Ints:
        counter = step * job.ranks + rank if shuffle.samples in _SHUFFLED else find_place(step, rank)
        return (uniforms(stream, counter) * files).astype(np.int64)

    return draw_file if shuffle.samples in _SHUFFLED or shuffle.files != "off" else find_place


def _make_open_shares(demand: StepDemand) -> Callable[[int], float]:
    """Return the function of a step to its opens, as a share of the mean of all steps.

    A reader that keeps files open meets new ones less and less often, if samples are shuffled.
    """
    loop, dataset = demand.loop, demand.dataset
    each = dataset.samples / dataset.layout.files
    if loop.access.open == "each sample" or loop.shuffle.samples not in _SHUFFLED or each <= 1:
        return lambda step: 1.0
    part = loop.batch / (requests_at_once(loop) * dataset.samples)  # of all samples, that a reader reads in a step
    steps = steps_of_epoch(loop, dataset, demand.job.ranks)
    mean = (1 - max(1 - part * steps, 0.0) ** each) / (part * each * steps)
    return lambda step: max(1 - part * step, 0.0) ** (each - 1) / mean


def _count_files(demand: StepDemand) -> int:
    """Return the number of different files that a rank reads in a step, about."""
    loop, files = demand.loop, demand.dataset.layout.files
    if loop.shuffle.samples in _SHUFFLED:
        return max(round(files * (1 - (1 - 1 / files) ** loop.batch)), 1)
    return -(-loop.batch * files // demand.dataset.samples)


def _processing_seconds(loop: Loop) -> float:
    """Return the seconds for which a reader preprocesses a batch."""
    if loop.preprocess is None:
        return 0.0
    together = loop.access.readers if loop.access.by == "sample" else 1
    return loop.preprocess.time.nonnegative_mean() * loop.batch / together


def _draw_sizes(demand: StepDemand, stream: int, counter: Ints) -> Floats:
    """Return the bytes of a step of each rank, with the mean of `demand`; shape (ranks,)."""
    drawn, samples = demand.dataset.size, demand.loop.batch
    mean = drawn.nonnegative_mean() * samples
    if mean <= 0:
        return np.full(len(counter), demand.size)
    return _sum_draws(drawn, samples, stream, counter) * (demand.size / mean)


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
