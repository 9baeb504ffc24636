"""Results of the `expect` lines of a pattern, over the epochs that came from storage."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial

from dliosim.measure.answers.intervals import judge_bound, spread_over
from dliosim.measure.answers.validity import doubt_of_checks, doubt_of_length, doubt_of_memory, find_core_wait
from dliosim.measure.figures import aggregate
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.run_summary import Answer, ExpectationResult, Reason, RunSummary, Spread, select_epochs
from dliosim.measure.results.verdicts import NO_STORAGE, NOT_ASKED
from dliosim.model import Expectation


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
