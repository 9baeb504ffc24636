"""Latencies in logarithmic buckets: fixed memory however many calls, and a stated relative error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.reducer import Reducer

#: A quantile differs from the exact one of the same latencies by at most this share of it.
RELATIVE_ERROR = 0.01

# Buckets are the leading bits of the latency as a float64: 64 equal ones to each power of two, hence 1/128 of the value
# at most from a bucket's middle to its edges. Bits, not logarithms: ten times faster, and the same on any machine.
_BITS = 6
_SHIFT = 52 - _BITS
_FIRST = 1023 << _BITS
_POWERS = 43
_OVERFLOW = (_POWERS << _BITS) + 1

#: Latencies of this many nanoseconds (2.4 hours) and more are counted, but no quantile among them is known.
LIMIT_NS = 1 << _POWERS

#: Length of `Histogram.pack_sums`.
PACKED = _OVERFLOW + 3


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds. A quantile beyond `LIMIT_NS` is inf; `max` is exact always."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class Histogram:
    """How many latencies lie in which bucket, with their exact number, sum, minimum and maximum, in nanoseconds.

    Buckets run from 1 ns to `LIMIT_NS`; one below them holds zeros, one above them whatever took longer. The counts
    are allocated with the first latency, so that an empty histogram is small.
    """

    __slots__ = ("_counts", "count", "max_ns", "min_ns", "sum_ns")

    def __init__(self, latencies: Sequence[int] | NDArray[np.int64] = ()) -> None:
        self._counts: NDArray[np.int64] | None = None
        self.count = 0
        self.sum_ns = 0
        self.min_ns = 0
        self.max_ns = 0
        self.add(latencies)

    def add(self, latencies: Sequence[int] | NDArray[np.int64]) -> None:
        """Count latencies in ns; ValueError if one is negative. 10 us a batch and 20 ns each."""
        if len(latencies) == 0:
            return
        values = np.asarray(latencies, dtype=np.int64)
        low, high = int(values.min()), int(values.max())
        if low < 0:
            raise ValueError(f"a latency of {low} ns: the clock ran backwards")
        # A zero's bits lie far below the first bucket, and clipping puts it, and what is too long, at the ends.
        buckets = (values.astype(np.float64).view(np.int64) >> _SHIFT) - (_FIRST - 1)
        # np.clip would look up the limits of the type each time.
        np.maximum(buckets, 0, out=buckets)
        np.minimum(buckets, _OVERFLOW, out=buckets)
        self._add_counts(np.bincount(buckets, minlength=_OVERFLOW + 1), len(values), int(values.sum()), low, high)

    def merge(self, other: Histogram) -> None:
        """Count what `other` counted too."""
        if other._counts is not None:
            self._add_counts(other._counts, other.count, other.sum_ns, other.min_ns, other.max_ns)

    def _add_counts(self, counts: NDArray[np.int64], count: int, sum_ns: int, low: int, high: int) -> None:
        if self._counts is None:
            self._counts = counts.astype(np.int64)
            self.min_ns, self.max_ns = low, high
        else:
            self._counts += counts
            self.min_ns, self.max_ns = min(self.min_ns, low), max(self.max_ns, high)
        self.count += count
        self.sum_ns += sum_ns

    def pack_sums(self) -> NDArray[np.int64]:
        """The buckets, then number and sum of the latencies: what is added up over ranks (`PACKED` numbers)."""
        counts = np.zeros(_OVERFLOW + 1, np.int64) if self._counts is None else self._counts
        return np.concatenate([counts, np.array([self.count, self.sum_ns], np.int64)])

    def pack_maxima(self) -> NDArray[np.int64]:
        """Minus the minimum, then the maximum: what is maximised over ranks; very low where there are none."""
        nothing = np.iinfo(np.int64).min
        return np.array([-self.min_ns, self.max_ns] if self.count else [nothing, nothing], np.int64)

    @classmethod
    def unpack_histogram(cls, sums: NDArray[np.int64], maxima: NDArray[np.int64]) -> Histogram:
        """The histogram of all ranks, from the reduced `pack_sums` and `pack_maxima`."""
        whole = cls()
        if sums[-2]:
            whole._add_counts(sums[:-2], int(sums[-2]), int(sums[-1]), -int(maxima[0]), int(maxima[1]))
        return whole

    def reduce(self, reducer: Reducer) -> Histogram | None:
        """The histogram of all ranks' latencies at the root, None elsewhere. Collective: two reductions."""
        sums = reducer.reduce(self.pack_sums(), "sum")
        maxima = reducer.reduce(self.pack_maxima(), "max")
        return None if sums is None or maxima is None else Histogram.unpack_histogram(sums, maxima)

    def nonempty_buckets(self) -> NDArray[np.int64]:
        """The buckets that are not empty, (n, 2): the ns below which all latencies of one lie, and their number."""
        if self._counts is None:
            return np.empty((0, 2), np.int64)
        buckets = np.flatnonzero(self._counts)
        edges = [_upper_edge(bucket) if bucket < _OVERFLOW else self.max_ns + 1 for bucket in buckets.tolist()]
        return np.column_stack([np.array(edges, np.int64), self._counts[buckets]])

    def quantile(self, share: float) -> float:
        """Nanoseconds that `share` of the latencies do not exceed (nearest rank), within `RELATIVE_ERROR`.

        inf where that latency is longer than the buckets reach, nan where there are none.
        """
        if self._counts is None:
            return math.nan
        rank = min(max(math.ceil(share * self.count), 1), self.count)
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        if bucket == _OVERFLOW:
            return math.inf
        return min(max(_bucket_middle(bucket), float(self.min_ns)), float(self.max_ns))

    def quantiles(self) -> Quantiles | None:
        """The quantiles that are reported, in seconds; None where there are no latencies."""
        if self._counts is None:
            return None
        p50, p90, p99, p999 = (self.quantile(share) * 1e-9 for share in (0.5, 0.9, 0.99, 0.999))
        return Quantiles(p50, p90, p99, p999, self.max_ns * 1e-9)


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of the latencies of all."""
    whole = Histogram()
    for histogram in histograms:
        whole.merge(histogram)
    return whole


def _bucket_middle(bucket: int) -> float:
    """The middle of a bucket in ns; latencies are whole ns, so that narrow buckets at the low end are exact."""
    if bucket == 0:
        return 0.0
    power, part = divmod(bucket - 1, 1 << _BITS)
    low = math.ldexp(1.0 + part / (1 << _BITS), power)
    width = math.ldexp(1.0, power - _BITS)
    return math.ceil(low) if width <= 1.0 else low + width / 2


def _upper_edge(bucket: int) -> int:
    """The least whole ns above all that a bucket holds."""
    power, part = divmod(bucket, 1 << _BITS)
    return math.ceil(math.ldexp(1.0 + part / (1 << _BITS), power))
