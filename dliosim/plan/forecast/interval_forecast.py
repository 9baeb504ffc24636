"""The cost of failures for a workload's checkpoints, forecast before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from dliosim.model import Checkpoint, Workload
from dliosim.plan.forecast.checkpoint_footprint import forecast_state, save_intervals
from dliosim.plan.forecast.checkpoint_interval import LOSS, Costs, best_interval, compute_waste, daly_interval
from dliosim.plan.forecast.forecast_types import Forecast, StateForecast

#: Bandwidths of all ranks together, in B/s: rows of the table if no bandwidth is given.
BANDWIDTHS = (1e9, 10e9, 100e9, 1e12)


@dataclass(frozen=True, slots=True)
class FailureModel:
    """The options on failures and storage; seconds, and B/s of all ranks together."""

    mtbf: float  #: mean time between failures of the job
    save_time: float | None = None  #: time that a save holds the ranks; None: computed from a bandwidth
    bandwidth: float | None = None  #: rate of writing; None: not given
    #: from a failure until work continues; None: the time to read what all ranks restore, at the rate at which a save
    #: is written
    restart_time: float | None = None
    loss: float = LOSS  #: share of the time that saves and failures may cost


@dataclass(frozen=True, slots=True)
class Risk:
    """The costs of a save and a failure at one bandwidth."""

    bandwidth: float | None  #: B/s of all ranks together; None: the save time is given
    costs: Costs  #: times of a save and a failure


@dataclass(frozen=True, slots=True)
class StateRisks:
    """The costs of one checkpoint."""

    state: StateForecast  #: forecast of the checkpoint: of all of it where the workload saves a part
    risks: tuple[Risk, ...]  #: one for each bandwidth
    #: (text, seconds) of the intervals of the pattern's loops; none if these save a part, or with a `scale`
    own: tuple[tuple[str, float], ...]
    knows_stall: bool  #: false for background saves whose copy to buffers has no pace: the copy counts as 0 s
    part_of: str = ""  #: part that the workload saves; empty if it is all
    ranks: int = 0  #: ranks that save the checkpoint
    #: bandwidth, in B/s, with which `FailureModel.loss` is lost in all; None if the save time is given, and if no
    #: bandwidth loses so little
    needed: float | None = None
    #: of saves in the background: bandwidth, in B/s, with which a flush ends before the next save at the best interval;
    #: None without, if the stall is unknown, and if no bandwidth is enough
    flush_rate: float | None = None


def forecast_risks(workload: Workload, forecast: Forecast, failures: FailureModel) -> Iterator[StateRisks]:
    """Yield the cost of failures for each checkpoint that a workload saves, for all of it if it saves a part.

    The costs of a part do not scale to the whole: calls, syncs and renames do not shrink with the bytes.
    """
    for state in forecast.states:
        checkpoint, ranks = workload.checkpoint(state.checkpoint), workload.job.ranks
        # The save time of one in the background is that of its copy: its flush needs a bandwidth, too.
        is_timed = failures.save_time is not None and checkpoint.background is None
        is_given = failures.bandwidth is not None or is_timed
        rates: tuple[float | None, ...] = (failures.bandwidth,) if is_given else BANDWIDTHS
        whole = state
        if state.part_of:
            checkpoint = checkpoint.complete(ranks)
            ranks = checkpoint.split(ranks).ranks
            whole = forecast_state(checkpoint, ranks, state.saves)
            whole = replace(whole, restored=state.restored * whole.bytes / max(state.bytes, 1))
        each = tuple(Risk(rate, _failure_costs(checkpoint, whole, failures, rate)) for rate in rates)
        background = checkpoint.background
        known = background is None or background.staging is not None or failures.save_time is not None
        own = tuple(
            ("" if cadence.unit == "seconds" else f"{cadence.every} {cadence.unit}", between)
            for cadence, between in save_intervals(workload, checkpoint.name)
            if between is not None and not state.part_of and workload.scale <= 1
        )
        needed = None
        if known and not is_timed:
            needed = _find_rate(partial(_failure_costs, checkpoint, whole, failures), failures.loss)
        flushed = _find_flush_rate(checkpoint, whole, failures) if known and background is not None else None
        yield StateRisks(whole, each, own, known, state.part_of, ranks, needed, flushed)


def _find_flush_rate(checkpoint: Checkpoint, state: StateForecast, failures: FailureModel) -> float | None:
    """Return the bandwidth with which a flush takes no longer than Daly's interval, B/s; None if none is enough."""
    costs = _failure_costs(checkpoint, state, failures, None)
    left = daly_interval(costs.stall, costs.mtbf) - costs.flush  # without a rate, a flush is the time of serializing
    return state.bytes / left if left > 0 else None


def _find_rate(costs_at: Callable[[float], Costs], loss: float) -> float | None:
    """Return the bandwidth at which the best interval loses `loss`, B/s; None if any loses more."""

    def is_enough(rate: float) -> bool:
        costs = costs_at(rate)
        return compute_waste(best_interval(costs), costs).total <= loss

    slow, fast = 1.0, 1e18
    if not is_enough(fast):
        return None
    while fast > 1.001 * slow:
        middle = math.sqrt(slow * fast)
        slow, fast = (slow, middle) if is_enough(middle) else (middle, fast)
    return fast


def _failure_costs(checkpoint: Checkpoint, state: StateForecast, failures: FailureModel, rate: float | None) -> Costs:
    moving = state.bytes / rate if rate else 0.0
    saving = moving + (checkpoint.serialize.duration(state.most) if checkpoint.serialize else 0.0)
    background = checkpoint.background
    stall, flush = saving, 0.0
    if background is not None:
        # Nothing says how long a copy takes that is as fast as memory.
        stall, flush = background.staging.duration(state.most) if background.staging else 0.0, saving
    if failures.save_time is not None:
        stall = failures.save_time
    restart = failures.restart_time
    if restart is None:
        restart = state.restored / rate if rate else stall * state.restored / max(state.bytes, 1)
    return Costs(failures.mtbf, stall, restart, flush)
