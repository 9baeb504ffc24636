"""DLIO's own figures for the same steps, to compare with DLIO's results; docs/metrics.md says what they miss."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.rank.records import StepBlock


def utilization(blocks: Sequence[StepBlock]) -> float | None:
    """Return DLIO's AU of one rank and epoch, a ratio: mean of compute / time of each block, weighted by steps.

    Both leave out the first step of a block. None where there are no steps, or where a block has no time besides its
    first step.
    """
    return _step_weighted(blocks, [block.compute_ns for block in blocks])


def samples_per_second(blocks: Sequence[StepBlock], batch: int) -> float | None:
    """Return DLIO's throughput of one rank and epoch: samples of all steps but two / the time of `utilization`.

    DLIO subtracts two steps for any number of excluded ones, so a block of one step counts as negative. This is kept,
    so that the figure is the same as DLIO's; None where it would not be above 0.
    """
    rate = _step_weighted(blocks, [(block.steps - 2) * batch * 1e9 for block in blocks])
    return rate if rate is not None and rate > 0 else None


def _step_weighted(blocks: Sequence[StepBlock], amounts: Sequence[float]) -> float | None:
    """Return the mean of amount / ns over blocks, weighted by steps; the ns leave out the first step."""
    totals = [block.elapsed_ns - block.first_ns for block in blocks]
    steps = sum(block.steps for block in blocks)
    if steps == 0 or min(totals) <= 0:
        return None
    return sum(b.steps * amount / total for b, amount, total in zip(blocks, amounts, totals, strict=True)) / steps
