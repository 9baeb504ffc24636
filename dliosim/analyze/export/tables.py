"""A trace as CSV or Parquet, a row for each event, and as the text of Darshan's DXT parser; the file of an export.

The file is written under another name, and renamed once it is whole.
"""

from __future__ import annotations

import csv
import gzip
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Ints, find_starts, split_blocks
from dliosim.errors import HELP, ExecutionError, UsageError, install_hint
from dliosim.readable import printable
from dliosim.trace.cut import TracePart
from dliosim.trace.events import KINDS, LAYERS, UNKNOWN, Events, Trace, kind_number

#: Bytes of text in a member of gzip, at least: a reader may begin at each.
_MEMBER: Final = 1 << 20
#: Speed counts more than a tenth of the bytes.
_LEVEL: Final = 1

#: The name that stands for standard output.
STANDARD: Final = "-"


class TextOutput:
    """Text that is written to a file, or as members of gzip."""

    def __init__(self, file: BinaryIO, is_gzip: bool) -> None:
        self._file, self._is_gzip = file, is_gzip
        self._pending = bytearray()
        #: bytes of text so far
        self.size = 0

    def write(self, text: str) -> None:
        """Write a text."""
        data = encode_text(text)
        self.size += len(data)
        if not self._is_gzip:
            self._file.write(data)
            return
        self._pending += data
        if len(self._pending) >= _MEMBER:
            self.flush()

    def flush(self) -> None:
        """Write what is kept for the next member of gzip."""
        if self._pending:
            self._file.write(gzip.compress(self._pending, _LEVEL, mtime=0))
            self._pending.clear()


def encode_text(text: str) -> bytes:
    """Return a text in UTF-8; names of files that are none as their bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Half of a pair, which only a trace of another program has.
        return text.encode("utf-8", "replace")


@contextmanager
def open_text(path: str) -> Iterator[TextOutput]:
    """Open a file for text, as members of gzip where its name ends in .gz; `-` is standard output.

    The file is there whole or not at all. Raises ExecutionError if it is there already, or cannot be written.
    """
    if path == STANDARD:
        sys.stdout.flush()
        yield TextOutput(sys.stdout.buffer, is_gzip=False)
        sys.stdout.buffer.flush()
        return
    with open_new(Path(path)) as file:
        output = TextOutput(file, path.endswith(".gz"))
        yield output
        output.flush()


@contextmanager
def open_new(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is there whole or not at all. Raises ExecutionError as `open_text`."""
    check_new(path)
    aside = path.with_name(f"{path.name}.partial")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except FileExistsError as error:
        raise ExecutionError(
            f"cannot write {path}: {aside} is there already, of an export that is under way or was killed"
            f"\n  = help: rm {aside}"
        ) from error
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if type(error) is ExecutionError or not isinstance(error, OSError):
            raise
        raise ExecutionError(f"cannot write {path}: {error.strerror or error}") from error


def check_new(path: Path) -> None:
    """Check that a file is not there. Raises ExecutionError."""
    if path.exists() or path.is_symlink():
        raise ExecutionError(f"cannot write {path}: it is there already\n  = help: name another file with -o")


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
    return (column >= limits[0]) & (column <= limits[1])


#: Rows that are formatted at a time.
_BLOCK: Final = 1 << 13
#: Rows of a row group of Parquet.
_GROUP: Final = 1 << 20
#: Columns that go up in each rank: differences are small.
_DELTA: Final = ("begin_ns", "duration_ns", "offset", "asked_bytes", "moved_bytes", "step")

#: A column: numbers (n,), or the words of a list by number (n,); `UNKNOWN` is nothing.
Column: TypeAlias = "NDArray[Any] | tuple[NDArray[Any], Sequence[str]]"


def _list_columns(events: Events) -> dict[str, Column]:
    """Return the columns of a table of events, by name."""
    ranks = np.array([process.rank for process in events.processes] or [UNKNOWN], np.int32)
    return {
        "rank": ranks[events.process],
        "host": (events.process, [process.host for process in events.processes]),
        "operation": (events.kind, KINDS),
        "layer": (events.layer, LAYERS),
        "call": (events.name, events.names),
        "path": (events.file, events.files),
        "thread": events.thread,
        "begin_ns": events.begin,
        "duration_ns": events.duration,
        "offset": events.offset,
        "asked_bytes": events.asked,
        "moved_bytes": events.moved,
        "epoch": events.epoch,
        "step": events.step,
    }


