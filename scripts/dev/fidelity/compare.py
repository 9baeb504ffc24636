"""The similarity of two traces: bytes, order, threads, sizes of calls, and calls at a time.

Files have other names and folders in the two, so that each is known by its place among the sorted names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from fidelity.tracing import READS, UNKNOWN, Record

#: File, offset, bytes returned.
Extent = tuple[int, int, int]

_MOST_PAIRS: Final = 64


@dataclass(frozen=True, slots=True)
class Profile:
    """The reads of one trace.

    `extents` are all reads that returned bytes in the order in which they began, `workers` the same for each thread
    that read, by its first read. `asked` are the bytes asked for by all reads, `empty` those that returned none,
    `unique` the bytes of files that were read at least once. `most` is the largest number of reads at a time, `mean`
    their number on average while there was any, `at_a_time` the share of the time from the first to the last with 0, 1,
    2, ... of them.
    """

    extents: tuple[Extent, ...]
    workers: tuple[tuple[Extent, ...], ...]
    asked: tuple[int, ...]
    calls: Counter[str]
    empty: int
    unique: int
    most: int
    mean: float
    at_a_time: tuple[float, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes that all reads returned."""
        return sum(length for _, _, length in self.extents)


@dataclass(frozen=True, slots=True)
class Likeness:
    """The similarity of two profiles, 0 to 1 each; 1 is the same.

    `order` is the share of reads that come in the same order: twice the longest common subsequence over the lengths of
    both. `per_worker` is that for the threads, each against the one most similar to it. `calls` is the share of reads,
    in any order, that are in both; `data` that of bytes of the files. `sizes` and `sizes_by_bytes` are cosines of the
    histograms of read sizes.
    """

    order: float
    per_worker: float
    calls: float
    data: float
    sizes: float
    sizes_by_bytes: float


def profile(records: Sequence[Record]) -> Profile:
    """Return the profile of a trace. Raises ValueError where the offset of a read is not known."""
    names = _numbers(records)
    reads = [record for record in records if record.call in READS and record.returned >= 0]
    full = [record for record in reads if record.returned]
    threads: dict[int, list[Extent]] = {}
    for record in full:
        if record.offset == UNKNOWN:
            raise ValueError(f"{record.call} of {record.file} by {record.pid}: its offset is not known")
        threads.setdefault(record.pid, []).append((names[record.file], record.offset, record.returned))
    most, mean = concurrency(reads)
    return Profile(
        extents=tuple((names[record.file], record.offset, record.returned) for record in full),
        workers=tuple(tuple(extents) for extents in threads.values()),
        asked=tuple(record.asked for record in reads),
        calls=Counter(record.call for record in records if record.returned >= 0),
        empty=len(reads) - len(full),
        unique=_length(_union((names[record.file], record.offset, record.returned) for record in full)),
        most=most,
        mean=mean,
        at_a_time=shares_in_flight(reads),
    )


def likeness(one: Profile, other: Profile) -> Likeness:
    """Return the similarity of two profiles."""
    return Likeness(
        order=order_similarity(one.extents, other.extents),
        per_worker=_per_worker(one.workers, other.workers),
        calls=_call_overlap(Counter(one.extents), Counter(other.extents)),
        data=_byte_overlap(one.extents, other.extents),
        sizes=cosine(sizes(one.extents, False), sizes(other.extents, False)),
        sizes_by_bytes=cosine(sizes(one.extents, True), sizes(other.extents, True)),
    )


def shares_in_flight(records: Sequence[Record]) -> tuple[float, ...]:
    """Return the share of the time from the first call's begin to the last one's end with 0, 1, ... calls in flight."""
    events = sorted([*((r.start, 1) for r in records), *((r.end, -1) for r in records)])
    running = 0
    times: dict[int, float] = {}
    for (time, change), (until, _) in pairwise(events):
        running += change
        times[running] = times.get(running, 0.0) + until - time
    whole = sum(times.values())
    return tuple(times.get(number, 0.0) / whole for number in range(max(times) + 1)) if whole else ()


def concurrency(records: Sequence[Record]) -> tuple[int, float]:
    """Return the largest number of calls at a time, and their mean while there was any; 0 without calls."""
    shares = shares_in_flight(records)
    if not shares:
        return min(1, len(records)), float(min(1, len(records)))
    idle = shares[0]
    mean = sum(number * share for number, share in enumerate(shares))
    return len(shares) - 1, mean / (1 - idle) if idle < 1 else 0.0


