"""Results of the `expect` lines of a pattern, over the epochs after the first."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from dliosim.measure import aggregate
from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.run_summary import ExpectationResult, RunSummary
from dliosim.measure.validity import doubt_of_times, doubt_of_utilization
from dliosim.model import Expectation


def evaluate(expectations: Sequence[Expectation], run: RunSummary) -> tuple[ExpectationResult, ...]:
    """Return the result of each line; a figure that could not be measured does not hold."""
    return tuple(_check_expectation(expectation, run) for expectation in expectations)


def _check_expectation(expectation: Expectation, run: RunSummary) -> ExpectationResult:
    phases = [phase for phase in run.loops if phase.name == expectation.loop]
    find_doubt = doubt_of_utilization if expectation.figure == "utilization" else doubt_of_times
    doubt = find_doubt(run, phases) or None
    epochs = [epoch for phase in phases for epoch in phase.epochs]
    if not epochs:
        return ExpectationResult(expectation.text, None, expectation.unit, False, "no epoch", doubt)
    later = epochs[1:] or epochs
    over = f"{len(later)} epochs after the first" if len(later) > 1 else "the second epoch"
    if len(epochs) == 1:
        over = "the only epoch"
    measured = _MEASURES[expectation.figure, expectation.unit](later)
    is_within = operator.ge if expectation.bound == "at least" else operator.le
    held = measured is not None and is_within(measured, expectation.value)
    return ExpectationResult(expectation.text, measured, expectation.unit, held, over, doubt)


def _p99(epochs: Sequence[EpochSummary]) -> float | None:
    found = aggregate.main_latency(epochs)[1]
    return None if found is None else found.p99


_MEASURES: dict[tuple[str, str], Callable[[Sequence[EpochSummary]], float | None]] = {
    ("utilization", "ratio"): aggregate.utilization,
    ("throughput", "B/s"): aggregate.bytes_per_second,
    ("throughput", "samples/s"): aggregate.samples_per_second,
    ("p99", "s"): _p99,
}
