"""Columns of numbers: groups of rows, quantiles, and intervals of time in ns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.events import Events

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

#: Rows that are worked on at once, if more columns of a table would need much memory.
_BLOCK = 1 << 20


def find_starts(*columns: NDArray[Any]) -> Bools:
    """Return which rows begin a group: the first one, and those that differ from the one before in a column; (n,)."""
    starts = np.ones(len(columns[0]), np.bool_)
    starts[1:] = False
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def split_processes(events: Events) -> list[slice]:
    """Return the rows of each process."""
    ends = np.searchsorted(events.process, np.arange(len(events.processes) + 1)).tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


def split_blocks(rows: int, size: int) -> Iterator[slice]:
    """Yield a number of rows, block by block."""
    for first in range(0, rows, size):
        yield slice(first, min(first + size, rows))


def sort_groups(keys: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return rows in order of their key, equal keys in their own order, and the place where each key begins."""
    if len(keys) and keys.min() >= 0 and keys.max() < 1 << 16:
        keys = keys.astype(np.uint16)  # sorted by radix, in a tenth of the time
    order = np.argsort(keys, kind="stable")
    return order, np.flatnonzero(find_starts(keys[order]))


def group_rows(keys: NDArray[Any]) -> Iterator[tuple[int, Ints]]:
    """Yield each key and its rows, in order."""
    order, starts = sort_groups(keys)
    for rows in np.split(order, starts[1:]) if len(order) else ():
        yield int(keys[rows[0]]), rows


def quantiles(values: Ints, *shares: float) -> list[float]:
    """Return the value that each share of the values does not exceed: the ceil(share * n)-th smallest."""
    return [float(value) for value in np.quantile(values, shares, method="inverted_cdf")]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals in order; no two touch."""

    begin: Ints  #: first ns of each; (n,)
    end: Ints  #: ns after the last of each; (n,)

    @property
    def length(self) -> int:
        """Length of all together, ns."""
        return int((self.end - self.begin).sum())

    def intersect(self, other: Intervals) -> Intervals:
        """Return the times that are in both."""
        times = np.concatenate([self.begin, other.begin, self.end, other.end])
        steps = np.repeat([1, -1], len(times) // 2)
        order = np.argsort(times, kind="stable")
        is_both = np.cumsum(steps[order]) == 2
        return merge_intervals(times[order][is_both], np.append(times[order][1:], 0)[is_both])

    def contains(self, times: Ints) -> Bools:
        """Return which times are inside of an interval; (n,)."""
        if not len(self.begin):
            return np.zeros(len(times), np.bool_)
        at = np.searchsorted(self.begin, times, "right") - 1
        return (at >= 0) & (times < self.end[at])


NOTHING = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def merge_intervals(begin: Ints, end: Ints) -> Intervals:
    """Return the union of intervals in any order; an empty one adds nothing."""
    some = end > begin
    if not some.all():
        begin, end = begin[some], end[some]
    if not len(begin):
        return NOTHING
    # If as many intervals have ended as have begun before one, none is under way: no need to know which they are.
    begin, end = np.sort(begin), np.sort(end)
    is_first = np.ones(len(begin), np.bool_)
    is_first[1:] = begin[1:] > end[:-1]
    return Intervals(begin[is_first], end[np.append(is_first[1:], True)])


def unite_intervals(*parts: Intervals) -> Intervals:
    """Return the union of several."""
    some = [one for one in parts if len(one.begin)]
    if len(some) < 2:
        return some[0] if some else NOTHING
    return merge_intervals(np.concatenate([one.begin for one in some]), np.concatenate([one.end for one in some]))


def spread_amounts(
    begin: Ints, end: Ints, amounts: Ints | Floats, rows: Ints, shape: tuple[int, int], length: int
) -> Floats:
    """Return amounts in bins of time, each spread evenly over its interval; of `shape` (rows, bins).

    `rows` has the row of each amount; the bins divide the time from 0 to `length` ns. An amount in no time is in the
    bin in which it begins.
    """
    bins = shape[1]
    width = max(length, 1) / bins
    total = np.zeros(shape[0] * bins)
    steps = np.zeros(shape[0] * (bins + 1))
    under_way = np.zeros(len(steps), np.int64)
    for part in split_blocks(len(begin), _BLOCK):
        low, high, amount, row = begin[part], end[part], amounts[part].astype(np.float64), rows[part]
        first = np.clip((low / width).astype(np.int64), 0, bins - 1)
        last = np.clip(np.ceil(high / width).astype(np.int64) - 1, first, bins - 1)
        one = first == last
        total += np.bincount((row * bins + first)[one], amount[one], len(total))
        if one.all():
            continue
        low, high, amount, row, first, last = (each[~one] for each in (low, high, amount, row, first, last))
        rate = amount / (high - low)
        total += np.bincount(row * bins + first, rate * ((first + 1) * width - low), len(total))
        total += np.bincount(row * bins + last, rate * (high - last * width), len(total))
        for place, sign in ((row * (bins + 1) + first + 1, 1), (row * (bins + 1) + last, -1)):
            steps += sign * np.bincount(place, rate * width, len(steps))
            under_way += sign * np.bincount(place, minlength=len(steps))
    between, count = (np.cumsum(each.reshape(shape[0], -1), axis=1)[:, :bins] for each in (steps, under_way))
    # What rounding leaves behind the last interval is no amount.
    return total.reshape(shape) + np.where(count > 0, between, 0.0)
