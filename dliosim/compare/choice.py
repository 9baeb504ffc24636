"""The rule by which a comparison chooses the variant to use, on the times of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dliosim.compare.statistics import VariantComparison, compare_pairs


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant to use, by its number."""

    use: int  #: the variant
    against: int  #: the one that it is compared with
    lead: VariantComparison  #: the variant against that one
    tied: tuple[int, ...]  #: variants that are not shown to be worse, the fastest first
    ahead: tuple[int, ...]  #: those of `tied` whose mean is better


def choose_variant(times: NDArray[np.float64], comparisons: Sequence[VariantComparison]) -> Choice | None:
    """Return the fastest of the variants shown to be better than the first one; None where no difference is shown.

    `times` is (blocks, variants), `comparisons` each variant but the first against the first. Where none is shown to be
    better, but one to be worse, it is the first one. Only these comparisons choose: so where no variant differs, one is
    chosen no more often than they show a difference. Pairs without the first one only tell which others are worse.
    """
    first = {variant: one for variant, one in enumerate(comparisons, 1) if one.is_shown}
    if not first:
        return None
    means = np.log(times).mean(axis=0)
    better = [variant for variant, one in first.items() if one.ratio > 1]
    use = min(better, key=lambda variant: float(means[variant]), default=0)
    if use:
        pairs = compare_pairs(times, comparisons)
        leads = {
            other: pairs[other, use] if other < use else pairs[use, other].swap()
            for other in range(times.shape[1])
            if other != use
        }
    else:
        leads = {variant: one.swap() for variant, one in enumerate(comparisons, 1)}
    worse = [other for other, one in leads.items() if one.is_shown and one.ratio > 1]
    against = 0 if use else min(worse, key=lambda other: leads[other].ratio)
    tied = sorted((other for other in leads if other not in worse), key=lambda other: float(means[other]))
    ahead = tuple(other for other in tied if means[other] < means[use])
    return Choice(use, against, leads[against], tuple(tied), ahead)
