"""What failures of the job would cost a workload's checkpoints, before anything was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dliosim.model import Background, Checkpoint
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import Loop, flatten_verbs
from dliosim.model.workload import Workload
from dliosim.plan.forecast.checkpoint_counts import save_interval
from dliosim.plan.forecast.checkpoint_interval import Costs
from dliosim.plan.forecast.forecast_types import Forecast, StateForecast

#: Bandwidths of all ranks together, in B/s, that stand below each other where none is given.
BANDWIDTHS = (1e9, 10e9, 100e9, 1e12)


@dataclass(frozen=True, slots=True)
class FailureModel:
    """What is known of the job: its MTBF, and what is said of its storage; seconds, and B/s of all ranks together.

    Of `save_time` and `bandwidth` one may do: how long a save holds the ranks is then taken from it. Without
    `restart_time` a restart takes as long as reading what all ranks restore, as fast as a save is written.
    """

    mtbf: float
    save_time: float | None = None
    bandwidth: float | None = None
    restart_time: float | None = None


@dataclass(frozen=True, slots=True)
class Risk:
    """What a save and a failure cost at one bandwidth (None: at the save time given)."""

    bandwidth: float | None
    costs: Costs


@dataclass(frozen=True, slots=True)
class StateRisks:
    """The costs of one checkpoint, a `Risk` for each bandwidth; `own` are its intervals, as said and in seconds.

    There are none where what is saved is a part of what the checkpoint is named for: not all a save costs shrinks so.
    `knows_stall` is false of saves in the background whose copy to buffers has no pace: it counts as none.
    """

    state: StateForecast
    risks: tuple[Risk, ...]
    own: tuple[tuple[str, float], ...]
    knows_stall: bool


def forecast_risks(workload: Workload, forecast: Forecast, failures: FailureModel) -> Iterator[StateRisks]:
    """What failures cost each checkpoint that a workload saves."""
    rates: tuple[float | None, ...] = BANDWIDTHS
    if failures.bandwidth is not None or failures.save_time is not None:
        rates = (failures.bandwidth,)
    for state in forecast.states:
        checkpoint = workload.checkpoint(state.checkpoint)
        each = tuple(
            Risk(rate, _failure_costs(checkpoint, state, failures, rate)) for rate in rates if not state.part_of
        )
        background = checkpoint.background
        known = background is None or background.staging is not None or failures.save_time is not None
        yield StateRisks(state, each, tuple(_save_intervals(workload, checkpoint)), known)


def _failure_costs(checkpoint: Checkpoint, state: StateForecast, failures: FailureModel, rate: float | None) -> Costs:
    moving = state.bytes / rate if rate else 0.0
    saving = moving + (checkpoint.serialize.duration(state.most) if checkpoint.serialize else 0.0)
    background = checkpoint.background
    stall, flush = (saving, 0.0) if background is None else (_staging_seconds(background, state), saving)
    if failures.save_time is not None:
        stall = failures.save_time
    restart = failures.restart_time
    if restart is None:
        restart = state.restored / rate if rate else stall * state.restored / max(state.bytes, 1)
    return Costs(failures.mtbf, stall, restart, flush)


def _staging_seconds(background: Background, state: StateForecast) -> float:
    """Seconds of the copy to buffers; of one that is as fast as memory none, as nothing says how fast that is."""
    return background.staging.duration(state.most) if background.staging else 0.0


def _save_intervals(workload: Workload, checkpoint: Checkpoint) -> Iterator[tuple[str, float]]:
    """The intervals in which loops save a checkpoint, as their lines say it, and as far as they can be had in time."""
    for verb, _ in flatten_verbs(workload.verbs):
        if not isinstance(verb, Loop):
            continue
        steps = steps_of_epoch(verb, workload.dataset(verb.dataset), workload.job.ranks)
        for cadence in verb.checkpoints:
            between = save_interval(verb, cadence, steps)
            if cadence.checkpoint == checkpoint.name and between is not None:
                unit = "" if cadence.unit == "seconds" else f"{cadence.every} {cadence.unit}"
                yield unit, between
