"""Student's t distribution: probabilities, and the t that belongs to one."""

from __future__ import annotations

import math


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