def order_similarity(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """Return twice the longest common subsequence over the lengths of both: 1 where they are equal."""
    whole = len(one) + len(other)
    return 2 * longest_common(one, other) / whole if whole else 1.0


def longest_common(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence [Hyyro 2004: a bit for each item of `one`]."""
    places: dict[Hashable, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    full = (1 << len(one)) - 1
    row = full
    for item in other:
        matches = row & places.get(item, 0)
        row = (row + matches | row - matches) & full
    return len(one) - row.bit_count()


def sizes(extents: Iterable[Extent], by_bytes: bool) -> Counter[int]:
    """Count reads in bins of powers of two (bin b: 2^b to 2^(b + 1) - 1 bytes); or their bytes."""
    found: Counter[int] = Counter()
    for _, _, length in extents:
        found[length.bit_length() - 1] += length if by_bytes else 1
    return found


def cosine(one: Counter[int], other: Counter[int]) -> float:
    """Return the cosine of the angle between two histograms: 1 if both are empty, 0 if one of them is."""
    lengths = math.sqrt(sum(n * n for n in one.values())) * math.sqrt(sum(n * n for n in other.values()))
    if not lengths:
        return float(not one and not other)
    return min(1.0, sum(count * other[size] for size, count in one.items()) / lengths)


def bursts(starts: Sequence[float], gap: float) -> list[int]:
    """Count these times (s) in groups with gaps below `gap`: the number that is begun in each step."""
    found: list[int] = []
    last = -math.inf
    for start in sorted(starts):
        if start - last >= gap:
            found.append(0)
        found[-1] += 1
        last = start
    return found


def batches(records: Sequence[Record], batch: int) -> dict[int, list[int]]:
    """Return for each thread the batches that it read, in its order, where every sample is a file."""
    found: dict[int, list[int]] = {}
    for record, number in _batch_of_each(records, batch):
        read = found.setdefault(record.pid, [])
        if number not in read[-1:]:
            read.append(number)
    return found


def count_batch_starts(records: Sequence[Record], batch: int, compute: float) -> list[int]:
    """Return the number of batches begun at the start and in each later step, where every sample is a file.

    A pause of half of the `compute` seconds of a step separates steps: reading has to be much faster.
    """
    starts: dict[int, float] = {}
    for record, number in _batch_of_each(records, batch):
        starts.setdefault(number, record.start)
    return bursts(list(starts.values()), compute / 2)


def _numbers(records: Iterable[Record]) -> dict[str, int]:
    """Return the files that were read, by name, numbered in the order of names."""
    read = {record.file for record in records if record.call in READS and record.returned > 0}
    return {name: number for number, name in enumerate(sorted(read))}


def _batch_of_each(records: Sequence[Record], batch: int) -> Iterator[tuple[Record, int]]:
    numbers = _numbers(records)
    for record in records:
        if record.call in READS and record.returned > 0:
            yield record, numbers[record.file] // batch


def _per_worker(one: Sequence[Sequence[Extent]], other: Sequence[Sequence[Extent]]) -> float:
    """Return the mean `order_similarity` of threads and the most similar ones, weighted by reads; others count as 0."""
    if len(one) * len(other) > _MOST_PAIRS * _MOST_PAIRS:
        raise ValueError(f"{len(one)} and {len(other)} threads are too many to be held against each other")
    pairs = sorted(
        ((order_similarity(a, b), i, j) for i, a in enumerate(one) for j, b in enumerate(other)),
        key=lambda pair: (-pair[0], pair[1:]),
    )
    left, right = set(range(len(one))), set(range(len(other)))
    matched = 0.0
    for similarity, i, j in pairs:
        if i in left and j in right:
            left.remove(i)
            right.remove(j)
            matched += similarity * (len(one[i]) + len(other[j]))
    whole = sum(map(len, one)) + sum(map(len, other))
    return matched / whole if whole else 1.0


def _call_overlap(one: Counter[Extent], other: Counter[Extent]) -> float:
    both, either = (one & other).total(), (one | other).total()
    return both / either if either else 1.0


def _byte_overlap(one: Sequence[Extent], other: Sequence[Extent]) -> float:
    either = _length(_union([*one, *other]))
    both = _length(_union(one)) + _length(_union(other)) - either
    return both / either if either else 1.0


def _union(extents: Iterable[Extent]) -> list[Extent]:
    """Return the same bytes in extents that do not overlap, sorted."""
    found: list[Extent] = []
    for file, offset, length in sorted(extents):
        if found and found[-1][0] == file and offset <= (end := found[-1][1] + found[-1][2]):
            found[-1] = (file, found[-1][1], max(end, offset + length) - found[-1][1])
        else:
            found.append((file, offset, length))
    return found


def _length(extents: Iterable[Extent]) -> int:
    return sum(length for _, _, length in extents)
