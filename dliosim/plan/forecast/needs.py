"""The needs of a workload for storage and memory, in few figures: the answer of `dliosim plan`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from dliosim.model import Cadence, Loop, Stage, StorageModel, Workload
from dliosim.model.epoch_size import moves_samples
from dliosim.model.verbs import loops_after
from dliosim.plan.forecast.checkpoint_footprint import save_intervals
from dliosim.plan.forecast.checkpoint_interval import LOSS
from dliosim.plan.forecast.forecast import loops_of
from dliosim.plan.forecast.forecast_types import Demand, Forecast, PhaseForecast, StateForecast

Bound: TypeAlias = Literal["bandwidth", "opens", "compute"]


@dataclass(frozen=True, slots=True)
class StorageRates:
    """The rates of a storage for all ranks together; None: not known, so that it limits nothing."""

    bandwidth: float | None = None  #: B/s
    opens: float | None = None  #: opens/s
    local: float | None = None  #: B/s of a node's own root, which `stage` copies to
    local_space: float | None = None  #: bytes that a node's own root has room for


def storage_rates(storage: StorageModel, nodes: int) -> StorageRates:
    """Return the rates of a storage for the ranks of some nodes together."""
    servers, clients = storage.servers.number * storage.servers.rate, nodes * (storage.client or math.inf)
    return StorageRates(min(servers, clients), storage.metadata)


#: A storage without known rates.
UNLIMITED: Final = StorageRates()


@dataclass(frozen=True, slots=True)
class Reach:
    """The most that a loop reaches with the rates of a storage."""

    utilization: float  #: storage-limited utilization; of requests: the share that storage keeps up with
    bound: Bound  #: rate that limits it


@dataclass(frozen=True, slots=True)
class LoopNeeds:
    """The storage needs of a loop; bytes and B/s of all ranks together."""

    loop: Loop  #: the loop
    demand: Demand | None  #: rates of one rank in the first epoch; None without compute
    epoch_bytes: float  #: bytes asked in the first epoch
    estimated: bool  #: true if these are an estimate
    epochs: int  #: epochs, or passes that requests make
    node_bytes: float  #: bytes that a node reads in an epoch; what several of its ranks read counts once
    data_bytes: float  #: different bytes that a node reads in all epochs
    #: greatest share of the last epoch's bytes that the page cache of a node can have from the epochs before
    memory_share: float
    amplification: float | None  #: bytes that calls move for each byte asked, if units or pages are read whole
    opens_per_second: float | None  #: opens of all ranks in a second of the first epoch for the goal; None as `demand`
    calls_per_second: float | None  #: read calls, likewise
    reach: Reach | None  #: None without `demand`, and if no rate of the storage is known


@dataclass(frozen=True, slots=True)
class SaveNeeds:
    """The storage needs of a checkpoint's saves; bytes and B/s of all ranks together."""

    state: StateForecast  #: the checkpoint
    cadence: Cadence | None  #: when a loop saves it; None if only a verb does
    background: bool  #: true if ranks continue while it is written
    interval: float | None  #: seconds of compute between two saves; None if the pattern does not say
    #: rate at which a save takes a given share of the time, or in the background all of the interval; None without an
    #: interval, if making the bytes takes longer, and if `scale` may have made the interval shorter
    rate: float | None


def memory_left(forecast: Forecast, memory: float) -> float:
    """Return the bytes of a node's memory that its ranks leave."""
    return max(memory - forecast.node_bytes, 0.0)


def loop_needs(
    workload: Workload, forecast: Forecast, memory: float, storage: StorageRates = UNLIMITED
) -> Iterator[LoopNeeds]:
    """Yield what each loop needs, and reaches with a storage; `memory` is a node's, in bytes."""
    room = memory_left(forecast, memory)
    for loop in loops_of(workload.verbs):
        phases = [one for one in forecast.phases if (one.verb, one.name) == (loop.kind, loop.name)]
        if not phases or not phases[0].samples.total:
            continue
        first, epochs = phases[0], sum(one.times for one in phases)
        seen, each, data = _node_data(workload, loop, first, epochs)
        cold = loop.access.cache == "off" or loop.cold_within is not None
        share = 0.0 if cold or not data else min(seen, room / data)
        asked = first.bytes
        # With O_DIRECT storage serves each rank; the page cache of a node serves its other ranks.
        stored = asked.total if loop.access.cache == "off" else each * workload.job.nodes
        yield LoopNeeds(
            loop,
            first.demand,
            asked.total,
            asked.estimated,
            epochs,
            each,
            data,
            share,
            first.amplification,
            first.per_second(first.opens),
            first.per_second(first.calls),
            _find_reach(loop.access.readers > 0, first, stored, storage),
        )


