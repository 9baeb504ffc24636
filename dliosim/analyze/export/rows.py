"""The events of an export, and lines of text from them: a block by one call of `%`, not an object for each event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Ints, split_blocks
from dliosim.trace.cut import TracePart
from dliosim.trace.events import KINDS, LAYERS, UNKNOWN, Events

#: Templates of rows that are kept: few if there are few files, and few bytes if there are many.
_TEMPLATES: Final = 1 << 14

#: Rows that are formatted at a time: about 2 MiB of text.
BLOCK: Final = 1 << 13


def format_rows(keys: Ints, template: Callable[[int], str], values: Ints, shown: Bools | None) -> str:
    """Return a line for each row.

    `keys` (n,) name the template of each row, which has a `%d` for each of its `values` (n, columns) that are
    `shown` (n, columns), None for all. A template is made once for each key.
    """
    if not len(keys):
        return ""
    unique, place = np.unique(keys, return_inverse=True)
    templates = list(map(template, unique.tolist()))
    text = "".join(map(templates.__getitem__, place.tolist())) if len(templates) > 1 else templates[0] * len(keys)
    flat = values.reshape(-1) if shown is None else values[shown]
    return text % tuple(flat.tolist())


def escape_percent(text: str) -> str:
    """Return a text as it stands in a template."""
    return text.replace("%", "%%")


def format_events(
    events: Events,
    columns: Callable[[slice], Sequence[NDArray[Any]]],
    values: Ints,
    shown: Bools,
    template: Callable[[str, str, str, str, list[bool]], str],
) -> Iterator[str]:
    """Yield a line for each event, in pieces of text.

    A line has the numbers of `columns` of its row, then its `values` (n, at most 7) that are `shown`. `template` takes
    its kind, layer, name, path (empty if there is none), and which values are shown; it returns a text with a `%d` for
    each.
    """

    @lru_cache(_TEMPLATES)
    def find_template(key: int) -> str:
        file, words = (key >> 31) - 1, key >> 7
        kind, layer, name = KINDS[words >> 4 & 31], LAYERS[words & 15], events.names[words >> 9 & 32767]
        bits = [bool(key >> bit & 1) for bit in range(shown.shape[1])]
        return template(kind, layer, name, "" if file < 0 else events.files[file], bits)

    for rows in split_blocks(len(events), BLOCK):
        always = columns(rows)
        numbers = np.column_stack([*always, values[rows]])
        is_shown = np.column_stack([np.ones((len(numbers), len(always)), np.bool_), shown[rows]])
        yield format_rows(_row_keys(events.select(rows), shown[rows]), find_template, numbers, is_shown)


def _row_keys(events: Events, shown: Bools) -> Ints:
    """Return a key for each event by which `shown` (n, at most 7) and all of its words are known."""
    pattern = shown.astype(np.int64) @ (1 << np.arange(shown.shape[1]))
    words = (events.name.astype(np.int64) << 9) | (events.kind.astype(np.int64) << 4) | events.layer
    return ((events.file.astype(np.int64) + 1) << 31) | (words << 7) | pattern


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
