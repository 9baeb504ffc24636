"""The reads of samples, a row for each, and what is counted in such columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints, find_starts, sort_groups
from dliosim.analyze.figures.view import View

#: A gap that is long is this many times as long as others.
_GAP: Final = 2.0
#: The share of short gaps, and of long ones, between whose lengths there is nothing.
_SURE: Final = 0.9


@dataclass(frozen=True, slots=True)
class SampleReads:
    """The reads of the samples of a data set, a row for each, in order of rank and time; (n,) each."""

    rank: Ints  #: the rank, or the process if no rank is known
    lane: Ints  #: thread of a process
    sample: Ints  #: number of the sample, in the order of the names of files
    file: Ints  #: number of its file, in the order of names
    size: Ints  #: bytes
    begin: Ints  #: ns
    end: Ints  #: ns
    epoch: Ints  #: epoch, from 1; -1 if it is not known
    step: Ints  #: step, from 1; -1 if it is not known

    def __len__(self) -> int:
        return len(self.rank)


def list_reads(view: View, first: Ints, last: Ints, within: Ints, sample: Ints, file: Ints, size: Ints) -> SampleReads:
    """Return the reads of samples, each from one call to another; `within` is its number among those of its call."""
    events, rank = view.events, view.groups_of(first)
    order = np.lexsort((within, events.begin[first], rank))
    first, last, rank, sample = first[order], last[order], rank[order], sample[order]
    epoch = events.epoch[first].astype(np.int64)
    return SampleReads(
        rank,
        lanes_of(view, first),
        sample,
        file[order],
        size[order],
        events.begin[first],
        events.end[last],
        epoch if (epoch >= 0).any() else number_within(rank * (int(sample.max(initial=0)) + 1) + sample) + 1,
        events.step[first].astype(np.int64),
    )


def lanes_of(view: View, rows: Ints) -> Ints:
    """Return a number for the thread of each call."""
    found: Ints = view.events.process[rows].astype(np.int64) << 32 | view.events.thread[rows]
    return found


def find_spans(view: View, spans: Ints, rank: Ints, time: Ints) -> Ints:
    """Return the place in `spans` of the event in which a rank was at some times; -1 for none; (times,)."""
    found = np.full(len(time), -1, np.int64)
    ranks = view.groups_of(spans)
    for number in np.unique(ranks).tolist():
        own, rows = np.flatnonzero(ranks == number), np.flatnonzero(rank == number)
        own = own[np.argsort(view.events.begin[spans[own]], kind="stable")]
        place = np.searchsorted(view.events.begin[spans[own]], time[rows], "right") - 1
        inside = (place >= 0) & (time[rows] <= view.events.end[spans[own[place]]])
        found[rows] = np.where(inside, own[place], -1)
    return found


def find_long(gaps: Ints) -> Bools:
    """Return which gaps are long: from half of those that make half of the time on; none if others are not shorter."""
    if not len(gaps):
        return np.zeros(0, np.bool_)
    gaps = np.maximum(gaps, 1)
    ordered = np.sort(gaps)[::-1]
    total = np.cumsum(ordered.astype(float))
    found: Bools = gaps >= ordered[np.searchsorted(total, total[-1] / 2)] / 2
    is_clear = not found.all() and np.quantile(gaps[~found], _SURE) * _GAP < np.quantile(gaps[found], 1 - _SURE)
    return found if is_clear else np.zeros(len(gaps), np.bool_)


def count_at_once(spans: Sequence[tuple[int, int]]) -> int:
    """Return how many spans of time there are at one time, at most."""
    begins, ends = (np.sort(np.array(each)) for each in zip(*spans, strict=True))
    return int((np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, "right")).max())


def count_by(*columns: Ints) -> tuple[list[Ints], Ints]:
    """Return the different rows of some columns, and how often each is there."""
    order = np.lexsort(columns[::-1])
    starts = np.flatnonzero(find_starts(*(column[order] for column in columns)))
    return [column[order[starts]] for column in columns], np.diff(np.append(starts, len(order)))


def number_rows(*columns: Ints) -> Ints:
    """Return the number of each row among the different rows of some columns, in their order, from 0; (n,)."""
    order = np.lexsort(columns[::-1])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(find_starts(*(column[order] for column in columns))) - 1
    return numbers


def mode_of(values: Ints) -> tuple[int, float]:
    """Return the most frequent value and its share; the smallest of several."""
    if not len(values):
        return 0, 0.0
    number, times = np.unique(values, return_counts=True)
    most = int(times.argmax())
    return int(number[most]), float(times[most] / len(values))


def number_within(keys: Ints) -> Ints:
    """Return the number of each row among those of its key, from 0."""
    order, starts = sort_groups(keys)
    numbers = np.empty(len(keys), np.int64)
    numbers[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return numbers
