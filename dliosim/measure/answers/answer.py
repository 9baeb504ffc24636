"""The answer of a run: whether its storage feeds a loop, the evidence, and the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dliosim.measure.answers import validity
from dliosim.measure.answers.advice import Accepts, advise
from dliosim.measure.answers.intervals import Outcome, judge_bound, spread_over
from dliosim.measure.answers.sources import CountedEpochs, count_epochs
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, Reason, RunSummary, Spread
from dliosim.measure.results.verdicts import CANNOT_SAY, FEEDS, NO_STORAGE, NOT_ASKED, STARVES, TOO_CLOSE
from dliosim.model.expectation import GOAL

_VERDICTS = {Outcome.HELD: FEEDS, Outcome.MISSED: STARVES}


def answer_run(
    run: RunSummary,
    loops: Sequence[Sequence[LoopPhase]],
    goals: Mapping[str, float],
    accepts: Accepts,
    samples: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    disk: str = "",
) -> tuple[Answer, ...]:
    """Return the answer of each loop: `loops` has the runs of each, `goals` the goal of a loop that has its own.

    `samples` has the setting of each loop's number of samples, and that number; `disk` is a directory that is not in
    memory, as advice for data that are.
    """
    answers = []
    for runs in loops:
        name, goal = runs[0].name, goals.get(runs[0].name, GOAL)
        if all(phase.reads_nothing for phase in runs):
            answers.append(_answer_unread(name, [epoch for phase in runs for epoch in phase.epochs], goal))
            continue
        answer, waited = _answer_loop(run, runs, goal)
        advice = advise(run, runs, answer, waited, accepts, samples.get(name, {}), disk)
        answers.append(replace(answer, advice=tuple(advice)))
    return tuple(answers)


def _answer_loop(run: RunSummary, runs: Sequence[LoopPhase], goal: float) -> tuple[Answer, float]:
    """Return the answer of a loop without advice, and the share of its time spent waiting for a core."""
    counted = count_epochs(run, runs)
    some = counted.epochs
    alone = spread_over(some, lambda one: one.storage_utilization, lambda one: one.storage_utilization_error)
    alone = alone and Spread(alone.mean, max(alone.low, 0.0), min(alone.high, 1.0))
    waited, wait = validity.find_core_wait(run.environment, some, max(phase.readers for phase in runs))
    verdict, why = _judge(run.environment, runs, counted, alone, goal, waited, wait)
    answer = Answer(
        runs[0].name,
        verdict,
        (*counted.reasons, *why) if verdict in (FEEDS, STARVES) else (*why, *counted.reasons),
        counted.source,
        counted.from_storage,
        counted.numbers,
        goal,
        spread_over(some, lambda one: one.utilization),
        alone,
        spread_over(some, lambda one: _rate_for_goal(one, goal)),
        spread_over(some, storage_rate, _rate_error),
        (),
    )
    return answer, waited


def _answer_unread(loop: str, epochs: Sequence[EpochSummary], goal: float) -> Answer:
    """Return the answer of a loop that reads nothing: its storage has nothing to feed."""
    numbers = tuple(range(1, len(epochs) + 1))
    busy = spread_over(epochs, lambda one: one.utilization)
    return Answer(loop, NOT_ASKED, (Reason("reads_nothing"),), "null", False, numbers, goal, busy, None, None, None, ())


def _judge(
    environment: Environment,
    runs: Sequence[LoopPhase],
    counted: CountedEpochs,
    alone: Spread | None,
    goal: float,
    waited: float,
    wait: Reason,
) -> tuple[str, tuple[Reason, ...]]:
    """Return the verdict and its reasons; `waited`: share of the time spent waiting for a core; `wait`: as a reason."""
    if counted.source in ("null", "memory"):
        return NO_STORAGE, ()
    early = validity.doubt_of_prefetch(runs)
    if early:
        return NO_STORAGE, (early,)
    if alone is None:
        if not any(epoch.compute_seconds.max > 0 for phase in runs for epoch in phase.epochs):
            return NOT_ASKED, (Reason("no_compute"),)
        if max(epoch.steps for phase in runs for epoch in phase.epochs) < 2:
            return NO_STORAGE, (Reason("single_step"),)
        return NOT_ASKED, (Reason("requests"),)
    if not counted.from_storage and alone.high >= goal:
        return NO_STORAGE, ()
    epochs = counted.epochs
    if short := validity.doubt_of_memory(environment, runs, epochs) or validity.doubt_of_length(epochs):
        return CANNOT_SAY, (short,)
    outcome, doubt = judge_bound(alone, goal, True, waited, wait)
    if doubt and alone.high >= goal:
        return TOO_CLOSE, (doubt.extend(low=alone.low, high=alone.high),)
    if doubt:
        return CANNOT_SAY, (doubt,)
    wait = wait.extend(is_too_small=True) if outcome is Outcome.MISSED else wait
    reasons = [wait] if waited >= validity.CORE_WAIT_LIMIT else []
    if len(counted.numbers) == 1 and epochs[0].storage_utilization_error is None:
        reasons.append(Reason("error_unknown"))
    return _VERDICTS[outcome], tuple(reasons)


def storage_rate(epoch: EpochSummary) -> float | None:
    """Return the bytes/s that storage gives the steps after the first; bytes that it serves once count once."""
    if epoch.null or not epoch.bytes or epoch.storage_step_seconds <= 0:
        return None
    return epoch.steady_bytes * epoch.bytes_once / epoch.bytes / epoch.storage_step_seconds


def _rate_for_goal(epoch: EpochSummary, goal: float) -> float | None:
    rate = storage_rate(epoch)
    return None if rate is None or not epoch.storage_utilization else rate * goal / epoch.storage_utilization


def _rate_error(epoch: EpochSummary) -> float | None:
    """Return the standard error of `storage_rate` within an epoch: relative to it, that of the utilization."""
    rate, error = storage_rate(epoch), epoch.storage_utilization_error
    return rate * error / epoch.storage_utilization if rate and error and epoch.storage_utilization else None
