"""Figures over several epochs with their 95 % interval, and the one rule that judges whether a bound holds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise

from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.run_summary import Reason, Spread


def central_probability(t: float, freedom: int) -> float:
    """Return the probability that |T| <= t, for `freedom` degrees of freedom, at least 1.

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
    """Return the probability of a T at least as far from 0 as `t`."""
    return 1.0 - central_probability(t, freedom)


def critical_value(level: float, freedom: float) -> float:
    """Return the t that |T| exceeds with probability `level`, in (0, 1); between whole degrees on a straight line."""
    whole = math.floor(freedom)
    if freedom > whole:
        share = freedom - whole
        return (1.0 - share) * critical_value(level, whole) + share * critical_value(level, whole + 1)
    low, high = 0.0, 1.0
    while two_sided_probability(high, whole) > level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_probability(middle, whole) > level else (low, middle)
    return high


#: Probability that an interval does not have what it is about.
_LEVEL = 0.05

#: Standard errors to either side of the mean of many steps, at that level.
_STEP_ERRORS = 2.0

#: Epochs that are like those next to them count as no fewer independent ones than this.
_FEWEST = 4.0

#: From this share of a loop on, waits for a core say more than all that is left.
_MOST = 0.5


class Outcome(Enum):
    """Result of judging a bound."""

    HELD = "held"
    MISSED = "missed"
    UNDECIDED = "undecided"


def spread_over(
    epochs: Sequence[EpochSummary],
    figure: Callable[[EpochSummary], float | None],
    error: Callable[[EpochSummary], float | None] = lambda _: None,
) -> Spread | None:
    """Return a figure over epochs; None unless every one has it. `error`: its standard error within an epoch."""
    known = [value for value in map(figure, epochs) if value is not None]
    return mean_interval(known, [error(one) or 0.0 for one in epochs]) if known and len(known) == len(epochs) else None


def mean_interval(values: Sequence[float], errors: Sequence[float]) -> Spread:
    """Return the mean of the values of epochs with its 95 % interval; `errors` are the standard errors of each.

    The interval has two independent parts: the scatter of steps, known by the errors, and the differences of epochs
    beyond it, which Student's t judges by the number of independent epochs. docs/dev/decisions.md has the measured
    coverage.
    """
    many, mean = len(values), statistics.fmean(values)
    within = sum(error**2 for error in errors) / many
    half_squared = _STEP_ERRORS**2 * within / many
    if many > 1:
        independent = _independent_epochs(values, mean)
        beyond = max(statistics.variance(values) - within, 0.0)
        half_squared += critical_value(_LEVEL, independent - 1) ** 2 * beyond / independent
    half = math.sqrt(half_squared)
    return Spread(mean, max(mean - half, 0.0), mean + half)  # no figure is below 0


def _independent_epochs(values: Sequence[float], mean: float) -> float:
    """Return how many independent epochs say as much about the mean: fewer than all if neighbours are close.

    They are where something else begins to use the storage in the middle of a run. With a correlation r from one epoch
    to the next, n of them say as much as n (1 - r) / (1 + r). The same values once more never count as fewer.
    """
    squares = math.fsum((value - mean) ** 2 for value in values)
    products = math.fsum((one - mean) * (other - mean) for one, other in pairwise(values))
    if products <= 0.0:
        return len(values)
    return max(len(values) * (squares - products) / (squares + products), min(len(values), _FEWEST))


def judge_bound(
    interval: Spread, bound: float, is_least: bool, excused: float, excuse: Reason
) -> tuple[Outcome, Reason | None]:
    """Return whether a figure is at least (else at most) `bound`, and why that is undecided.

    `excused` is the share of the time that a cause other than storage took, which `excuse` names: a bound is missed
    only if the figure would miss it without that time, too, and if that is less than half of the time.
    """
    worst, best = (interval.low, interval.high) if is_least else (interval.high, interval.low)
    sign = 1 if is_least else -1
    if sign * worst >= sign * bound:
        return Outcome.HELD, None
    if sign * best >= sign * bound:
        return Outcome.UNDECIDED, Reason("goal_in_interval")
    left = max(1.0 - excused, 0.0)

    def is_excused(value: float) -> bool:
        return excused >= _MOST or (value >= bound * left if is_least else value * left <= bound)

    if is_excused(interval.mean):
        return Outcome.UNDECIDED, excuse.extend(may_explain=True)
    if is_excused(best):
        return Outcome.UNDECIDED, excuse.extend(may_hide=True)
    return Outcome.MISSED, None
