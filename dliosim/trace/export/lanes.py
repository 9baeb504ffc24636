"""Lanes of a timeline: two events of one lane are one within the other, or do not overlap.

Lane 0 has the spans of the main thread, 1 its I/O, 2 its waits for other ranks; from 3 on are the other threads, and
calls that were under way together with others of their thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.events import Events, kind_number

#: Kinds below this are operations on files.
_OPERATIONS: Final = kind_number("compute")
_SPANS, _IO, _SYNC, _OTHERS = range(4)
_MAIN: Final = ("steps", "I/O", "sync")
#: Threads from here on save in the background, in traces of dliosim.
_BACKGROUND: Final = 1000


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes of one process."""

    #: lane of each event, (n,)
    lane: NDArray[np.int64]
    #: name and thread of each lane
    names: dict[int, tuple[str, int]]


def assign_lanes(events: Events, has_readers: bool) -> Lanes:
    """Return the lanes of one process; events are in order of begin, the longer first.

    Threads are called readers if `has_readers` is true, as in a run of dliosim.
    """
    threads = np.unique(np.append(events.thread, 0))
    main = np.where(events.kind < _OPERATIONS, _IO, np.where(events.is_kind("sync"), _SYNC, _SPANS))
    group = np.where(events.thread == threads[0], main, _OTHERS - 1 + np.searchsorted(threads, events.thread))
    names = {number: (name, int(threads[0])) for number, name in enumerate(_MAIN)}
    names |= {
        _OTHERS + number: (_name_thread(thread, has_readers), thread)
        for number, thread in enumerate(threads[1:].tolist())
    }
    # An operation is not within another one of its layer: both are under way, and both are to be seen.
    layer = np.where(events.kind < _OPERATIONS, events.layer, -1)
    lane = group.astype(np.int64)
    following = len(names)
    for number in tuple(names):
        rows = np.flatnonzero(group == number)
        crowded = rows[_overlaps(events.begin[rows], events.end[rows])]
        columns = (each[crowded].tolist() for each in (events.begin, events.end, layer))
        extra = np.array(_stack_events(zip(*columns, strict=True)), np.int64)
        lane[crowded] = np.where(extra > 0, following - 1 + extra, number)
        name, thread = names[number]
        for more in range(int(extra.max(initial=0))):
            names[following] = f"{name}, {more + 2} under way", thread
            following += 1
    return Lanes(lane, names)


def _name_thread(thread: int, has_readers: bool) -> str:
    if not has_readers:
        return f"thread {thread}"
    return f"reader {thread}" if thread < _BACKGROUND else f"background {thread - _BACKGROUND}"


def _overlaps(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which events, in order of begin, are under way together with another one; (n,)."""
    latest = np.maximum.accumulate(end)
    is_joined = np.zeros(len(begin) + 1, np.bool_)
    is_joined[1:-1] = begin[1:] < latest[:-1]
    return is_joined[:-1] | is_joined[1:]


def _stack_events(events: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return the lane of each event (begin, end, layer): the first that is free, or whose last event is around it."""
    stacks: list[list[tuple[int, int]]] = []
    lanes = []
    for begin, end, layer in events:
        lane = 0
        for stack in stacks:
            while stack and stack[-1][0] <= begin:
                stack.pop()
            if not stack or (end <= stack[-1][0] and (layer < 0 or layer != stack[-1][1])):
                break
            lane += 1
        else:
            stack = []
            stacks.append(stack)
        stack.append((end, layer))
        lanes.append(lane)
    return lanes
