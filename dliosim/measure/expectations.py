"""Whether a run was as its pattern expects: the `expect` lines over the epochs after the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dliosim.measure.figures import EpochSummary, ExpectationResult, PhaseSummary
from dliosim.measure.histogram import merged
from dliosim.model import Expectation


def evaluate(expectations: Sequence[Expectation], phases: Sequence[PhaseSummary]) -> tuple[ExpectationResult, ...]:
    """The result of each line. A figure that could not be measured does not hold."""
    return tuple(_evaluate(expectation, phases) for expectation in expectations)


def _evaluate(expectation: Expectation, phases: Sequence[PhaseSummary]) -> ExpectationResult:
    epochs = [epoch for phase in phases if phase.name == expectation.loop for epoch in phase.epochs]
    if not epochs:
        return ExpectationResult(expectation.text, None, expectation.unit, False, "no epoch")
    later = epochs[1:] or epochs
    over = f"{len(later)} epochs after the first" if len(later) > 1 else "the second epoch"
    if len(epochs) == 1:
        over = "the only epoch"
    measured = _MEASURES[expectation.figure, expectation.unit](later)
    return ExpectationResult(expectation.text, measured, expectation.unit, _holds(expectation, measured), over)


def _holds(expectation: Expectation, measured: float | None) -> bool:
    if measured is None:
        return False
    return measured >= expectation.value if expectation.bound == "at least" else measured <= expectation.value


def _utilization(epochs: Sequence[EpochSummary]) -> float | None:
    known = [epoch.utilization for epoch in epochs if epoch.utilization is not None]
    return sum(known) / len(known) if len(known) == len(epochs) else None


def _bytes_per_second(epochs: Sequence[EpochSummary]) -> float | None:
    seconds = sum(epoch.loop_seconds for epoch in epochs)
    return sum(epoch.bytes for epoch in epochs) / seconds if seconds > 0 else None


def _samples_per_second(epochs: Sequence[EpochSummary]) -> float | None:
    seconds = sum(epoch.loop_seconds for epoch in epochs)
    return sum(epoch.samples for epoch in epochs) / seconds if seconds > 0 else None


def _p99(epochs: Sequence[EpochSummary]) -> float | None:
    """Of requests where there are any, else of what steps waited for their data; of all these epochs together."""
    latencies = merged(epoch.request_latency for epoch in epochs)
    if latencies.count == 0:
        latencies = merged(epoch.batch_latency for epoch in epochs)
    found = latencies.quantiles()
    return None if found is None else found.p99


_MEASURES: dict[tuple[str, str], Callable[[Sequence[EpochSummary]], float | None]] = {
    ("utilization", "ratio"): _utilization,
    ("throughput", "B/s"): _bytes_per_second,
    ("throughput", "samples/s"): _samples_per_second,
    ("p99", "s"): _p99,
}
