"""A trace as CSV or Parquet: a row for each event, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import split_processes
from dliosim.analyze.export.output import STANDARD, encode_text, open_new, open_text
from dliosim.analyze.export.rows import RowWords, escape_percent, format_events
from dliosim.errors import HELP, UsageError, install_hint
from dliosim.trace.events import KINDS, LAYERS, UNKNOWN, Events, Trace

#: The columns, those of numbers that may be unknown last; what is unknown is empty.
HEADER: Final = (
    "rank", "host", "operation", "layer", "call", "path", "thread", "begin_ns", "duration_ns",
    "offset", "asked_bytes", "moved_bytes", "epoch", "step",
)  # fmt: skip


def write_csv(trace: Trace, path: str) -> list[str]:
    """Write a trace; return what its reader should know: nothing. Raises ExecutionError."""
    events = trace.events
    with open_text(path) as out:
        out.write(",".join(HEADER) + "\n")
        for number, rows in enumerate(split_processes(events)):
            for text in _format_process(events.select(rows), number):
                out.write(text)
    return []


def _format_process(events: Events, number: int) -> Iterator[str]:
    """Yield the rows of a process, in pieces."""
    process = events.processes[number]
    head = escape_percent(f"{'' if process.rank == UNKNOWN else process.rank},{_quote(process.host)}")
    values = np.column_stack([events.offset, events.asked, events.moved, events.epoch, events.step])
    yield from format_events(
        events,
        lambda rows: (events.thread[rows], events.begin[rows], events.duration[rows]),
        values,
        values != UNKNOWN,
        lambda words: _row_template(head, words),
    )


def _row_template(head: str, words: RowWords) -> str:
    texts = [escape_percent(_quote(each)) for each in (words.kind, words.layer, words.name, words.path)]
    numbers = ["%d" if is_shown else "" for is_shown in words.shown]
    return ",".join([head, *texts, "%d,%d,%d", *numbers]) + "\n"


def _quote(text: str) -> str:
    if not set(text) & set(',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


#: Rows of a row group.
_GROUP: Final = 1 << 20
#: Columns that go up in each rank: differences are small.
_DELTA: Final = ("begin_ns", "duration_ns", "offset", "asked_bytes", "moved_bytes", "step")


def write_parquet(trace: Trace, path: str) -> list[str]:
    """Write a trace; return what its reader should know: nothing. Raises ExecutionError, UsageError without pyarrow."""
    if path == STANDARD:
        raise UsageError("Parquet needs a file: it cannot go to standard output\n  = help: add -o trace.parquet")
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            f"--format parquet needs pyarrow, which cannot be imported ({error}){HELP}{install_hint('parquet')}"
        ) from error
    events = trace.events
    first = _make_table(events.select(slice(0, 0)))
    words = [field.name for field in first.schema if field.name not in _DELTA]
    with (
        open_new(Path(path)) as file,
        parquet.ParquetWriter(
            file,
            first.schema,
            compression="zstd",
            use_dictionary=words,
            column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        ) as writer,
    ):
        for begin in range(0, len(events), _GROUP):
            writer.write_table(_make_table(events.select(slice(begin, begin + _GROUP))))
    return []


def _make_table(events: Events) -> Any:
    import pyarrow as pa

    hosts = [process.host for process in events.processes]
    ranks = np.array([process.rank for process in events.processes], np.int32)
    columns = {
        "rank": _numbers(ranks[events.process] if len(ranks) else events.process),
        "host": _words(events.process, hosts),
        "operation": _words(events.kind, KINDS),
        "layer": _words(events.layer, LAYERS),
        "call": _words(events.name, events.names),
        "path": _words(events.file, events.files),
        "thread": pa.array(events.thread),
        "begin_ns": pa.array(events.begin),
        "duration_ns": pa.array(events.duration),
        "offset": _numbers(events.offset),
        "asked_bytes": _numbers(events.asked),
        "moved_bytes": _numbers(events.moved),
        "epoch": _numbers(events.epoch),
        "step": _numbers(events.step),
    }
    return pa.table(columns)


def _numbers(column: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(column, mask=column == UNKNOWN)


def _words(column: NDArray[Any], words: Sequence[str]) -> Any:
    """Return a column of words; those of names that are no UTF-8 have U+FFFD for what is none."""
    import pyarrow as pa

    plain = [encode_text(each).decode(errors="replace") for each in words]
    numbers = pa.array(column.astype(np.int32), mask=column == UNKNOWN)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(plain, pa.string()))
