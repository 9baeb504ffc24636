"""Random numbers without state: draw k is a function of (key, k), so any rank can make any part of any stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.hashes import blake2b
from dliosim.model.distributions import NO_SPREAD, POISSON_MEAN_LIMIT, Distribution

# Elements of a chunk: its temporaries fit in the second-level cache.
CHUNK = 16_384

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _12 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(12)
_MASK = (1 << 64) - 1
# Shape of a gamma from which it is drawn as a normal: its skew is below 1e-7, and rounding hides the rejection test.
_NORMAL_SHAPE = 1e14


def key(seed: int, *purpose: str | int) -> int:
    """Return a 64-bit key of a seed and its purpose; different purposes give unrelated streams."""
    text = "\x1f".join([f"i{seed}", *(f"i{item}" if isinstance(item, int) else f"s{item}" for item in purpose)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit words in place (the finalizer of splitmix64, a bijection) and return them."""
    words ^= words >> _30
    words *= _FIRST
    words ^= words >> _27
    words *= _SECOND
    words ^= words >> _31
    return words


def map_chunks(
    function: Callable[[NDArray[Any]], NDArray[Any]], values: NDArray[Any], dtype: type[Any]
) -> NDArray[Any]:
    """Return `function` of a flat array, computed chunk by chunk so that temporaries stay small."""
    if len(values) <= CHUNK:
        return function(values)
    result = np.empty(len(values), dtype)
    for first in range(0, len(values), CHUNK):
        result[first : first + CHUNK] = function(values[first : first + CHUNK])
    return result


def random_words(key: int, counters: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64 random bits for each counter."""
    start = np.uint64(key & _MASK)
    # A second word of the key between the two mixings: without it two keys would give the same sequence, shifted.
    second = np.uint64((key * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) & _MASK)

    def words(piece: NDArray[Any]) -> NDArray[np.uint64]:
        result = piece.astype(np.uint64)
        result *= _GOLDEN
        result += start
        mix(result)
        result += second
        return mix(result)

    return map_chunks(words, counters, np.uint64)


def uniforms(key: int, counters: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a number in the open interval (0, 1) for each counter, in steps of 2**-52."""

    def numbers(piece: NDArray[Any]) -> NDArray[np.float64]:
        words = random_words(key, piece)
        words >>= _12
        result = words.astype(np.float64)
        result += 0.5
        result *= 2.0**-52
        return result

    return map_chunks(numbers, counters, np.float64)


def draw(distribution: Distribution, key: int, counters: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the draw of each counter, clamped to the distribution's interval.

    Raises PlanError for a Poisson mean above 1e9.
    """
    if distribution.is_constant:
        result = np.full(len(counters), distribution.parameters[0], np.float64)
    else:
        sampler = _SAMPLERS[distribution.kind]
        result = map_chunks(lambda piece: sampler(distribution.parameters, key, piece), counters, np.float64)
    if distribution.low is not None or distribution.high is not None:
        np.clip(result, distribution.low, distribution.high, out=result)
    return result


def _standard_normal(key: int, counters: NDArray[Any]) -> NDArray[np.float64]:
    # Box-Muller, the cosine half only: the sine half would tie a draw to its neighbour's counter.
    radius = np.log(uniforms(key, counters))
    radius *= -2.0
    np.sqrt(radius, out=radius)
    angle = uniforms(key ^ 0x5851F42D4C957F2D, counters)
    angle *= 2.0 * math.pi
    radius *= np.cos(angle, out=angle)
    return radius


def _normal(parameters: tuple[float, ...], key: int, counters: NDArray[Any]) -> NDArray[np.float64]:
    mean, stdev = parameters
    return mean + stdev * _standard_normal(key, counters)


def _lognormal(parameters: tuple[float, ...], key: int, counters: NDArray[Any]) -> NDArray[np.float64]:
    mean, stdev = parameters
    variance = math.log1p((stdev / mean) ** 2)
    values = _standard_normal(key, counters)
    values *= math.sqrt(variance)
    values += math.log(mean) - variance / 2
    return np.exp(values, out=values)


def _uniform(parameters: tuple[float, ...], key: int, counters: NDArray[Any]) -> NDArray[np.float64]:
    low, high = parameters
    return low + (high - low) * uniforms(key, counters)


def _exponential(parameters: tuple[float, ...], key: int, counters: NDArray[Any]) -> NDArray[np.float64]:
    return -parameters[0] * np.log(uniforms(key, counters))


def _gamma(parameters: tuple[float, ...], key_: int, counters: NDArray[Any]) -> NDArray[np.float64]:
    # Marsaglia and Tsang 2000. A rejected draw is repeated with a key of the attempt, so counters stay independent.
    mean, stdev = parameters
    if stdev <= NO_SPREAD * mean:
        return np.full(len(counters), mean)
    shape, scale = (mean / stdev) ** 2, stdev * (stdev / mean)
    if shape > _NORMAL_SHAPE:
        return _normal(parameters, key_, counters)
    boosted = shape if shape >= 1 else shape + 1
    d = boosted - 1 / 3
    c = 1 / math.sqrt(9 * d)
    result = np.empty(len(counters))
    pending = np.arange(len(counters))
    attempt = 0
    while len(pending):
        tried = counters[pending]
        x = _standard_normal(key(key_, "gamma normal", attempt), tried)
        u = uniforms(key(key_, "gamma uniform", attempt), tried)
        v = (1 + c * x) ** 3
        positive = v > 0
        accepted = positive & (np.log(u) < 0.5 * x * x + d - d * v + d * np.log(np.where(positive, v, 1.0)))
        result[pending[accepted]] = d * v[accepted]
        pending = pending[~accepted]
        attempt += 1
    if shape < 1:
        result *= uniforms(key(key_, "gamma boost"), counters) ** (1 / shape)
    result *= scale
    return result


@lru_cache(maxsize=4)
def _poisson_table(mean: float) -> tuple[int, NDArray[np.float64]]:
    # Twelve standard deviations are enough: a uniform number of 52 bits reaches eight. Summed in logs from the mode.
    reach = 12 * math.sqrt(mean) + 40
    first, last, mode = max(0, math.floor(mean - reach)), math.ceil(mean + reach), math.floor(mean)
    peak = mode * math.log(mean) - mean - math.lgamma(mode + 1)
    ratios = math.log(mean) - np.log(np.arange(max(first, 1), last + 1, dtype=np.float64))
    logs = np.concatenate([[0.0], np.cumsum(ratios)]) if first == 0 else np.cumsum(ratios)
    logs += peak - logs[mode - first]
    table = np.cumsum(np.exp(logs))
    table /= table[-1]
    table.setflags(write=False)
    return first, table


def _poisson(parameters: tuple[float, ...], key: int, counters: NDArray[Any]) -> NDArray[np.float64]:
    mean = parameters[0]
    if mean > POISSON_MEAN_LIMIT:
        raise PlanError(f"poisson({mean:g}): the mean can be at most {POISSON_MEAN_LIMIT:g}")
    if mean == 0:
        return np.zeros(len(counters))
    first, table = _poisson_table(mean)
    return (first + np.searchsorted(table, uniforms(key, counters))).astype(np.float64)


_SAMPLERS: dict[str, Callable[[tuple[float, ...], int, NDArray[Any]], NDArray[np.float64]]] = {
    "normal": _normal,
    "lognormal": _lognormal,
    "uniform": _uniform,
    "exponential": _exponential,
    "gamma": _gamma,
    "poisson": _poisson,
}
