"""Whether variants differ: paired log ratios of interleaved passes, their intervals, and Holm's correction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.compare.student import critical, two_sided

#: The probability of calling any variant different where none is.
LEVEL: Final = 0.05

#: The probability with which `Comparison.smallest` would be found.
POWER: Final = 0.8

#: With fewer repetitions there are figures but no verdict: an interval of three degrees of freedom says nothing.
FEWEST: Final = 5

#: A pass that is more robust standard deviations than this from what its block and its variant suggest is drawn in.
CAP: Final = 5.0

# The standard deviation of a normal distribution by the median of its absolute deviations.
_MAD_TO_SIGMA = 1.4826
_POLISHINGS = 8
# Residuals below this are the rounding of logarithms.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Comparison:
    """A variant against the reference. `ratio` is how many times as fast it is, from the mean of paired log ratios.

    [`low`, `high`] is its interval, of 95 % or of as much more as Holm's correction asks, so that it holds 1 exactly
    where `p_adjusted` is above `LEVEL`. `smallest` is the smallest ratio above 1 that so many repetitions would have
    shown with a probability of `POWER`. All but `ratio` are None below `FEWEST` repetitions.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    p_adjusted: float | None = None
    smallest: float | None = None

    @property
    def verdict(self) -> str:
        """`faster`, `slower`, `no difference shown`, or `not judged` for want of repetitions."""
        if self.p_adjusted is None:
            return "not judged"
        if self.p_adjusted > LEVEL:
            return "no difference shown"
        return "faster" if self.ratio > 1 else "slower"


def compare(seconds: NDArray[np.float64]) -> tuple[list[Comparison], NDArray[np.bool_]]:
    """Each variant but the first against the first, and which passes were drawn in.

    `seconds` (blocks, variants) is the time a sample of every pass, above 0; a row is one block, in which each variant
    ran once. Times within a block are paired, so that what changes slowly (drift) cancels. Before that single passes
    that something else disturbed are drawn in, see `capped`.
    """
    blocks, variants = seconds.shape
    logs = np.log(seconds)
    times, drawn = capped(logs)
    differences = times[:, :1] - times[:, 1:]
    ratios = np.exp(differences.mean(axis=0)).tolist()
    if blocks < FEWEST:
        return [Comparison(ratio) for ratio in ratios], drawn
    errors = differences.std(axis=0, ddof=1) / math.sqrt(blocks)
    means, freedom = differences.mean(axis=0), blocks - 1
    raw = [pair_p(column) for column in differences.T]
    adjusted, levels = holm(raw)
    # The strictest of Holm's steps: which one a difference would meet depends on the others.
    reach = critical(LEVEL / max(1, variants - 1), freedom) + critical(2 * (1 - POWER), freedom)
    found = []
    for mean, error, ratio, p, level in zip(means.tolist(), errors.tolist(), ratios, adjusted, levels, strict=True):
        half = critical(level, freedom) * error
        found.append(Comparison(ratio, math.exp(mean - half), math.exp(mean + half), p, math.exp(reach * error)))
    return found, drawn


def capped(logs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Log times with what lies far out drawn in to `CAP` robust standard deviations, and where that was done.

    What a pass should have taken is its block's effect and its variant's, by Tukey's median polish; the deviation is
    that of all passes together. A t interval of the means then holds although single passes took twice as long, which
    would otherwise hide what all others show.
    """
    blocks, variants = logs.shape
    if blocks < 3 or variants < 2:
        return logs, np.zeros(logs.shape, np.bool_)
    left = logs.copy()
    for _ in range(_POLISHINGS):
        left -= np.median(left, axis=1, keepdims=True)
        left -= np.median(left, axis=0, keepdims=True)
    # Polishing fits a level to each block and variant, and leaves so many residuals at zero, or smaller than they are.
    fitted = blocks * variants / ((blocks - 1) * (variants - 1))
    sizes = np.where(np.abs(left) > _ROUNDING, np.abs(left), 0.0)
    deviation = _MAD_TO_SIGMA * float(np.median(sizes[sizes > 0])) if sizes.any() else 0.0
    limit = CAP * deviation * fitted**0.25
    far = sizes > limit
    return np.where(far, logs - left + np.sign(left) * limit, logs), far


def holm(p: Sequence[float]) -> tuple[list[float], list[float]]:
    """Holm's adjusted p values, and the level that each was held against, in the order given.

    Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    adjusted, levels = [0.0] * len(p), [0.0] * len(p)
    worst, level, rejecting = 0.0, LEVEL, True
    for step, which in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        left = len(p) - step
        worst = max(worst, min(1.0, left * p[which]))
        if rejecting:
            level = LEVEL / left
            rejecting = p[which] <= level
        adjusted[which], levels[which] = worst, level
    return adjusted, levels


def pair_p(differences: NDArray[np.float64]) -> float:
    """The probability of paired differences whose mean is as far from 0, if nothing differs; two or more of them."""
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(len(differences))
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return two_sided(mean / error, len(differences) - 1)


def shown_different(
    times: NDArray[np.float64], comparisons: Sequence[Comparison]
) -> tuple[int, frozenset[tuple[int, int]]]:
    """The fastest variant (by the mean of its log times), and the pairs (lower number first) shown to differ.

    `times` is (blocks, variants), and `comparisons` each variant but the first against the first: those pairs were
    chosen before, and are judged as they are in the table. Which one is fastest is known only afterwards, so all others
    are tested, and Holm's correction is over all pairs.
    """
    logs, _ = capped(np.log(times))
    pairs = list(itertools.combinations(range(logs.shape[1]), 2))
    adjusted, _ = holm([pair_p(logs[:, a] - logs[:, b]) for a, b in pairs])
    shown = {pair for pair, p in zip(pairs, adjusted, strict=True) if p <= LEVEL}
    shown |= {(0, number) for number, one in enumerate(comparisons, 1) if one.verdict in ("faster", "slower")}
    return int(logs.mean(axis=0).argmin()), frozenset(shown)
