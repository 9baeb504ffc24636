"""A trace as CSV: a row for each event, in words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np

from dliosim.trace.events import UNKNOWN, Events, Trace
from dliosim.trace.export.output import open_text
from dliosim.trace.export.rows import (
    TEMPLATES,
    Ints,
    RowWords,
    escape_percent,
    format_rows,
    row_keys,
    split_blocks,
    split_key,
    split_processes,
)

#: The columns, those of numbers that may be unknown last; what is unknown is empty.
HEADER: Final = (
    "rank", "host", "operation", "layer", "call", "path", "thread", "begin_ns", "duration_ns",
    "offset", "asked_bytes", "moved_bytes", "epoch", "step",
)  # fmt: skip
_MAY_BE_UNKNOWN: Final = 5


def write_csv(trace: Trace, path: str) -> list[str]:
    """Write a trace; return what its reader should know: nothing. Raises ExecutionError."""
    events = trace.events
    with open_text(path) as out:
        out.write(",".join(HEADER) + "\n")
        for number, rows in split_processes(events):
            for text in _format_process(events.select(rows), number):
                out.write(text)
    return []


def _format_process(events: Events, number: int) -> Iterator[str]:
    """Yield the rows of a process, in pieces."""
    process = events.processes[number]
    head = escape_percent(f"{'' if process.rank == UNKNOWN else process.rank},{_quote(process.host)}")
    numbers = (events.offset, events.asked, events.moved, events.epoch, events.step)
    columns = (events.thread, events.begin, events.duration, *numbers)

    @lru_cache(TEMPLATES)
    def template(key: int) -> str:
        return _row_template(head, split_key(key, events, _MAY_BE_UNKNOWN))

    for block in split_blocks(slice(0, len(events))):
        values: Ints = np.column_stack([column[block] for column in columns])
        shown = values != UNKNOWN
        shown[:, :-_MAY_BE_UNKNOWN] = True
        yield format_rows(row_keys(events.select(block), shown[:, -_MAY_BE_UNKNOWN:]), template, values, shown)


def _row_template(head: str, words: RowWords) -> str:
    texts = [escape_percent(_quote(each)) for each in (words.kind, words.layer, words.name, words.path)]
    numbers = ["%d" if is_shown else "" for is_shown in words.shown]
    return ",".join([head, *texts, "%d,%d,%d", *numbers]) + "\n"


def _quote(text: str) -> str:
    if not set(text) & set(',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'
