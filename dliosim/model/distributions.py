"""Quantities that vary: a distribution, its parameters, and the interval it is clamped to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

POISSON_MEAN_LIMIT: Final = 10**9  # of what can be drawn

NO_SPREAD: Final = 1e-12  # a stdev, by its mean, that changes nothing

Kind = Literal["constant", "normal", "lognormal", "uniform", "exponential", "gamma", "poisson"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A random quantity in bytes, seconds or counts, whichever the setting that holds it takes.

    `parameters` are (value,) of a constant, (mean, stdev) of normal, lognormal and gamma (of the value itself, not of
    its logarithm), (low, high) of uniform, (mean,) of exponential and poisson. Draws are clamped to [low, high].
    """

    kind: Kind
    parameters: tuple[float, ...]
    low: float | None = None
    high: float | None = None

    @property
    def is_constant(self) -> bool:
        """Whether every draw is the same value."""
        return self.kind == "constant"

    @property
    def mean(self) -> float:
        """The mean before clamping."""
        if self.kind == "uniform":
            return (self.parameters[0] + self.parameters[1]) / 2
        return float(self.parameters[0])

    def nonnegative_mean(self) -> float:
        """The mean of draws of which those below 0 count as 0, before clamping."""
        if self.kind != "normal" or self.parameters[1] == 0:
            return max(0.0, self.mean)
        mean, stdev = self.parameters
        density = math.exp(-0.5 * (mean / stdev) * (mean / stdev)) / math.sqrt(2 * math.pi)
        return mean * (1 - self.nonpositive_share()) + stdev * density

    def nonpositive_share(self) -> float:
        """The share of draws, before clamping, that are 0 or less."""
        return self.share_below(math.nextafter(0.0, 1.0))

    def shares_clamped(self) -> tuple[float, float]:
        """The shares of draws that are moved to the lower limit and to the upper one."""
        below = self.share_below(self.low) if self.low is not None else 0.0
        above = 1 - self.share_below(math.nextafter(self.high, math.inf)) if self.high is not None else 0.0
        return below, above

    def share_below(self, limit: float) -> float:
        """The share of draws, before clamping, that are less than a limit; to about 0.01 of gamma and poisson."""
        if self.kind == "uniform":
            low, high = self.parameters
            return min(1.0, max(0.0, (limit - low) / (high - low))) if low < high else float(low < limit)
        mean, stdev = (*self.parameters, 0.0)[:2]
        if self.kind == "normal" and stdev > NO_SPREAD * abs(mean):
            return _share_of_normal_below((limit - mean) / stdev)
        if self.kind in ("constant", "normal") or limit <= 0 or mean == 0:
            return float(mean < limit)
        if self.kind == "exponential":
            return -math.expm1(-limit / mean)
        if self.kind == "poisson":
            return 1 - _share_of_gamma_below(math.ceil(limit), mean)
        if stdev <= NO_SPREAD * mean:
            return float(mean < limit)
        ratio = stdev / mean
        if self.kind == "lognormal":
            variance = math.log1p(ratio * ratio)
            return _share_of_normal_below((math.log(limit) - math.log(mean) + variance / 2) / math.sqrt(variance))
        shape = 1 / (ratio * ratio)
        return _share_of_gamma_below(shape, limit / mean * shape)


def _share_of_normal_below(limit: float) -> float:
    """Of draws with mean 0 and stdev 1."""
    return 0.5 * math.erfc(-limit / math.sqrt(2))


def _share_of_gamma_below(shape: float, limit: float) -> float:
    """Of draws of this shape with scale 1, by the cube roots of Wilson and Hilferty, which are nearly normal."""
    if shape == 1:
        return -math.expm1(-limit)
    if shape < 1:  # those have no such cube roots
        density = math.pow(limit, shape) * math.exp(-limit) / math.gamma(shape + 1)
        return density + _share_of_gamma_below(shape + 1, limit)
    spread = 1 / (9 * shape)
    return _share_of_normal_below(((limit / shape) ** (1 / 3) - 1 + spread) / math.sqrt(spread))


def constant(value: float) -> Distribution:
    """A quantity that does not vary."""
    return Distribution("constant", (value,))
