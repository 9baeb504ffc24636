"""Quantities that vary: a distribution, its parameters, and the interval it is clamped to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

POISSON_MEAN_LIMIT: Final = 10**9  # of what can be drawn

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

    def mean_from_zero(self) -> float:
        """The mean of draws of which those below 0 count as 0, before clamping."""
        if self.kind != "normal" or self.parameters[1] == 0:
            return max(0.0, self.mean)
        mean, stdev = self.parameters
        density = math.exp(-0.5 * (mean / stdev) * (mean / stdev)) / math.sqrt(2 * math.pi)
        return mean * (1 - self.share_not_positive()) + stdev * density

    def share_not_positive(self) -> float:
        """The share of draws, before clamping, that are 0 or less."""
        if self.kind == "constant":
            return float(self.parameters[0] <= 0)
        if self.kind == "normal":
            mean, stdev = self.parameters
            if stdev == 0:
                return float(mean <= 0)
            return 0.5 * math.erfc(mean / (stdev * math.sqrt(2)))
        if self.kind == "uniform":
            low, high = self.parameters
            if low > 0:
                return 0.0
            return 1.0 if high <= 0 else -low / (high - low)
        if self.kind == "poisson":
            return math.exp(-self.parameters[0])
        return 0.0


def constant(value: float) -> Distribution:
    """A quantity that does not vary."""
    return Distribution("constant", (value,))
