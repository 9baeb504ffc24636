"""Statistics of a comparison: paired log ratios of interleaved passes, a permutation test, Student's t intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.answers.intervals import critical_value, two_sided_probability

Floats: TypeAlias = NDArray[np.float64]

#: The verdicts of a variant against the first.
FASTER, SLOWER, EQUAL, UNJUDGED = "faster", "slower", "no difference shown", "not judged"

#: Probability that any variant is called different if none is.
LEVEL: Final = 0.05

#: Probability with which a difference of `VariantComparison.smallest` is found.
POWER: Final = 0.8

#: Smallest number of repetitions for a verdict. With five blocks, one of two equal variants is ahead in all blocks in
#: one comparison of sixteen.
FEWEST: Final = 6

#: Number of random permutations, if there are too many to try them all.
DEALS: Final = 4000

#: Weight of the mean scatter of all pairs against a pair's own: one disturbed pass then widens its interval less.
SHARED: Final = 0.25

# Numbers in memory at a time: they fit in a processor's cache.
_CHUNK = 1 << 17
# Relative difference of equal permutations by the rounding of sums; variance of a mean by the rounding of logarithms.
_ROUNDING = 1e-9
_NOTHING = 1e-24


@dataclass(frozen=True, slots=True)
class VariantComparison:
    """A variant against the reference. Below `FEWEST` repetitions only `ratio` is known; the others are None.

    The interval holds for all variants of its round together (see `judge_pairs`). So it includes 1 exactly where
    `p_adjusted` is above `LEVEL`.
    """

    ratio: float  #: how many times as fast as the reference, from the mean of paired log ratios
    low: float | None = None  #: lower end of the interval of 95 % of the ratio
    high: float | None = None  #: upper end of the interval
    p_adjusted: float | None = None  #: p, adjusted for all variants together
    #: smallest ratio above 1 that this number of repetitions shows with a probability of `POWER`
    smallest: float | None = None

    @property
    def verdict(self) -> str:
        """`faster`, `slower`, `no difference shown`, or `not judged` for want of repetitions."""
        if self.p_adjusted is None:
            return UNJUDGED
        if self.p_adjusted > LEVEL:
            return EQUAL
        return FASTER if self.ratio > 1 else SLOWER

    @property
    def is_shown(self) -> bool:
        """True if the variants are shown to differ."""
        return self.verdict in (FASTER, SLOWER)

    def swap(self) -> VariantComparison:
        """Return the reference against the variant."""
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return replace(self, ratio=1 / self.ratio, low=low, high=high)


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """A pair of variants, shown to differ where |mean| > critical * error, which is where p is at most `LEVEL`."""

    mean: float  #: mean of the log ratios
    error: float  #: standard error of the mean
    critical: float  #: standard errors from which the pair differs
    p: float  #: adjusted for all pairs together


def compare_variants(seconds: Floats) -> list[VariantComparison]:
    """Compare each variant but the first with the first.

    `seconds` (blocks, variants) is the time a sample of every pass, above 0. A row is one block, in which each variant
    ran once, in random order. Times within a block are paired, so that slow changes cancel.
    """
    blocks, variants = seconds.shape
    logs = np.log(seconds)
    if blocks < FEWEST:
        return [VariantComparison(ratio) for ratio in np.exp((logs[:, :1] - logs[:, 1:]).mean(axis=0)).tolist()]
    return _make_comparisons(judge_pairs(logs, [(0, other) for other in range(1, variants)]))


def _make_comparisons(judged: Sequence[PairVerdict]) -> list[VariantComparison]:
    # The first round is the strictest, and is taken here: the round that shows a difference depends on other variants.
    strictest = max((one.critical for one in judged), default=0.0) + NormalDist().inv_cdf(POWER)
    found = []
    for one in judged:
        low, ratio, high = (math.exp(one.mean + sign * one.critical * one.error) for sign in (-1, 0, 1))
        found.append(VariantComparison(ratio, low, high, one.p, math.exp(strictest * one.error)))
    return found


def judge_pairs(logs: Floats, pairs: Sequence[tuple[int, int]]) -> list[PairVerdict]:
    """Judge whether the variants of each pair differ, by log times (blocks, variants); `LEVEL` holds for all pairs.

    The order of variants within a block is random. So if variants do not differ, chance alone assigns the times of a
    block to variants, whatever disturbs the passes. Times are permuted between the variants: a pair differs if its
    distance, in standard errors, is larger than that of any pair in all but a `LEVEL` of the permutations, and larger
    than Student's t allows. Pairs that differ are removed. The other pairs are judged again, without the variants that
    have no pair left.

    Westfall and Young, Resampling-Based Multiple Testing (Wiley, 1993): maxima, step down.
    """
    freedom = len(logs) - 1
    usual = critical_value(LEVEL, freedom)
    found: dict[tuple[int, int], PairVerdict] = {}
    left, worst = list(pairs), 0.0
    while left:
        columns = sorted({one for pair in left for one in pair})
        ends = np.searchsorted(columns, left)
        means, errors = pair_differences(logs.T[columns, :, None], ends)
        pieces = (pair_differences(piece, ends) for piece in permute_blocks(logs[:, columns]))
        chance = np.sort(np.concatenate([(np.abs(mean) / error).max(axis=0) for mean, error in pieces]))
        chance *= 1 + _ROUNDING
        limit = max(usual, float(chance[-1 - int(LEVEL * len(chance))]))
        judged = {}
        for pair, mean, error in zip(left, means[:, 0].tolist(), errors[:, 0].tolist(), strict=True):
            size = abs(mean) / error
            share = (len(chance) - int(np.searchsorted(chance, size))) / len(chance)
            judged[pair] = PairVerdict(mean, error, limit, max(worst, share, two_sided_probability(size, freedom)))
        shown = {pair: one for pair, one in judged.items() if one.p <= LEVEL}
        found |= shown or judged
        left = [pair for pair in left if pair not in found]
        worst = max((one.p for one in shown.values()), default=worst)
    return [found[pair] for pair in pairs]


def permute_blocks(logs: Floats) -> Iterator[Floats]:
    """Yield permutations of the times in each row, as chunks (variants, blocks, permutations); one is the table itself.

    For two variants these are all ways in which they can differ, if there are no more than `DEALS`; else `DEALS` random
    ones, always the same.
    """
    blocks, variants = logs.shape
    table = logs.T[:, :, None]
    if variants == 2 and 2 ** (blocks - 1) <= DEALS:
        swapped = np.arange(2 ** (blocks - 1)) >> np.arange(blocks)[:, None] & 1
        yield np.where(swapped, table[::-1], table)
        return
    yield table
    generator = np.random.Generator(np.random.PCG64(0))
    many = max(1, _CHUNK // (blocks * variants**2))
    for start in range(1, DEALS, many):
        dealt = generator.permuted(np.broadcast_to(logs, (min(many, DEALS - start), blocks, variants)), axis=2)
        yield np.ascontiguousarray(dealt.T)


def pair_differences(logs: Floats, ends: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return mean and standard error (pairs, deals) of first less second, for logs (variants, blocks, deals).

    A deal is one permutation of `permute_blocks`.
    """
    differences = logs[ends[:, 0]] - logs[ends[:, 1]]
    means = differences.mean(axis=1)
    scatter = differences.var(axis=1, ddof=1)
    scatter = (1 - SHARED) * scatter + SHARED * scatter.mean(axis=0)
    return means, np.sqrt(scatter / logs.shape[1] + _NOTHING)


