"""Overhead of checkpoints: the share of the time in which saves held the ranks, without the making of contents."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.results.run_summary import RunSummary, SavePhase


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps of a loop that ran with, or without, a save in the background."""

    #: steps of all ranks
    steps: int
    #: mean time of a step, in s
    step_seconds: float
    #: mean time that a step waited for data, in s
    data_wait_seconds: float


@dataclass(frozen=True, slots=True)
class Overhead:
    """Time that saves held a loop, next to the time of its steps.

    Neither includes making contents, which no training job would do.
    """

    #: name of the loop; empty for all loops
    loop: str
    #: number of saves
    saves: int
    #: time that saves held the slowest rank, in s
    held_seconds: float
    #: time of the steps, without what was between them, in s
    steps_seconds: float

    @property
    def share(self) -> float | None:
        """Return the share of the time in which saves held the loop; None if there was no time."""
        whole = self.held_seconds + self.steps_seconds
        return self.held_seconds / whole if whole > 0 else None


@dataclass(frozen=True, slots=True)
class SaveTimes:
    """Saves of a checkpoint, in seconds of the slowest rank."""

    #: name
    checkpoint: str
    #: number of saves
    saves: int
    #: mean time held, in s
    held: float
    #: median flush, in s
    flush: float
    #: median time until complete, in s
    complete: float


def loop_overheads(run: RunSummary) -> list[Overhead]:
    """Return one overhead for each loop that saved something, all executions of the loop together."""
    names = dict.fromkeys(phase.within for phase in run.saves if phase.within is not None)
    overheads = []
    for name in names:
        steps = sum(epoch.loop_seconds for phase in run.loops if phase.name == name for epoch in phase.epochs)
        overheads.append(_overhead(name, [phase for phase in run.saves if phase.within == name], steps))
    return overheads


def total_overhead(run: RunSummary) -> Overhead | None:
    """Return the overhead of all saves, next to all loops and pauses; None without any save.

    Pauses count because they may stand for steps.
    """
    pauses = sum(phase.seconds for phase in run.phases if phase.kind == "pause")
    steps = sum(epoch.loop_seconds for epoch in run.epochs)
    return _overhead("", run.saves, steps + pauses) if run.saves else None


def save_times(run: RunSummary) -> list[SaveTimes]:
    """Return the times of each checkpoint that was saved."""
    groups: dict[str, list[VerbSummary]] = {}
    for phase in run.saves:
        groups.setdefault(phase.name, []).append(phase.verb)
    return [
        SaveTimes(
            name,
            len(verbs),
            statistics.fmean(one.longest_stall_seconds for one in verbs),
            statistics.median(one.flush_seconds.max for one in verbs),
            statistics.median(one.seconds for one in verbs),
        )
        for name, verbs in groups.items()
    ]


def flush_step_times(epochs: Sequence[EpochSummary]) -> tuple[StepTimes, StepTimes] | None:
    """Return the steps of epochs with a save in the background, and those without; None unless there are both."""
    flushing = _mean_steps([(one.flush_steps, one.flush_step_seconds, one.flush_data_wait_seconds) for one in epochs])
    clear = _mean_steps([(one.clear_steps, one.clear_step_seconds, one.clear_data_wait_seconds) for one in epochs])
    return (flushing, clear) if flushing and clear and clear.step_seconds > 0 else None


def _mean_steps(given: Sequence[tuple[int, float | None, float | None]]) -> StepTimes | None:
    known = [(steps, step, wait) for steps, step, wait in given if steps and step is not None and wait is not None]
    steps = sum(each for each, _, _ in known)
    if not steps:
        return None
    step, wait = (sum(one[0] * one[at] for one in known) / steps for at in (1, 2))
    return StepTimes(steps, step, wait)


def _overhead(loop: str, saves: Sequence[SavePhase], steps_seconds: float) -> Overhead:
    return Overhead(loop, len(saves), sum(one.verb.longest_stall_seconds for one in saves), steps_seconds)
