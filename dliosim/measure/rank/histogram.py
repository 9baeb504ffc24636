"""Latencies in logarithmic buckets: fixed memory for any number of calls, and a known relative error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.reducer import Ints

#: Largest relative error of a quantile.
RELATIVE_ERROR = 0.01

# A bucket is the leading bits of the latency as a float64: each power of two has 64 equal buckets, so the edges of a
# bucket are at most 1/128 of the value from its middle. Bits are ten times faster than logarithms, and they are the
# same on any machine.
_BITS = 6
_SHIFT = 52 - _BITS
_FIRST = 1023 << _BITS
_POWERS = 43
_OVERFLOW = (_POWERS << _BITS) + 1

#: In ns (2.4 hours). Longer latencies are counted, but a quantile among them is unknown.
LIMIT_NS = 1 << _POWERS

#: Number of int64 of `Histogram.pack_sums`.
PACKED = _OVERFLOW + 3


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of latencies, in seconds; one beyond `LIMIT_NS` is inf."""

    #: half of the latencies are at most this
    p50: float
    #: 90 % are
    p90: float
    #: 99 % are
    p99: float
    #: 99.9 % are
    p999: float
    #: the longest; always exact
    max: float


class Histogram:
    """Counts of latencies by bucket, with their exact number, sum, minimum and maximum, in nanoseconds.

    Buckets cover 1 ns to `LIMIT_NS`. One bucket below holds zeros, one above holds longer latencies. A histogram
    that grows has all buckets, 22 kB. One that is reduced over ranks has only those with latencies, since rank 0 keeps
    the histograms of all saves and epochs of a run.
    """

    __slots__ = ("_buckets", "_counts", "count", "max_ns", "min_ns", "sum_ns")

    def __init__(self, latencies: Sequence[int] | Ints = ()) -> None:
        self._buckets: NDArray[np.int16] | None = np.empty(0, np.int16)  # those of `_counts`, ascending; None for all
        self._counts = np.empty(0, np.int64)
        self.count = 0
        self.sum_ns = 0
        self.min_ns = 0
        self.max_ns = 0
        self.add(latencies)

    def add(self, latencies: Sequence[int] | Ints) -> None:
        """Count latencies in ns; ValueError if one is negative. It takes 10 us a batch and 20 ns a latency."""
        if len(latencies) == 0:
            return
        values = np.asarray(latencies, dtype=np.int64)
        low, high = int(values.min()), int(values.max())
        if low < 0:
            raise ValueError(f"a latency of {low} ns: the clock ran backwards")
        # The bits of a zero are far below the first bucket. Clipping puts zeros and long latencies at the ends.
        buckets = (values.astype(np.float64).view(np.int64) >> _SHIFT) - (_FIRST - 1)
        # Not np.clip, which looks up the limits of the type in each call.
        np.maximum(buckets, 0, out=buckets)
        np.minimum(buckets, _OVERFLOW, out=buckets)
        self._add_counts(np.bincount(buckets, minlength=_OVERFLOW + 1), len(values), int(values.sum()), low, high)

    def merge(self, other: Histogram) -> None:
        """Add the counts of `other`."""
        if other.count:
            self._add_counts(other._all_counts(), other.count, other.sum_ns, other.min_ns, other.max_ns)

    def _add_counts(self, counts: Ints, count: int, sum_ns: int, low: int, high: int) -> None:
        self.min_ns = min(self.min_ns, low) if self.count else low
        self.max_ns = max(self.max_ns, high)
        self._buckets, self._counts = None, self._all_counts()
        self._counts += counts
        self.count += count
        self.sum_ns += sum_ns

    def _all_counts(self) -> Ints:
        """Return the counts of all buckets, int64 (buckets,)."""
        if self._buckets is None:
            return self._counts
        counts = np.zeros(_OVERFLOW + 1, np.int64)
        counts[self._buckets] = self._counts
        return counts

    def pack_sums(self) -> Ints:
        """Return the numbers that ranks add up: buckets, then number and sum of the latencies; int64 (`PACKED`,)."""
        return np.concatenate([self._all_counts(), np.array([self.count, self.sum_ns], np.int64)])

    def pack_maxima(self) -> Ints:
        """Return the numbers that ranks maximise: -minimum, maximum; int64 (2,), very low if there are no latencies."""
        nothing = np.iinfo(np.int64).min
        return np.array([-self.min_ns, self.max_ns] if self.count else [nothing, nothing], np.int64)

    @classmethod
    def unpack_histogram(cls, sums: Ints, maxima: Ints) -> Histogram:
        """Return the histogram of all ranks, from the reduced `pack_sums` and `pack_maxima`."""
        whole = cls()
        if sums[-2]:
            whole._add_counts(sums[:-2], int(sums[-2]), int(sums[-1]), -int(maxima[0]), int(maxima[1]))
            used = np.flatnonzero(whole._counts)
            whole._buckets, whole._counts = used.astype(np.int16), whole._counts[used]
        return whole

    def nonempty_buckets(self) -> Ints:
        """Return the buckets that are not empty, int64 (n, 2): upper edge in ns (exclusive), number of latencies."""
        used = np.flatnonzero(counts := self._all_counts())
        edges = [_upper_edge(bucket) if bucket < _OVERFLOW else self.max_ns + 1 for bucket in used.tolist()]
        return np.column_stack([np.array(edges, np.int64), counts[used]])

    def quantile(self, share: float) -> float:
        """Return the ns that `share` of the latencies do not exceed (nearest rank), within `RELATIVE_ERROR`.

        inf if that latency is above the buckets, nan if there are no latencies.
        """
        if not self.count:
            return math.nan
        rank = min(max(math.ceil(share * self.count), 1), self.count)
        bucket = int(np.searchsorted(np.cumsum(self._all_counts()), rank))
        if bucket == _OVERFLOW:
            return math.inf
        return min(max(_bucket_middle(bucket), float(self.min_ns)), float(self.max_ns))

    def quantiles(self) -> Quantiles | None:
        """Return the quantiles that are reported, in seconds; None if there are no latencies."""
        if not self.count:
            return None
        p50, p90, p99, p999 = (self.quantile(share) * 1e-9 for share in (0.5, 0.9, 0.99, 0.999))
        return Quantiles(p50, p90, p99, p999, self.max_ns * 1e-9)


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """Return one histogram of the latencies of all."""
    whole = Histogram()
    for histogram in histograms:
        whole.merge(histogram)
    return whole


def _bucket_middle(bucket: int) -> float:
    """Return the middle of a bucket in ns; exact if the bucket holds a single whole ns."""
    if bucket == 0:
        return 0.0
    power, part = divmod(bucket - 1, 1 << _BITS)
    low = math.ldexp(1.0 + part / (1 << _BITS), power)
    width = math.ldexp(1.0, power - _BITS)
    return math.ceil(low) if width <= 1.0 else low + width / 2


def _upper_edge(bucket: int) -> int:
    """Return the least whole ns above all that a bucket holds."""
    power, part = divmod(bucket, 1 << _BITS)
    return math.ceil(math.ldexp(1.0 + part / (1 << _BITS), power))