def write_csv(trace: Trace, path: str) -> list[str]:
    """Write a trace, what is unknown as nothing; return no notes for its reader. Raises ExecutionError."""
    events = trace.events
    with open_text(path) as out:
        writer = csv.writer(_Lines(out))
        writer.writerow(_list_columns(events))
        for rows in split_blocks(len(events), _BLOCK):
            columns = _list_columns(events.select(rows)).values()
            writer.writerows(zip(*map(_list_texts, columns), strict=True))
    return []


@dataclass(frozen=True, slots=True)
class _Lines:
    """Ends rows by a line feed alone; with CR LF the csv module also quotes words that have a carriage return."""

    out: TextOutput

    def write(self, row: str) -> None:
        self.out.write(row.removesuffix("\r\n") + "\n")


def _list_texts(column: Column) -> list[object]:
    numbers, words = column if isinstance(column, tuple) else (column, None)
    if words is not None:
        return [words[number] if number != UNKNOWN else "" for number in numbers.tolist()]
    return [number if number != UNKNOWN else "" for number in numbers.tolist()]


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

    columns = {}
    for name, column in _list_columns(events).items():
        numbers, words = column if isinstance(column, tuple) else (column, None)
        columns[name] = pa.array(numbers, mask=numbers == UNKNOWN)
        if words is not None:
            # Names that are no UTF-8 have U+FFFD for the bytes that are not.
            plain = [encode_text(word).decode(errors="replace") for word in words]
            columns[name] = pa.DictionaryArray.from_arrays(columns[name].cast("int32"), pa.array(plain, pa.string()))
    return pa.table(columns)


_MODULES: Final = {"POSIX": ("posix",), "MPIIO": ("mpi-io", "mpi-io collective")}
_VERBS: Final = ("read", "write")
_WRITE: Final = kind_number("write")
_SECOND: Final = 1_000_000_000
_VALUES: Final = "{:9} {:15} {:15} {} {}\n"
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
    is_in = events.is_kind(*_VERBS) & events.is_layer(*layers)
    rows = np.flatnonzero(is_in & (events.file >= 0) & (events.offset >= 0))
    is_read = events.kind[rows] != _WRITE
    return rows[np.lexsort((events.begin[rows], is_read, events.process[rows], events.file[rows]))]


def _format_module(events: Events, module: str) -> Iterator[str]:
    """Yield the head of each block, and the line of each event."""
    is_write, is_first = events.kind == _WRITE, find_starts(events.file, events.process)
    block, all_ = np.cumsum(is_first) - 1, np.diff([*np.flatnonzero(is_first), len(events)])
    writes = np.bincount(block, is_write, len(all_)).astype(np.int64)
    segment = np.arange(len(events)) - np.flatnonzero(is_first)[block] - np.where(is_write, 0, writes[block])
    length = np.where(events.moved == UNKNOWN, np.maximum(events.asked, 0), events.moved)
    columns = is_first, is_write, events.process, segment, events.offset, length, events.begin, events.end
    for rows in split_blocks(len(events), _BLOCK):
        lines = zip(*(each[rows].tolist() for each in columns), strict=True)
        for row, (starts, is_written, process, *numbers, begin, end) in enumerate(lines, rows.start):
            if starts:
                yield _describe_block(events, row, writes[block[row]], all_[block[row]] - writes[block[row]])
            verb = "write" if is_written else "read"
            times = [f"{time // _SECOND:5}.{time % _SECOND:09}" for time in (begin, end)]
            yield f"X_{module}".rjust(8) + f"{rank_of(events, process):8}{verb:>7}" + _VALUES.format(*numbers, *times)


def _describe_block(events: Events, first: int, writes: int, reads: int) -> str:
    process, path = int(events.process[first]), events.files[int(events.file[first])]
    identity = int.from_bytes(blake2b(encode_text(path), digest_size=8).digest(), "little")
    return (
        f"\n# DXT, file_id: {identity}, file_name: {printable(path)}\n"
        f"# DXT, rank: {rank_of(events, process)}, hostname: {printable(events.processes[process].host)}\n"
        f"# DXT, write_count: {writes}, read_count: {reads}\n"
        f"# DXT, mnt_pt: UNKNOWN, fs_type: UNKNOWN\n{_COLUMNS}"
    )
