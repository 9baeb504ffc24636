"""Quantities that vary: a distribution, its parameters, and the interval to which draws are clamped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

POISSON_MEAN_LIMIT: Final = 10**9  # largest mean that can be drawn

NO_SPREAD: Final = 1e-12  # a stdev divided by its mean, below which all draws are equal

Kind = Literal["constant", "normal", "lognormal", "uniform", "exponential", "gamma", "poisson"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A random quantity, in the unit of the setting that holds it: bytes, seconds or counts."""

    kind: Kind  #: name of the distribution
    #: (value,) of a constant; (mean, stdev) of normal, lognormal and gamma, of the value and not of its logarithm;
    #: (low, high) of uniform; (mean,) of exponential and poisson
    parameters: tuple[float, ...]
    low: float | None = None  #: draws below it are raised to it; None: no limit
    high: float | None = None  #: draws above it are lowered to it; None: no limit

    @property
    def is_constant(self) -> bool:
        """Return whether every draw is the same value."""
        return self.kind == "constant"

    @property
    def mean(self) -> float:
        """Mean of draws before clamping."""
        if self.kind == "uniform":
            return (self.parameters[0] + self.parameters[1]) / 2
        return float(self.parameters[0])

    def nonnegative_mean(self) -> float:
        """Return the mean of draws before clamping, if draws below 0 count as 0."""
        if self.kind != "normal" or self.parameters[1] == 0:
            return max(0.0, self.mean)
        mean, stdev = self.parameters
        density = math.exp(-0.5 * (mean / stdev) * (mean / stdev)) / math.sqrt(2 * math.pi)
        return mean * (1 - self.nonpositive_share()) + stdev * density

    def nonpositive_share(self) -> float:
        """Return the share of draws, before clamping, that are 0 or less."""
        return self.share_below(math.nextafter(0.0, 1.0))

    def shares_clamped(self) -> tuple[float, float]:
        """Return the shares of draws that are moved to the lower limit and to the upper limit."""
        below = self.share_below(self.low) if self.low is not None else 0.0
        above = 1 - self.share_below(math.nextafter(self.high, math.inf)) if self.high is not None else 0.0
        return below, above

    def share_below(self, limit: float) -> float:
        """Return the share of draws, before clamping, below a limit; the error for gamma and poisson is about 0.01."""
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
    """Return the share of draws with mean 0 and stdev 1 that are below a limit."""
    return 0.5 * math.erfc(-limit / math.sqrt(2))


def _share_of_gamma_below(shape: float, limit: float) -> float:
    """Return the share of draws of this shape with scale 1 that are below a limit.

    By the cube roots of Wilson and Hilferty, whose distribution is nearly normal.
    """
    if shape == 1:
        return -math.expm1(-limit)
    if shape < 1:  # the approximation by cube roots does not hold
        density = math.pow(limit, shape) * math.exp(-limit) / math.gamma(shape + 1)
        return density + _share_of_gamma_below(shape + 1, limit)
    spread = 1 / (9 * shape)
    return _share_of_normal_below(((limit / shape) ** (1 / 3) - 1 + spread) / math.sqrt(spread))


def constant(value: float) -> Distribution:
    """Return a quantity that does not vary."""
    return Distribution("constant", (value,))
