"""Predictions of loops: how busy accelerators would be with a storage that is described, and what would limit them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from dliosim.errors import HELP, UsageError
from dliosim.model import Loop, Sources, StorageModel, Workload
from dliosim.model.storage import list_ends
from dliosim.plan.forecast.forecast_types import Forecast
from dliosim.plan.predict import virtual_epoch
from dliosim.plan.predict.saves import BatchCalls, Flush, SavePrediction, list_flushes, predict_saves, share_behind

#: Predictions of the same epoch with other draws of sizes, servers, latencies and compute.
DRAWS: Final = 5

#: Short epochs in which the waits of calls and the time of a step, which each depend on the other, come to agree.
_PROBES: Final = 3
_PROBE_STEPS: Final = 40

#: Steps of an epoch that are predicted, at most; more are like these.
_MOST_STEPS: Final = 500

#: Steps of all ranks that are predicted, unless that is less than `_FEWEST_STEPS` of each.
_MOST_OF_ALL: Final = 1 << 23
_FEWEST_STEPS: Final = 32

#: From this utilization on, nothing but compute limits a loop.
_BUSY: Final = 0.98

#: The share of the time lost in a step from which on the ranks' own time is what limits a loop.
_MOST_OF_LOSS: Final = 0.5

#: What may limit a loop; `latency` is a rank's own chain of requests, `step` its own time for a step.
Limit: TypeAlias = Literal["compute", "step", "servers", "clients", "opens", "latency", "saves"]
_READS: Final[tuple[Limit, ...]] = ("servers", "clients", "opens", "latency", "saves")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The first epoch of a loop on a storage that is described; figures are means over the draws."""

    loop: Loop  #: the loop
    utilization: float  #: storage-limited utilization
    lowest: float  #: the lowest of the draws, and with all that is uncertain at its worse end
    highest: float  #: the highest of the draws, and with all that is uncertain at its better end
    step: float  #: time of a step after the first; seconds
    ideal_step: float  #: the same if reads took no time
    first_step: float  #: time of the first step, in which nothing was read ahead; seconds
    steps: int  #: steps that were predicted
    rate: float  #: bytes per second of all ranks
    limit: Limit  #: what limits the loop
    servers: int  #: servers that have a part of the files
    #: seconds of a step that each part would take alone
    alone: dict[Limit, float]
    call: float  #: mean bytes of a read call
    epoch_steps: int  #: steps of the epoch
    saves: tuple[SavePrediction, ...]  #: saves and restores of the workload

    @property
    def epoch_seconds(self) -> float:
        """Return the time of the epoch; seconds."""
        return self.first_step + (self.epoch_steps - 1) * self.step

    @property
    def is_read_ahead(self) -> bool:
        """Return whether all steps after the first may be read during the first, so that utilization says nothing."""
        return self.steps - 1 <= self.loop.access.prefetch


