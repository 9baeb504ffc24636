"""The part of a trace that is exported: `steps 1 to 100, ranks 0 to 7, from 1 s to 2 s`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.cut import TraceCut, parse_cut
from dliosim.trace.events import UNKNOWN, Events
from dliosim.units import parse_seconds

_TIMES: Final = re.compile(r"from\s+(\S.*?)\s+to\s+(\S.*)", re.IGNORECASE)
_EXAMPLE: Final = '--part "steps 1 to 100, ranks 0 to 7, from 1 s to 2 s"'


@dataclass(frozen=True, slots=True)
class TracePart:
    """A part of a trace."""

    #: epochs, steps and ranks
    cut: TraceCut = field(default_factory=TraceCut)
    #: the part in words; empty for all
    text: str = ""
    #: first ns, and the ns behind the last one; None for all times
    times: tuple[int, int] | None = None


def parse_part(text: str) -> TracePart:
    """Return the part that a text asks for; nothing asks for all. Raises ValueError, which says what can be written."""
    others: list[str] = []
    times: tuple[int, int] | None = None
    for piece in filter(None, (each.strip() for each in text.split(","))):
        if found := _TIMES.fullmatch(piece):
            first, last = (round(parse_seconds(each) * 1e9) for each in found.groups())
            if not 0 <= first < last < 1 << 62:
                raise ValueError(f"`{piece}`: the earlier time first, like from 1 s to 2 s")
            if times is not None:
                raise ValueError(f"`{piece}`: times are one range, from the first to the last, like {_EXAMPLE}")
            times = first, last
        elif re.match(r"(?:epoch|step|rank)s?\s", piece, re.IGNORECASE):
            others.append(piece)
        else:
            raise ValueError(f"`{piece}` is no part of an export: steps, epochs, ranks or times, like {_EXAMPLE}")
    return TracePart(parse_cut(", ".join(others)), text.strip(), times)


def select_part(events: Events, part: TracePart) -> Events:
    """Return the events of a part: of its ranks, epochs and steps, and those under way in its times.

    What belongs to no epoch or no step is kept, as by `dliosim run --trace`.
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


def _is_in(column: NDArray[np.signedinteger], limits: tuple[int, int]) -> NDArray[np.bool_]:
    is_in: NDArray[np.bool_] = (column >= limits[0]) & (column <= limits[1])
    return is_in
