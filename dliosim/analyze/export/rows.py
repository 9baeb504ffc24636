"""The events of an export."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools
from dliosim.trace.cut import TracePart
from dliosim.trace.events import UNKNOWN, Events


def select_part(events: Events, part: TracePart) -> Events:
    """Return the events of a part: of its ranks, epochs and steps, and those under way in its times.

    Events outside epochs or steps are kept, as by `dliosim run --trace`.
    """
    cut = part.cut
    ranks = np.array([rank_of(events, number) for number in range(len(events.processes))], np.int64)
    rows = _is_in(ranks, cut.ranks)[events.process] if len(ranks) else np.ones(len(events), np.bool_)
    for column, limits in ((events.epoch, cut.epochs), (events.step, cut.steps)):
        rows &= (column == UNKNOWN) | _is_in(column, limits)
    if part.times is not None:
        first, last = part.times
        # An event is over at its end: of two parts that touch it is in one. One that takes no time is at its begin.
        rows &= (events.begin < last) & ((events.end > first) | (events.begin >= first))
    return events if rows.all() else events.select(rows)


def rank_of(events: Events, process: int) -> int:
    """Return the rank of a process, or its number in a trace that has no ranks."""
    rank = events.processes[process].rank
    return process if rank == UNKNOWN else rank


def _is_in(column: NDArray[np.signedinteger], limits: tuple[int, int]) -> Bools:
    is_in: Bools = (column >= limits[0]) & (column <= limits[1])
    return is_in