def predict_loop(
    workload: Workload, loop: Loop, planned: Forecast, storage: StorageModel, node_ranks: int
) -> Prediction:
    """Return the prediction of a loop's first epoch and of all saves; UsageError for what the model cannot tell.

    Each node has `node_ranks` ranks, the last one those that are left.
    """
    _refuse_unmodelled(loop)
    refuse_copies(workload)
    epoch = next(one for one in planned.phases if (one.verb, one.name) == (loop.kind, loop.name))
    saves = tuple(predict_saves(workload, planned, storage, node_ranks))
    job = workload.job
    steps = min(epoch.steps, _MOST_STEPS, max(_MOST_OF_ALL // job.ranks, _FEWEST_STEPS))
    shares = job.ranks * epoch.steps
    size = epoch.bytes.total * (epoch.amplification or 1.0) / shares
    opens, calls = epoch.opens.total / shares, epoch.calls.total / shares
    dataset = workload.dataset(loop.dataset)
    asked = size, calls + opens, opens, max(calls, 1.0)
    demand, files = virtual_epoch.StepDemand(loop, dataset, job, node_ranks, *asked), dataset.layout.files
    probed, short = storage.select_servers(files, demand.file_size), min(steps, _PROBE_STEPS)
    demand = replace(demand, servers=probed.even_servers(files, demand.file_size))
    for _ in range(_PROBES):
        probe = virtual_epoch.run_epoch(demand, short, probed, workload.seed)
        step = (probe.others or probe.first) / max(short - 1, 1)
        demand = replace(demand, step=(demand.step + step) / 2 if demand.step else step)

    def place_files(whole: StorageModel) -> tuple[StorageModel, list[Flush]]:
        """Return the servers that have files of the loop, and the saves in the background, which reads slow."""
        used = whole.select_servers(files, demand.file_size)
        batch = BatchCalls(
            demand.calls / (loop.access.readers if loop.access.by == "sample" else 1),
            used.request_latency + virtual_epoch.call_seconds(demand, used),
            not loop.access.readers,
            virtual_epoch.wait_of_call(demand, used, others=1).nonnegative_mean(),
        )
        return used, list_flushes(workload, loop, planned, whole, node_ranks, batch)

    def run(one: StorageModel | None, draw: int, writes: Sequence[Flush] = ()) -> virtual_epoch.EpochTimes:
        return virtual_epoch.run_epoch(demand, steps, one, workload.seed + draw, writes)

    ends = [place_files(one) for one in list_ends(storage)]
    storage, flushes = place_files(storage)
    times = [run(storage, draw, flushes) for draw in range(DRAWS)]
    times_at_ends = [run(used, 0, writes) for used, writes in ends]
    slowed = {
        flush.cadence.checkpoint: (flush.seconds, tuple(writes[number].seconds for _, writes in ends))
        for number, flush in enumerate(flushes)
    }
    saves = tuple(one.slow_down(*slowed[one.checkpoint]) if one.checkpoint in slowed else one for one in saves)
    # Without a storage only compute may be drawn.
    same = loop.compute.time.is_constant
    ideal = [run(None, 0)] * DRAWS if same else [run(None, draw) for draw in range(DRAWS)]
    # Without a second step the first one is all there is.
    taken, least, at_ends = ([one.others or one.first for one in each] for each in (times, ideal, times_at_ends))
    reached = [min(without / time, 1.0) for without, time in zip(least, taken, strict=True)]
    outer = [min(least[0] / time, 1.0) for time in at_ends]
    step, ideal_step = (statistics.fmean(each) / max(steps - 1, 1) for each in (taken, least))
    alone = _seconds_alone(demand, storage, ideal_step)
    alone["saves"] = sum(_flush_seconds(each, demand, step, storage) for each in flushes)
    mean = statistics.fmean(reached)
    return Prediction(
        loop,
        mean,
        min(reached + outer),
        max(reached + outer),
        step,
        ideal_step,
        statistics.fmean(one.first for one in times),
        steps,
        size * job.ranks / step if step > 0 else math.inf,
        _find_limit(mean, step - ideal_step, alone),
        storage.servers.number,
        alone,
        demand.call,
        epoch.steps,
        saves,
    )


def _find_limit(busy: float, lost: float, alone: dict[Limit, float]) -> Limit:
    """Return what limits a loop whose steps lose some seconds; `alone` as in `Prediction`."""
    if busy >= _BUSY:
        return "compute"
    # Reads are hidden behind compute, the ranks' own time is not.
    return "step" if alone["step"] > _MOST_OF_LOSS * lost else max(_READS, key=lambda part: alone[part])


def _seconds_alone(demand: virtual_epoch.StepDemand, storage: StorageModel, compute: float) -> dict[Limit, float]:
    """Return the seconds of a step that compute, each part of a storage, and a rank's chain of requests take."""
    loop, ranks = demand.loop, demand.job.ranks
    chain = demand.requests * storage.request_latency
    wait = virtual_epoch.wait_of_call(demand, storage).nonnegative_mean()
    chain += demand.calls * (virtual_epoch.call_seconds(demand, storage) + wait)
    return {
        "compute": compute,
        "step": storage.step_overhead(ranks if loop.sync.kind != "off" and loop.sync.every == 1 else 1),
        "servers": demand.size * ranks / (storage.servers.number * storage.servers.rate),
        "clients": demand.size * min(demand.node_ranks, ranks) / (storage.client or math.inf),
        "opens": demand.opens * ranks / (storage.metadata or math.inf),
        "latency": chain / virtual_epoch.requests_at_once(loop),
    }


def _flush_seconds(flush: Flush, demand: virtual_epoch.StepDemand, step: float, storage: StorageModel) -> float:
    """Return the seconds for which the calls of a step wait for a save in the background, mean over all steps."""
    share = share_behind(flush, storage, None, storage.servers.number, storage.count_servers(demand.call))
    wait = max(flush.on_server.nonnegative_mean() * float(share[0]), flush.on_client.nonnegative_mean())
    at_once = 1 if demand.loop.access.by == "sample" else virtual_epoch.requests_at_once(demand.loop)
    return flush.share_of_time(step) * wait / at_once


def refuse_copies(workload: Workload) -> None:
    """Raise UsageError, on every rank, if a verb stages data: a storage has no description of the nodes' own."""
    for verb in workload.stages():
        text = (
            f"`stage {verb.dataset} to {verb.root}`: a storage description covers shared storage only; it has no "
            "node-local root"
        )
        hint = f'`-D "stage {verb.dataset}.copy=off"` reads {verb.dataset} where it is'
        raise UsageError(f"{text}{HELP}{hint}").mark_shared()


def _refuse_unmodelled(loop: Loop) -> None:
    """Raise UsageError for a loop whose waits the model has no means for."""
    hint = "`dliosim plan PATTERN --storage FILE` says what is reached at most"
    if isinstance(loop.dataset, Sources):
        raise UsageError(f"{loop.name}: reads of several data sets are not predicted{HELP}{hint}")
    if loop.arrivals is not None:
        raise UsageError(f"{loop.name}: the latency of requests is not predicted{HELP}{hint}")
    if loop.access.collective:
        text = f"{loop.name}: what the two phases of a collective read take is not predicted"
        raise UsageError(f"{text}{HELP}{hint}; `-D {loop.name}.api=posix` is predicted")
