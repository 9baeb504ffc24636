"""Columns of events of one rank: collected in pieces, compressed in chunks that HDF5 takes as they are.

A chunk is `CHUNK_ROWS` rows of one column, bytes of equal weight together (HDF5's shuffle filter), then deflated.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

#: Rows of a chunk, but for traces with few rows on every rank.
CHUNK_ROWS: Final = 1 << 16

#: Columns of calls, and of spans, with their types. `call` is a number of `calls.Call`; times are ns.
CALL_COLUMNS: Final[dict[str, np.dtype[np.signedinteger]]] = {
    "call": np.dtype(np.int8),
    "thread": np.dtype(np.int16),
    "begin": np.dtype(np.int64),
    "duration": np.dtype(np.int64),
    "file": np.dtype(np.int32),
    "offset": np.dtype(np.int64),
    "asked": np.dtype(np.int64),
    "moved": np.dtype(np.int64),
    "epoch": np.dtype(np.int32),
    "step": np.dtype(np.int32),
}
SPAN_COLUMNS: Final[dict[str, np.dtype[np.signedinteger]]] = {
    "kind": np.dtype(np.int8),
    "name": np.dtype(np.int16),
    "thread": np.dtype(np.int16),
    "begin": np.dtype(np.int64),
    "duration": np.dtype(np.int64),
    "epoch": np.dtype(np.int32),
    "step": np.dtype(np.int32),
}

#: Speed of zlib counts more than a tenth of the bytes.
_LEVEL = 1

#: Bytes of columns that are not compressed yet, and of compressed chunks in memory, of one table.
_RAW, _KEPT = 32 << 20, 24 << 20


def deflate_chunk(column: NDArray[np.signedinteger], rows: int) -> bytes:
    """Return a column as a chunk of `rows` rows, padded with zeros: shuffled and deflated."""
    padded = np.zeros(rows, column.dtype)
    padded[: len(column)] = column
    size = column.dtype.itemsize
    return zlib.compress(padded.view(np.uint8).reshape(-1, size).T.tobytes(), _LEVEL)


@dataclass(slots=True)
class ColumnBuffer:
    """The rows of one table of one rank.

    `spill` is a file for chunks that memory has no room for. Rows beyond `most_bytes` of chunks are counted alone.
    """

    #: columns, with their types
    types: Mapping[str, np.dtype[np.signedinteger]]
    #: largest number of bytes of all chunks
    most_bytes: int
    #: opens the file for chunks that memory has no room for
    open_spill: SpillFile
    #: rows added
    added: int = 0
    #: rows of these that are not beyond `most_bytes`
    kept: int = 0
    #: bytes of the chunks so far
    stored: int = 0
    _pieces: dict[str, list[NDArray[np.signedinteger]]] = field(default_factory=dict)
    _pending: int = 0
    _chunks: list[bytes | tuple[int, int]] = field(default_factory=list)
    _in_memory: int = 0

    def add(self, columns: Mapping[str, NDArray[np.int64]]) -> None:
        """Add rows; all columns have one length."""
        count = len(columns["begin"])
        self.added += count
        if self.stored >= self.most_bytes or not count:
            return
        for name, kind in self.types.items():
            self._pieces.setdefault(name, []).append(columns[name].astype(kind))
        self.kept += count
        self._pending += count
        if self._pending * sum(kind.itemsize for kind in self.types.values()) > _RAW:
            self.compress()

    def compress(self) -> None:
        """Make chunks of as many rows as fill some."""
        if self._pending < CHUNK_ROWS:
            return
        columns = self._join()
        whole = self._pending // CHUNK_ROWS
        for number in range(whole):
            rows = slice(number * CHUNK_ROWS, (number + 1) * CHUNK_ROWS)
            for column in columns.values():
                self._keep(deflate_chunk(column[rows], CHUNK_ROWS))
        self._pieces = {name: [column[whole * CHUNK_ROWS :].copy()] for name, column in columns.items()}
        self._pending -= whole * CHUNK_ROWS

    def chunks(self, rows: int) -> Iterator[bytes]:
        """Yield all chunks, row by row of chunks and in each column by column; `rows` a chunk, where none was full."""
        for chunk in self._chunks:
            yield chunk if isinstance(chunk, bytes) else self.open_spill.read(*chunk)
        if self._pending:
            for column in self._join().values():
                yield deflate_chunk(column, rows)

    def _join(self) -> dict[str, NDArray[np.signedinteger]]:
        return {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}

    def _keep(self, chunk: bytes) -> None:
        self.stored += len(chunk)
        if self._in_memory + len(chunk) > _KEPT:
            self._chunks.append(self.open_spill.write(chunk))
        else:
            self._in_memory += len(chunk)
            self._chunks.append(chunk)


class SpillFile:
    """A file of one rank for what memory has no room for; it has no name once it is open, so that no run leaves it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: BinaryIO | None = None
        self._end = 0

    def write(self, data: bytes) -> tuple[int, int]:
        """Append bytes; return where they are. Raises OSError."""
        if self._file is None:
            self._file = TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115  # as long as the run
        self._file.seek(self._end)
        self._file.write(data)
        self._end += len(data)
        return self._end - len(data), len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes that were written. Raises OSError."""
        assert self._file is not None
        self._file.seek(offset)
        return self._file.read(length)