def _find_reach(overlapped: bool, first: PhaseForecast, stored: float, storage: StorageRates) -> Reach | None:
    """Return the most that a loop reaches in its first epoch, for which storage gives `stored` bytes."""
    rates: list[tuple[float, Bound]] = []
    if storage.bandwidth is not None:
        rates.append((stored / first.steps / storage.bandwidth, "bandwidth"))
    if storage.opens is not None:
        rates.append((first.opens.total / first.steps / storage.opens, "opens"))
    if not rates or (demand := first.demand) is None:
        return None
    reading, bound = max(rates)
    if demand.goal is None:
        reached = min(1.0, demand.budget / reading) if reading else 1.0
    else:
        reached = demand.least / (max(demand.least, reading) if overlapped else demand.least + reading)
    return Reach(reached, bound if reached < 1 else "compute")


@dataclass(frozen=True, slots=True)
class StageNeeds:
    """The needs of a `stage` verb, and when it pays; times without what page caches save."""

    verb: Stage  #: the verb
    node_bytes: float  #: bytes of a node's copy
    estimated: bool  #: true if these are an estimate
    fits: bool  #: false if a node's own root has no room for it
    #: time of all copies; this and the next two None if a rate is not known, or no loop reads the data
    copy_seconds: float | None
    shared_seconds: float | None  #: time of an epoch of the first loop that reads the data, from where they are
    local_seconds: float | None  #: the same from the copies

    @property
    def pays_from(self) -> float | None:
        """Epoch at whose end the copies have saved more time than they took; inf if never, None if not known.

        In the background: the first epoch that may begin with complete copies.
        """
        if self.copy_seconds is None or self.shared_seconds is None or self.local_seconds is None:
            return None
        saved = self.shared_seconds - self.local_seconds
        if saved <= 0:
            return math.inf
        each = saved if self.verb.copy == "before" else self.shared_seconds
        return math.floor(self.copy_seconds / each) + 1


def stage_needs(workload: Workload, forecast: Forecast, memory: float, storage: StorageRates) -> Iterator[StageNeeds]:
    """Yield what each `stage` verb needs; arguments as of `loop_needs`."""
    loops = {needs.loop.name: needs for needs in loop_needs(workload, forecast, memory)}
    phases = {(one.verb, one.name): one for one in reversed(forecast.phases)}
    copied = {one.name: one for one in forecast.storage if one.kind == "copy"}
    for verb in dict.fromkeys(workload.stages()):
        each, times = copied[verb.dataset], None
        read = next((loop for loop in loops_after(verb, workload.verbs) if loop.name in loops), None)
        if read is not None and storage.bandwidth is not None and storage.local is not None:
            copying = max(each.bytes * each.copies / storage.bandwidth, each.bytes / storage.local)
            first, node_bytes = phases[read.kind, read.name], loops[read.name].node_bytes
            shared = _epoch_seconds(first, read, node_bytes * each.copies / storage.bandwidth)
            times = copying, shared, _epoch_seconds(first, read, node_bytes / storage.local)
        fits = storage.local_space is None or each.bytes <= storage.local_space
        yield StageNeeds(verb, each.bytes, each.estimated, fits, *(times or (None, None, None)))


def _epoch_seconds(first: PhaseForecast, loop: Loop, reading: float) -> float:
    """Return the time of an epoch whose reads take `reading` seconds, which readers overlap with steps."""
    steps = first.steps * first.demand.least if first.demand else 0.0
    return max(steps, reading) if loop.access.readers else steps + reading


def save_needs(workload: Workload, forecast: Forecast, loss: float = LOSS) -> Iterator[SaveNeeds]:
    """Yield what the saves of each checkpoint need, for the shortest interval of any loop.

    Saves that block may take `loss` of the time.
    """
    for state in forecast.states:
        checkpoint = workload.checkpoint(state.checkpoint)
        found = [(each or math.inf, cadence) for cadence, each in save_intervals(workload, state.checkpoint)]
        between = min((each for each, _ in found), default=math.inf)
        background = checkpoint.background is not None
        making = checkpoint.serialize.duration(state.most) if checkpoint.serialize else 0.0
        left = (between if background else between * loss / (1 - loss)) - making
        known = between < math.inf
        yield SaveNeeds(
            state,
            next((cadence for each, cadence in found if each == between), None),
            background,
            between if known else None,
            state.bytes / left if known and left > 0 and workload.scale <= 1 else None,
        )


def _node_data(workload: Workload, loop: Loop, first: PhaseForecast, epochs: int) -> tuple[float, float, float]:
    """Return what a node reads: its share of the last epoch that it has read before, bytes of an epoch, and of all."""
    dataset = workload.dataset(loop.dataset)
    # A mixture does not read all samples of all data sets in an epoch, or some of them several times.
    stored = sum(one.samples * one.size.nonnegative_mean() for one in dataset.members)
    share = stored / (dataset.samples * dataset.size.nonnegative_mean())
    whole = first.bytes.total * dataset.samples / first.samples.total * share
    each = min(whole, first.bytes.total / workload.job.nodes)
    if not moves_samples(loop):
        return float(epochs > 1), each, each
    # Each epoch is another draw: a sample is new with the same probability each time.
    new = 1 - each / whole if whole else 0.0  # files may hold no byte of the samples, as where a chunk is a fill value
    return 1 - new ** (epochs - 1), each, whole * (1 - new**epochs)
