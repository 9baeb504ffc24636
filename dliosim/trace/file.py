"""The file of a trace, trace.h5: columns of calls and of spans, a run of whole chunks for each rank.

docs/trace.md has its layout. Rank 0 writes chunks as ranks have compressed them; a reader gets one table of events.
"""

from __future__ import annotations

import os
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.boundedjson import parse_json
from dliosim.errors import HELP, TraceError
from dliosim.trace.calls import CALL_KINDS, CALL_LAYERS, NAMES
from dliosim.trace.columns import CALL_COLUMNS, CHUNK_ROWS, SPAN_COLUMNS
from dliosim.trace.events import COLUMNS, KINDS, UNKNOWN, Events, Process, Trace, layer_number

#: Name of the file in a folder of results.
FILE_NAME: Final = "trace.h5"

SCHEMA_VERSION: Final = 1

#: What each rank says of itself, int64. Clocks are perf_counter_ns: `begin` counts from `origin`; `ahead_first` and
#: `ahead_last` are how far its clock was ahead of that of rank 0 at `clock_first` and `clock_last`.
HEAD: Final = (
    "rank", "pid", "calls", "calls_made", "unseen", "spans", "spans_made",
    "origin", "clock_first", "ahead_first", "clock_last", "ahead_last",
)  # fmt: skip

#: Why calls that a run has counted may be in no trace.
UNSEEN: Final = "index files, writes inside a format's library, and third-party backends are not traced"

#: Limits of what is believed: ranks and rows of a file, bytes of a rank's names once inflated, and ns of a time.
_MOST_RANKS, _MOST_ROWS, _MOST_NAMES, _MOST_NS = 1 << 22, 1 << 31, 1 << 30, 1 << 60

#: Columns that are never below 0; the others may be `UNKNOWN`, and `begin` anything up to `_MOST_NS`.
_NOT_NEGATIVE: Final = ("thread", "duration")

_TABLES: Final[dict[str, Mapping[str, np.dtype[np.signedinteger]]]] = {"calls": CALL_COLUMNS, "spans": SPAN_COLUMNS}


def chunk_rows(most: int) -> int:
    """Return the rows of a chunk, for at most `most` rows on any rank."""
    return min(CHUNK_ROWS, max(256, 1 << max(0, most - 1).bit_length()))


def pack_names(names: Sequence[str]) -> bytes:
    """Return names, such as paths, deflated."""
    return zlib.compress("\0".join(names).encode("utf-8", "surrogateescape"), 1)


class _Storage(FileIO):
    """A file that HDF5 believes to take all that is written; if it did not, `failure` says why.

    HDF5 2.0 may end the process by SIGSEGV after a write that failed, or fail again at exit.
    """

    #: of the first write that failed
    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all bytes, unless an earlier write has failed."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and self.failure is None:
                # A device that becomes full takes a part.
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.failure = error
        return size

    def truncate(self, size: int | None = None) -> int:
        """Change the size, unless a write has failed."""
        try:
            if self.failure is None:
                super().truncate(size)
        except OSError as error:
            self.failure = error
        return size or 0


@dataclass(frozen=True, slots=True)
class TraceWriter:
    """Writes a trace, rank by rank. All methods raise OSError if the file cannot be written."""

    #: the open file
    file: Any
    #: what it is stored in
    storage: _Storage
    #: what all ranks say of themselves, (ranks, `HEAD`)
    heads: NDArray[np.int64]

    def write_chunks(self, table: str, rank: int, row: int, chunks: Sequence[bytes]) -> None:
        """Write the chunks of all columns of a table, from row `row` of a rank on."""
        first = int(_first_rows(self.heads[:, HEAD.index(table)], self.file[table].attrs["chunk_rows"])[rank])
        for name, chunk in zip(_TABLES[table], chunks, strict=True):
            self.file[f"{table}/{name}"].id.write_direct_chunk((first + row,), chunk)
        self._check()

    def write_names(self, rank: int, what: str, names: bytes) -> None:
        """Write the paths of files, the names of events, or the host of a rank."""
        self.file.create_dataset(f"names/{rank}/{what}", data=np.frombuffer(names, np.uint8))
        self._check()

    def close(self) -> None:
        """Close the file, durable (fsync) if all of it was written."""
        self.file.close()
        with self.storage:
            self._check()
            os.fsync(self.storage.fileno())

    def _check(self) -> None:
        if self.storage.failure is not None:
            raise self.storage.failure


