"""Results of the `expect` lines of a pattern, over the epochs that came from storage."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial

from dliosim.measure import aggregate
from dliosim.measure.answer import NO_STORAGE, core_wait_text, spread_over
from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.run_summary import Answer, ExpectationResult, RunSummary, Spread
from dliosim.measure.validity import core_wait_bound
from dliosim.model import Expectation
from dliosim.readable import percent


def evaluate(expectations: Sequence[Expectation], run: RunSummary) -> tuple[ExpectationResult, ...]:
    """Return the result of each line, over the epochs that count for the answer of its loop (`RunSummary.answers`).

    A figure that could not be measured does not hold. A line is missed if no epoch that counts would hold it, also
    without the time that ranks or readers waited for a core, and compute took too long: else it is only reported.
    """
    answers = {answer.loop: answer for answer in run.answers}
    return tuple(_check_expectation(one, run, answers.get(one.loop)) for one in expectations)


def _check_expectation(line: Expectation, run: RunSummary, answer: Answer | None) -> ExpectationResult:
    epochs = [epoch for phase in run.loops if phase.name == line.loop for epoch in phase.epochs]
    if answer is None or not epochs:
        return ExpectationResult(line.text, None, line.unit, False, ())
    numbers = answer.epochs or tuple(range(1, len(epochs) + 1))
    counted = [epochs[number - 1] for number in numbers]
    measure = _MEASURES.get((line.figure, line.unit), partial(_mean, line.figure))
    measured, is_utilization = measure(counted), line.figure == "utilization"
    spread = answer.storage_utilization if is_utilization else spread_over(counted, lambda epoch: measure([epoch]))
    is_within = operator.ge if line.bound == "at least" else operator.le
    held = measured is not None and is_within(measured, line.value)
    reason = _no_storage_reason(run, answer, is_utilization)
    if not (held or reason or spread is None):
        reason = _doubt_of_miss(line, run, counted, spread)
    return ExpectationResult(line.text, measured, line.unit, held, numbers, reason or None)


def _no_storage_reason(run: RunSummary, answer: Answer, is_utilization: bool) -> str:
    """Return why a figure of the epochs of an answer is not storage's; empty where it is."""
    if not answer.from_storage:
        return answer.reasons[0]
    if is_utilization and answer.verdict == NO_STORAGE:
        return next(iter(answer.reasons), "")
    return "what was read was checked within the steps (--verify)" if run.verify else ""


def _doubt_of_miss(line: Expectation, run: RunSummary, epochs: Sequence[EpochSummary], spread: Spread) -> str:
    """Return why a line may hold although the figure over all epochs does not; empty where it may not."""
    is_least = line.bound == "at least"
    best = spread.max if is_least else spread.min
    is_within = operator.ge if is_least else operator.le
    if is_within(best, line.value):
        return "the goal is within the spread of the epochs"
    readers = max(phase.readers for phase in run.loops if phase.name == line.loop)
    waited = core_wait_bound(run.environment, epochs, readers)
    slept = sum(one.late_compute_seconds for one in epochs) / sum(one.loop_seconds for one in epochs)
    slept = slept if line.figure == "throughput" else 0.0  # the others are without it
    left = max(1.0 - waited - slept, 0.0)
    if is_least == (line.figure == "p99") or (best < line.value * left if is_least else best * left > line.value):
        return ""  # with less waiting the figure would be further from what is asked, or still not reach it
    return (
        f"compute took {percent(slept, 2)} of the time too long"
        if slept > waited
        else f"{core_wait_text(waited)}, and may be what is missing"
    )


def _mean(figure: str, epochs: Sequence[EpochSummary]) -> float | None:
    spread = spread_over(epochs, operator.attrgetter(figure))
    return None if spread is None else spread.mean


def _p99(epochs: Sequence[EpochSummary]) -> float | None:
    found = aggregate.main_latency(epochs)[1]
    return None if found is None else found.p99


_MEASURES: dict[tuple[str, str], Callable[[Sequence[EpochSummary]], float | None]] = {
    ("utilization", "ratio"): partial(_mean, "storage_utilization"),
    ("throughput", "B/s"): aggregate.bytes_per_second,
    ("throughput", "samples/s"): aggregate.samples_per_second,
    ("p99", "s"): _p99,
}
