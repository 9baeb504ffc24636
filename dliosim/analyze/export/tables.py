"""A trace as CSV or Parquet, a row for each event, and as the text of Darshan's DXT parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Ints, find_starts, split_blocks, split_processes
from dliosim.analyze.export.output import STANDARD, encode_text, open_new, open_text
from dliosim.analyze.export.rows import BLOCK, escape_percent, format_events, format_rows, rank_of
from dliosim.errors import HELP, UsageError, install_hint
from dliosim.readable import printable
from dliosim.trace.events import KINDS, LAYERS, UNKNOWN, Events, Trace, kind_number, layer_number

#: The columns, those of numbers that may be unknown last; what is unknown is empty.
HEADER: Final = (
    "rank", "host", "operation", "layer", "call", "path", "thread", "begin_ns", "duration_ns",
    "offset", "asked_bytes", "moved_bytes", "epoch", "step",
)  # fmt: skip


def write_csv(trace: Trace, path: str) -> list[str]:
    """Write a trace; return no notes for its reader. Raises ExecutionError."""
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
        partial(_row_template, head),
    )


def _row_template(head: str, kind: str, layer: str, name: str, path: str, shown: Sequence[bool]) -> str:
    texts = [escape_percent(_quote(each)) for each in (kind, layer, name, path)]
    numbers = ["%d" if is_shown else "" for is_shown in shown]
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
    """Write a trace; return no notes for its reader. Raises ExecutionError, UsageError without pyarrow."""
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
        for rows in split_blocks(len(events), _GROUP):
            writer.write_table(_make_table(events.select(rows)))
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


_MODULES: Final = {"POSIX": ("posix",), "MPIIO": ("mpi-io", "mpi-io collective")}
_VERBS: Final = ("read", "write")
_WRITE: Final = kind_number("write")
_SECOND: Final = 1_000_000_000
_COLUMNS: Final = "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)\n"


def write_dxt(trace: Trace, path: str) -> list[str]:
    """Write the reads and writes of a trace; return sentences about those that are not in it. Raises ExecutionError."""
    events = trace.events
    written = 0
    with open_text(path) as out:
        out.write("".join(f"# {line}\n" for line in _describe(trace)))
        for module, layers in _MODULES.items():
            rows = _choose_rows(events, layers)
            written += len(rows)
            if len(rows):
                stars = "# ***************************************************\n"
                out.write(f"\n{stars}# DXT_{module} module data\n{stars}")
            for text in _format_module(events.select(rows), module):
                out.write(text)
    transfers = int(events.is_kind(*_VERBS).sum())
    if written == transfers:
        return []
    return [
        f"{transfers - written:_} of {transfers:_} reads and writes are left out: DXT has those by POSIX and MPI-IO "
        "whose file and offset are known"
    ]


def _describe(trace: Trace) -> Iterator[str]:
    yield "dliosim trace export, in the form of darshan-dxt-parser"
    yield f"exe: {printable(trace.command)}"
    yield f"nprocs: {len(trace.events.processes)}"
    yield f"run time: {trace.duration / 1e9:.4f}"


def _choose_rows(events: Events, layers: tuple[str, ...]) -> Ints:
    """Return the reads and writes of some layers, by file, rank, writes first, and begin."""
    is_in = events.is_kind(*_VERBS) & np.isin(events.layer, [layer_number(each) for each in layers])
    rows = np.flatnonzero(is_in & (events.file >= 0) & (events.offset >= 0))
    is_read = events.kind[rows] != _WRITE
    return rows[np.lexsort((events.begin[rows], is_read, events.process[rows], events.file[rows]))]


def _format_module(events: Events, module: str) -> Iterator[str]:
    """Yield the text of all blocks, in pieces: a block's head is in front of its first row."""
    is_write, is_first = events.kind == _WRITE, find_starts(events.file, events.process)
    first = np.flatnonzero(is_first)
    block = np.cumsum(is_first) - 1
    writes, all_ = np.bincount(block, is_write, len(first)).astype(np.int64), np.bincount(block, minlength=len(first))
    segment = np.arange(len(events)) - first[block] - np.where(is_write, 0, writes[block])
    length = np.where(events.moved == UNKNOWN, np.maximum(events.asked, 0), events.moved)
    times = (*np.divmod(events.begin, _SECOND), *np.divmod(events.end, _SECOND))
    verbs = events.process.astype(np.int64) * 2 + is_write
    keys = np.where(is_first, -1 - block, verbs)

    def template(key: int) -> str:
        if key < 0:
            row, number = int(first[-1 - key]), -1 - key
            head = _describe_block(events, row, int(writes[number]), int(all_[number] - writes[number]))
            return escape_percent(head) + template(int(verbs[row]))
        verb = "write" if key % 2 else "read"
        return f"{f'X_{module}':>8}{rank_of(events, key // 2):8}{verb:>7}%9d %15d %15d %5d.%09d %5d.%09d\n"

    for rows in split_blocks(len(events), BLOCK):
        values = np.column_stack([each[rows] for each in (segment, events.offset, length, *times)])
        yield format_rows(keys[rows], template, values, None)


def _describe_block(events: Events, first: int, writes: int, reads: int) -> str:
    process, path = int(events.process[first]), events.files[int(events.file[first])]
    identity = int.from_bytes(blake2b(encode_text(path), digest_size=8).digest(), "little")
    return (
        f"\n# DXT, file_id: {identity}, file_name: {printable(path)}\n"
        f"# DXT, rank: {rank_of(events, process)}, hostname: {printable(events.processes[process].host)}\n"
        f"# DXT, write_count: {writes}, read_count: {reads}\n"
        f"# DXT, mnt_pt: UNKNOWN, fs_type: UNKNOWN\n{_COLUMNS}"
    )
