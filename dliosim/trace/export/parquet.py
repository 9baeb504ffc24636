"""A trace as Parquet: a row for each event, in words, by pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import HELP, UsageError, install_hint
from dliosim.trace.events import KINDS, LAYERS, UNKNOWN, Events, Trace
from dliosim.trace.export.output import STANDARD, encode_text, open_new

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
