"""The answers of a run: whether its storage feeds a loop, the evidence and the next step; and of its `expect` lines."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from dliosim.measure.answers import validity
from dliosim.measure.answers.advice import Accepts, advise
from dliosim.measure.answers.intervals import Outcome, judge_bound, spread_over
from dliosim.measure.answers.sources import CountedEpochs, count_epochs
from dliosim.measure.answers.validity import doubt_of_checks, doubt_of_length, doubt_of_memory, find_core_wait
from dliosim.measure.figures import aggregate
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, ExpectationResult, Reason, RunSummary, Spread, select_epochs
from dliosim.measure.results.verdicts import CANNOT_SAY, FEEDS, NO_STORAGE, NOT_ASKED, STARVES, TOO_CLOSE
from dliosim.model import Expectation
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


def evaluate(expectations: Sequence[Expectation], run: RunSummary) -> tuple[ExpectationResult, ...]:
    """Return the result of each line, over the epochs that count for the answer of its loop (`RunSummary.answers`).

    A figure that could not be measured does not hold. A line is missed, or holds, by the rule of the answer
    (`intervals.judge_bound`): by the interval of the figure, both as measured and after subtracting the time that ranks
    or readers waited for a core and that compute took too long. If the rule decides nothing, the figure is only
    reported.
    """
    answers = {answer.loop: answer for answer in run.answers}
    return tuple(_check_expectation(one, run, answers.get(one.loop)) for one in expectations)


def _check_expectation(line: Expectation, run: RunSummary, answer: Answer | None) -> ExpectationResult:
    loops = [phase for phase in run.loops if phase.name == line.loop]
    epochs = [epoch for phase in loops for epoch in phase.epochs]
    if answer is None or not epochs:
        return ExpectationResult(line.text, None, line.unit, False, ())
    counted = select_epochs(epochs, answer)
    numbers = answer.epochs or tuple(range(1, len(epochs) + 1))
    measure = _MEASURES.get((line.figure, line.unit), partial(_mean, line.figure))
    measured, is_utilization = measure(counted), line.figure == "utilization"
    interval = answer.storage_utilization if is_utilization else spread_over(counted, lambda epoch: measure([epoch]))
    is_within = operator.ge if line.bound == "at least" else operator.le
    held = measured is not None and is_within(measured, line.value)
    reason = _no_storage_reason(run, answer, is_utilization)
    reason = reason or doubt_of_memory(run.environment, loops, counted) or doubt_of_length(counted)
    if not reason and measured is not None and interval is not None:
        half = interval.high - interval.mean
        around = interval if is_utilization else Spread(measured, measured - half, measured + half)
        excused, excuse = _find_excuse(line, run, counted, max(phase.readers for phase in loops))
        _, reason = judge_bound(around, line.value, line.bound == "at least", excused, excuse)
    return ExpectationResult(line.text, measured, line.unit, held, numbers, reason)


def _no_storage_reason(run: RunSummary, answer: Answer, is_utilization: bool) -> Reason | None:
    """Return why a figure of the epochs of an answer is not storage's; None if it is."""
    if not answer.from_storage:
        return answer.reasons[0]
    if is_utilization and answer.verdict in (NO_STORAGE, NOT_ASKED):
        return next(iter(answer.reasons), None)
    return doubt_of_checks(run)


def _find_excuse(
    line: Expectation, run: RunSummary, epochs: Sequence[EpochSummary], readers: int
) -> tuple[float, Reason]:
    """Return the share of the time that something else than storage took, and what it was.

    0 if without it the figure would be even further from what is asked.
    """
    waited, wait = find_core_wait(run.environment, epochs, readers)
    if (line.bound == "at least") == (line.figure == "p99"):
        return 0.0, wait
    slept = sum(one.late_compute_seconds for one in epochs) / sum(one.loop_seconds for one in epochs)
    slept = slept if line.figure == "throughput" else 0.0  # the others are without it
    return min(waited + slept, 1.0), Reason("late_compute", {"share": slept}) if slept > waited else wait


def _mean(figure: str, epochs: Sequence[EpochSummary]) -> float | None:
    spread = spread_over(epochs, operator.attrgetter(figure))
    return None if spread is None else spread.mean


def _p99(epochs: Sequence[EpochSummary]) -> float | None:
    """Return p99 of the latency that matters: of requests if there are any, else of waits of steps for data."""
    found = aggregate.latencies(epochs)
    main = found["request"] or found["batch"]
    return None if main is None else main.p99


_MEASURES: dict[tuple[str, str], Callable[[Sequence[EpochSummary]], float | None]] = {
    ("utilization", "ratio"): partial(_mean, "storage_utilization"),
    ("throughput", "B/s"): aggregate.bytes_per_second,
    ("throughput", "samples/s"): aggregate.samples_per_second,
    ("p99", "s"): _p99,
}
