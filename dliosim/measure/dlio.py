"""DLIO's own figures for the same steps, to stand beside DLIO's results; docs/metrics.md says what they miss."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.records import Block


def utilization(blocks: Sequence[Block]) -> float | None:
    """DLIO's AU of one rank and epoch, a ratio: compute by time of each block without its first step, step-weighted.

    None where there are no steps, or a block without any time beside its first step.
    """
    return _step_weighted(blocks, [block.compute_ns for block in blocks])


def samples_per_second(blocks: Sequence[Block], batch: int) -> float | None:
    """DLIO's throughput of one rank and epoch: two steps fewer than were done, by the same time, step-weighted.

    Two steps are taken off whatever was excluded, so that blocks of one step count as negative: DLIO's doing, and kept.
    """
    return _step_weighted(blocks, [(block.steps - 2) * batch * 1e9 for block in blocks])


def _step_weighted(blocks: Sequence[Block], amounts: Sequence[float]) -> float | None:
    """The mean over blocks, weighted by steps, of an amount by the nanoseconds of a block without its first step."""
    totals = [block.elapsed_ns - block.first_ns for block in blocks]
    steps = sum(block.steps for block in blocks)
    if steps == 0 or min(totals) <= 0:
        return None
    return sum(b.steps * amount / total for b, amount, total in zip(blocks, amounts, totals, strict=True)) / steps
