"""Differences between ranks: bytes, time, and the ranks that the others wait for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Ints
from dliosim.analyze.figures.view import METADATA, View
from dliosim.trace.events import kind_number

#: Kinds of events on a rank's own thread by whose end a step's work is done; waits for other ranks are none of them.
_OWN_WORK = ("compute", "data wait", "decode", "preprocess")
#: Those of them that only a process with steps has.
_STEPS = (kind_number("compute"), kind_number("data wait"))

#: Steps times ranks beyond which arrivals are not compared, so that memory is bounded.
_MOST_ARRIVALS = 1 << 26


@dataclass(frozen=True, slots=True)
class Rank:
    """Figures of one rank."""

    name: str  #: `rank 3`, or the process if no rank is known
    host: str  #: its node; empty if it is not known
    read: int  #: bytes read
    written: int  #: bytes written
    operations: int  #: operations on files
    io: float  #: union of its I/O, s
    metadata: float  #: sum of the durations of its operations that move no bytes, s


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that came last most often, or took longest."""

    name: str  #: which rank
    by: str  #: "step" where steps are known, else "job"
    steps: int  #: steps that were compared; 1 for the job
    last: int  #: steps in which this rank was last
    behind: float  #: mean over these of how far it was behind the median of the others, s
    #: sum over these of how far it was behind the second to last, s: the others wait for it alone
    cost: float
    #: its time / mean of the others', - 1; of steps from the step's earliest start to its own end
    over: float


def list_ranks(view: View) -> tuple[Rank, ...]:
    """Return what each rank did."""
    events, count = view.events, len(view.groups)
    rows = np.flatnonzero(view.basic)
    group = view.groups_of(rows)

    def add_up(weights: Ints, *kinds: str) -> Ints:
        return np.bincount(group, np.where(events.is_kind(*kinds)[rows], weights[rows], 0), count).astype(np.int64)

    read, written = (add_up(view.bytes, kind).tolist() for kind in ("read", "write"))
    metadata = (add_up(events.duration, *METADATA) / 1e9).tolist()
    operations = np.bincount(group, minlength=count).tolist()
    io = [one.length / 1e9 for one in view.unite(view.operations)]
    hosts = dict(zip(view.group_of.tolist(), (one.host for one in events.processes), strict=True))
    named = (hosts.get(number, "") for number in range(count))
    return tuple(map(Rank, view.groups, named, read, written, operations, io, metadata))


def find_straggler(view: View, ranks: tuple[Rank, ...]) -> Straggler | None:
    """Return the rank that the others wait for, by step or else over the job; None for a single rank."""
    return (_find_by_step(view) if len(ranks) > 1 else None) or find_slowest(ranks)


def _find_by_step(view: View) -> Straggler | None:
    events, count = view.events, len(view.groups)
    rows = np.flatnonzero(events.is_kind(*_OWN_WORK) & (events.thread == 0) & (events.step >= 0))
    # Workers in processes of their own are ahead of the step that they work for.
    has_steps = np.zeros(len(events.processes), np.bool_)
    has_steps[events.process[rows[np.isin(events.kind[rows], _STEPS)]]] = True
    rows = rows[has_steps[events.process[rows]]]
    if not len(rows):
        return None
    epoch, step = events.epoch[rows].astype(np.int64), events.step[rows].astype(np.int64)
    steps, number = np.unique(epoch * (int(step.max()) + 1) + step, return_inverse=True)
    if len(steps) * count > _MOST_ARRIVALS:
        return None
    end = np.full((len(steps), count), -1, np.int64)
    begin = np.full(len(steps), np.iinfo(np.int64).max)
    np.maximum.at(end, (number, view.groups_of(rows)), events.begin[rows] + events.duration[rows])
    np.minimum.at(begin, number, events.begin[rows])
    whole = (end >= 0).all(axis=1)  # steps that each rank has
    if not whole.any():
        return None
    return _compare(view.groups, (end - begin[:, None])[whole], "step", 1e9)


def find_slowest(ranks: Sequence[Rank]) -> Straggler | None:
    """Return the rank with the longest I/O over the job; None for a single rank, or without I/O."""
    times = np.array([[one.io for one in ranks]])
    return _compare([one.name for one in ranks], times, "job", 1.0) if len(ranks) > 1 and times.max() > 0 else None


def _compare(names: Sequence[str], times: NDArray[Any], by: str, second: float) -> Straggler:
    """Return the straggler of `times`, (steps, ranks): since the earliest start, `second` of them in a second."""
    order = np.sort(times, axis=1)
    last = np.argmax(times, axis=1)
    lead = order[:, -1] - order[:, -2]
    cost = np.bincount(last, lead, times.shape[1])
    # Of ranks that cost as much, such as nothing, one that was last.
    rank = max(range(len(names)), key=lambda one: (cost[one], np.count_nonzero(last == one)))
    own = last == rank
    others = np.delete(times, rank, axis=1)
    behind = times[own, rank] - np.median(others[own], axis=1)
    mean = float(others.mean())
    over = float(times[:, rank].mean()) / mean - 1 if mean > 0 else math.inf if times.any() else 0.0
    amounts = float(behind.mean()) / second, float(cost[rank]) / second
    return Straggler(names[rank], by, len(times), int(own.sum()), *amounts, over)