def create_trace(path: Path, heads: NDArray[np.int64], attributes: Mapping[str, str]) -> TraceWriter:
    """Create the file of a trace, whose ranks say `heads` of themselves. Raises OSError."""
    import h5py  # takes 100 ms and 10 MB: only the rank that writes imports it

    storage = _Storage(path, "x+")
    file = h5py.File(storage, "w", libver="v108")
    file.attrs["schema_version"] = SCHEMA_VERSION
    for name, text in attributes.items():
        # HDF5 takes no text with bytes that are not UTF-8, which names of files may have.
        file.attrs[name] = text.encode("utf-8", "backslashreplace").decode()
    ranks = file.create_dataset("ranks", data=heads)
    ranks.attrs["columns"] = list(HEAD)
    how: dict[str, Any] = {"maxshape": (None,), "compression": "gzip", "compression_opts": 1, "shuffle": True}
    for table, columns in _TABLES.items():
        counts = heads[:, HEAD.index(table)]
        rows = chunk_rows(int(counts.max(initial=0)))
        group = file.create_group(table)
        group.attrs["chunk_rows"] = rows
        total = int((-(-counts // rows) * rows).sum())
        for name, kind in columns.items():
            group.create_dataset(name, (total,), kind, chunks=(rows,), **how)
    return TraceWriter(file, storage, heads)


def _first_rows(counts: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return the first row of each rank, in chunks of `rows` rows; (ranks,)."""
    taken = -(-counts // rows) * rows
    return np.cumsum(taken) - taken


def read_trace(path: Path) -> Trace:
    """Read the trace of a run. Raises TraceError if the file is none, or is damaged."""
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            return _read(path, file)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, zlib.error, MemoryError) as error:
        reason = "it is cut short; record it again" if "truncated file" in str(error) else error
        raise TraceError(f"{path} cannot be read as a trace of dliosim: {reason}") from error


def _read(path: Path, file: Any) -> Trace:
    if "schema_version" not in file.attrs:
        hint = f"dliosim new mine --from {shlex.quote(str(path))} writes a pattern that reads it as data"
        raise ValueError(f"it is an HDF5 file of another program{HELP}{hint}")
    if int(file.attrs["schema_version"]) != SCHEMA_VERSION:
        raise ValueError(f"its schema version is {file.attrs['schema_version']}, this dliosim reads {SCHEMA_VERSION}")
    heads = _read_heads(file)
    counts = heads[:, HEAD.index("calls")] + heads[:, HEAD.index("spans")]
    columns = {name: np.full(int(counts.sum()), UNKNOWN, kind) for name, kind in COLUMNS.items()}
    files: dict[str, int] = {}
    names: dict[str, int] = {name: number for number, name in enumerate(NAMES)}
    processes = []
    done = 0
    start = int((heads[:, HEAD.index("origin")] - heads[:, HEAD.index("ahead_first")]).min(initial=1 << 62))
    for number, head in enumerate(heads):
        of = dict(zip(HEAD, head.tolist(), strict=True))
        own_files, own_names, host = (_read_names(file, number, what) for what in ("files", "names", "host"))
        rows = slice(done, done + of["calls"] + of["spans"])
        part = {name: column[rows] for name, column in columns.items()}
        _fill(file, heads, number, part)
        _renumber(part["file"], own_files, files)
        _renumber(part["name"], own_names, names)
        part["begin"][:] = _to_job_clock(part["begin"], of, start)
        part["process"][:] = number
        order = np.argsort(part["begin"], kind="stable")
        if (order[1:] < order[:-1]).any():
            for column in part.values():
                column[:] = column[order]
        processes.append(Process(of["rank"], of["pid"], host[0] if host else ""))
        done = rows.stop
    events = Events(**columns, names=tuple(names), files=tuple(files), processes=tuple(processes))
    totals = dict(zip(HEAD, heads.sum(axis=0).tolist(), strict=True))
    lost = tuple(
        f"{totals[table]:_} of {made:_} {table} were recorded: the trace had reached its limit of bytes"
        for table in _TABLES
        if totals[table] < (made := totals[f"{table}_made"])
    )
    end = int(events.end.max(initial=0))
    notes = (f"{totals['unseen']:_} calls of the run are not in the trace ({UNSEEN})",) if totals["unseen"] else ()
    command, settings, modelled = (str(file.attrs.get(name, "")) for name in ("command", "settings", "modelled"))
    about = (f"no file was read or written: calls waited as storage {modelled} says",) if modelled else ()
    return Trace("dliosim", str(path), events, end, {}, lost, notes + about, command, _read_settings(settings))


def _read_settings(text: str) -> dict[str, dict[str, str]]:
    """Return the settings of each loop. Raises ValueError if they have another form."""
    found = parse_json(text.encode() or b"{}")
    if not isinstance(found, dict) or not all(isinstance(own, dict) for own in found.values()):
        raise ValueError("its settings have another form")
    return {str(loop): {str(name): str(value) for name, value in own.items()} for loop, own in found.items()}


def _read_heads(file: Any) -> NDArray[np.int64]:
    """Return what the ranks say of themselves, checked, and that the columns have all rows. Raises ValueError."""
    table_of_ranks = _find_dataset(file, "ranks")
    ranks, *width = table_of_ranks.shape or (0,)
    if width != [len(HEAD)] or table_of_ranks.dtype != np.int64 or ranks > _MOST_RANKS:
        raise ValueError("its table of ranks has another form")
    heads: NDArray[np.int64] = table_of_ranks[()]
    if (heads[:, HEAD.index("rank")] != np.arange(ranks)).any():
        raise ValueError("its ranks are not in order")
    if (np.abs(heads[:, HEAD.index("origin") :].astype(np.float64)) > _MOST_NS).any():
        raise ValueError("its clocks are out of range")
    for table, columns in _TABLES.items():
        counts, made = (heads[:, HEAD.index(name)] for name in (table, f"{table}_made"))
        rows = int(file[table].attrs["chunk_rows"])
        is_possible = ((counts >= 0) & (counts <= made) & (made <= 1 << 50)).all() and 1 <= rows <= CHUNK_ROWS
        if not is_possible or float(counts.sum(dtype=np.float64)) > _MOST_ROWS:
            raise ValueError(f"its numbers of {table} are out of range")
        needed = int((-(-counts // rows) * rows).sum())
        for name, kind in columns.items():
            column = _find_dataset(file[table], name)
            if column.shape != (needed,) or column.dtype != kind or column.chunks != (rows,):
                raise ValueError(f"its column {table}/{name} has another form")
            # Chunks that are not there would be rows of zeros, and any number of them takes no room in the file.
            if column.id.get_num_chunks() != needed // rows:
                raise ValueError(f"its column {table}/{name} has not all of its rows")
    return heads


def _find_dataset(group: Any, name: str) -> Any:
    """Return a data set whose values are in this file. Raises ValueError."""
    import h5py

    found = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
        raise ValueError(f"{name} is no data set of this file")
    return found


def _fill(file: Any, heads: NDArray[np.int64], number: int, part: dict[str, NDArray[Any]]) -> None:
    """Fill the columns of one rank: its calls first, then its spans."""
    calls = int(heads[number, HEAD.index("calls")])
    part["moved"][calls:] = part["asked"][calls:] = UNKNOWN
    part["layer"][calls:] = layer_number("application")
    for table, rows in ("calls", slice(0, calls)), ("spans", slice(calls, None)):
        counts = heads[:, HEAD.index(table)]
        first = int(_first_rows(counts, int(file[table].attrs["chunk_rows"]))[number])
        for name in _TABLES[table]:
            target = part["name" if name == "call" else name][rows]
            if len(target):
                target[:] = file[table][name][first : first + len(target)]
                least = -_MOST_NS if name == "begin" else 0 if name in _NOT_NEGATIVE else UNKNOWN
                if int(target.min()) < least or int(target.max()) > _MOST_NS:
                    raise ValueError(f"its column {table}/{name} has numbers that are out of range")
    made = part["name"][:calls]
    if len(made) and (made.min() < 0 or made.max() >= len(NAMES)):
        raise ValueError("it has calls that this dliosim does not know")
    part["kind"][:calls], part["layer"][:calls] = CALL_KINDS[made], CALL_LAYERS[made]
    kind = part["kind"][calls:]
    if len(kind) and (kind.min() < 0 or kind.max() >= len(KINDS)):
        raise ValueError("it has kinds of events that this dliosim does not know")


def _read_names(file: Any, rank: int, what: str) -> list[str]:
    inflater = zlib.decompressobj()
    names = _find_dataset(file[f"names/{rank}"], what)
    if names.nbytes > _MOST_NAMES:
        raise ValueError(f"its {what} are too many")
    data = inflater.decompress(names[()].tobytes(), _MOST_NAMES)
    if not inflater.eof:
        raise ValueError(f"its {what} are damaged")
    return data.decode("utf-8", "surrogateescape").split("\0") if data else []


def _renumber(column: NDArray[Any], own: list[str], table: dict[str, int]) -> None:
    """Replace indices into `own` by those into `table`, which gets the names that it lacks; in place."""
    if len(column) and (int(column.max()) >= len(own) or int(column.min()) < UNKNOWN):
        raise ValueError("it has a name or a file that is not listed")
    target = np.array([*(table.setdefault(name, len(table)) for name in own), UNKNOWN], np.int64)
    if (target[:-1] != np.arange(len(own))).any():
        column[:] = target[column]


def _to_job_clock(begin: NDArray[np.int64], of: dict[str, int], start: int) -> NDArray[np.int64]:
    """Return times of a rank since `start` on the clock of rank 0, by how far its own was ahead, first and last."""
    span = max(1, of["clock_last"] - of["clock_first"])
    drift = (of["ahead_last"] - of["ahead_first"]) / span
    since = begin + (of["origin"] - of["clock_first"])
    drifted = np.rint(since * drift)
    if len(drifted) and float(np.abs(drifted).max()) > _MOST_NS:
        raise ValueError("its clocks are out of range")
    times: NDArray[np.int64] = begin + (of["origin"] - of["ahead_first"] - start) - drifted.astype(np.int64)
    return times


def split_message(data: memoryview) -> list[bytes]:
    """Return the parts of a message of `join_message`."""
    count = int(np.frombuffer(data, np.int64, 1)[0])
    sizes = np.frombuffer(data, np.int64, count, 8).tolist()
    at, parts = 8 + 8 * count, []
    for size in sizes:
        parts.append(bytes(data[at : at + size]))
        at += size
    return parts


def join_message(parts: Sequence[bytes]) -> memoryview:
    """Return parts as one message, which begins with their number and sizes."""
    head = np.array([len(parts), *map(len, parts)], np.int64).tobytes()
    return memoryview(bytearray(b"".join([head, *parts])))


def group_columns(chunks: Iterator[bytes], columns: int) -> Iterator[list[bytes]]:
    """Yield the chunks of all columns of the same rows together."""
    while group := list(islice(chunks, columns)):
        yield group