def compare_pairs(times: Floats, comparisons: Sequence[VariantComparison]) -> dict[tuple[int, int], VariantComparison]:
    """Return the second variant of each pair, in both orders, against the first one.

    `times` is (blocks, variants), with at least `FEWEST` blocks. `comparisons` is each variant but the first against
    the first: these pairs were chosen before, and a difference of the table stays one. Which variant is the fastest is
    known only after the passes, so all pairs are judged together.
    """
    logs = np.log(times)
    pairs = list(itertools.combinations(range(logs.shape[1]), 2))
    found = dict(zip(pairs, _make_comparisons(judge_pairs(logs, pairs)), strict=True))
    found |= {(0, number): one for number, one in enumerate(comparisons, 1) if one.is_shown}
    return found | {(second, first): one.swap() for (first, second), one in found.items()}


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant to use, by its number."""

    use: int  #: the variant
    against: int  #: the one that it is compared with
    lead: VariantComparison  #: the variant against that one
    tied: tuple[int, ...]  #: variants that are not shown to be worse, the fastest first
    ahead: tuple[int, ...]  #: those of `tied` whose mean is better


def choose_variant(times: Floats, comparisons: Sequence[VariantComparison]) -> Choice | None:
    """Return the fastest of the variants shown to be better than the first one; None if no difference is shown.

    `times` is (blocks, variants), `comparisons` each variant but the first against the first. If none is shown to be
    better, but one to be worse, it is the first one. Only the comparisons with the first variant decide. So if no
    variant differs, the risk of recommending one is no larger than that of these tests. Pairs without the first variant
    only tell which others are worse.
    """
    first = {variant: one for variant, one in enumerate(comparisons, 1) if one.is_shown}
    if not first:
        return None
    means = np.log(times).mean(axis=0)
    better = [variant for variant, one in first.items() if one.ratio > 1]
    use = min(better, key=lambda variant: float(means[variant]), default=0)
    if use:
        pairs = compare_pairs(times, comparisons)
        leads = {other: pairs[other, use] for other in range(times.shape[1]) if other != use}
    else:
        leads = {variant: one.swap() for variant, one in enumerate(comparisons, 1)}
    worse = [other for other, one in leads.items() if one.is_shown and one.ratio > 1]
    against = 0 if use else min(worse, key=lambda other: leads[other].ratio)
    tied = sorted((other for other in leads if other not in worse), key=lambda other: float(means[other]))
    ahead = tuple(other for other in tied if means[other] < means[use])
    return Choice(use, against, leads[against], tuple(tied), ahead)
