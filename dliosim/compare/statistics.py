"""Statistics of a comparison: paired log ratios of interleaved passes, a permutation test, Student's t intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray


def central_probability(t: float, freedom: int) -> float:
    """The probability that |T| <= t, for `freedom` degrees of freedom from 1 on.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, squared = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    # 1 + 1/2 cos^2 + 3/8 cos^4 + ... for even degrees, 1 + 2/3 cos^2 + ... for odd ones.
    term, series = 1.0, 0.0
    for k in range(freedom // 2):
        series += term
        term *= squared * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    if odd:
        return min(1.0, 2 / math.pi * (angle + sine * math.cos(angle) * series))
    return min(1.0, sine * series)


def two_sided_probability(t: float, freedom: int) -> float:
    """The probability of a T at least as far from 0 as `t`."""
    return 1.0 - central_probability(t, freedom)


def critical_value(level: float, freedom: int) -> float:
    """The t that |T| exceeds with probability `level`, in (0, 1); found by bisection."""
    low, high = 0.0, 1.0
    while two_sided_probability(high, freedom) > level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_probability(middle, freedom) > level else (low, middle)
    return high


#: The probability of calling any variant different where none is.
LEVEL: Final = 0.05

#: The probability with which `Comparison.smallest` would be found.
POWER: Final = 0.8

#: With fewer repetitions there are figures but no verdict: of two equal variants one is ahead in all five blocks in one
#: comparison of sixteen.
FEWEST: Final = 6

#: How often times are dealt by chance, where not all ways to deal them are gone through.
DEALS: Final = 4000

#: How much the scatter of all pairs counts beside a pair's own: one pass that something disturbed widens it less.
SHARED: Final = 0.25

# Numbers in memory at a time: what a processor's cache holds.
_CHUNK = 1 << 17
# By how much equal deals differ by the rounding of sums, and a mean's variance that is the rounding of logarithms.
_ROUNDING = 1e-9
_NOTHING = 1e-24


@dataclass(frozen=True, slots=True)
class VariantComparison:
    """A variant against the reference. `ratio` is how many times as fast it is, from the mean of paired log ratios.

    [`low`, `high`] is its interval, of 95 % for all variants of its round together (see `judge_pairs`), so that it holds 1
    exactly where `p_adjusted` is above `LEVEL`. `smallest` is the smallest ratio above 1 that so many repetitions would
    have shown with a probability of `POWER`. All but `ratio` are None below `FEWEST` repetitions.
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


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """A pair of variants: mean and standard error of its log ratio, p, and how many errors make a difference.

    The pair is shown to differ where |mean| > critical * error, which is where p is at most `LEVEL`.
    """

    mean: float
    error: float
    critical: float
    p: float


def compare_variants(seconds: NDArray[np.float64]) -> list[VariantComparison]:
    """Each variant but the first against the first.

    `seconds` (blocks, variants) is the time a sample of every pass, above 0; a row is one block, in which each variant
    ran once, in an order drawn by chance. Times within a block are paired, so that what changes slowly cancels.
    """
    blocks, variants = seconds.shape
    logs = np.log(seconds)
    if blocks < FEWEST:
        return [VariantComparison(ratio) for ratio in np.exp((logs[:, :1] - logs[:, 1:]).mean(axis=0)).tolist()]
    judged = judge_pairs(logs, [(0, other) for other in range(1, variants)])
    # The first round is the strictest: in which one a difference would be met depends on the others.
    strictest = max((one.critical for one in judged), default=0.0) + NormalDist().inv_cdf(POWER)
    found = []
    for one in judged:
        low, ratio, high = (math.exp(one.mean + sign * one.critical * one.error) for sign in (-1, 0, 1))
        found.append(VariantComparison(ratio, low, high, one.p, math.exp(strictest * one.error)))
    return found


def judge_pairs(logs: NDArray[np.float64], pairs: Sequence[tuple[int, int]]) -> list[PairVerdict]:
    """Whether the variants of each pair differ, of log times (blocks, variants); `LEVEL` is that of all pairs together.

    The order of variants within a block is drawn by chance. So where they do not differ, whatever disturbs passes, it
    is chance alone which time of a block is whose. Times are dealt to the variants anew: a pair differs if it lies
    farther apart, in standard errors, than all but a `LEVEL` of such deals put any pair, and than Student's t allows.
    Pairs that differ are set aside, and the others judged anew without the variants that nothing is left to ask of.

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


def permute_blocks(logs: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The rows of a table dealt anew, as pieces (variants, blocks, deals); the table itself is among them.

    Of two variants all ways in which they can differ, if those are no more than `DEALS`; else so many drawn by chance,
    always the same ones.
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


def pair_differences(
    logs: NDArray[np.float64], ends: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard error (pairs, deals) of the first less the second one, of logs (variants, blocks, deals)."""
    differences = logs[ends[:, 0]] - logs[ends[:, 1]]
    means = differences.mean(axis=1)
    scatter = differences.var(axis=1, ddof=1)
    scatter = (1 - SHARED) * scatter + SHARED * scatter.mean(axis=0)
    return means, np.sqrt(scatter / logs.shape[1] + _NOTHING)


def find_differences(
    times: NDArray[np.float64], comparisons: Sequence[VariantComparison]
) -> tuple[int, frozenset[tuple[int, int]]]:
    """The fastest variant (by the mean of its log times), and the pairs (lower number first) shown to differ.

    `times` is (blocks, variants), and `comparisons` each variant but the first against the first: those pairs were
    chosen before, and are judged as they are in the table. Which one is fastest is known only afterwards, so all others
    are judged, and all pairs together.
    """
    logs = np.log(times)
    pairs = list(itertools.combinations(range(logs.shape[1]), 2))
    shown = {pair for pair, one in zip(pairs, judge_pairs(logs, pairs), strict=True) if one.p <= LEVEL}
    shown |= {(0, number) for number, one in enumerate(comparisons, 1) if one.verdict in ("faster", "slower")}
    return find_fastest(times), frozenset(shown)


def find_fastest(times: NDArray[np.float64]) -> int:
    """The variant whose log times (blocks, variants) have the least mean."""
    return int(np.log(times).mean(axis=0).argmin())
