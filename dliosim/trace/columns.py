"""Columns of one rank's events: collected in pieces, compressed in chunks that HDF5 stores unchanged.

A chunk is `CHUNK_ROWS` rows of one column, bytes of equal weight together (HDF5's shuffle filter), then deflated.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.events import COLUMNS

#: Rows of a chunk, but for traces with few rows on every rank.
CHUNK_ROWS: Final = 1 << 16

#: Types of columns: those of `Events`, but for a call, a number of `calls.Call`, and for threads of a rank.
_TYPES: Final = {**COLUMNS, "call": np.dtype(np.int8), "thread": np.dtype(np.int16)}

#: Columns of calls, and of spans, with their types; times are ns.
_CALL: Final = ("call", "thread", "begin", "duration", "file", "offset", "asked", "moved", "epoch", "step")
_SPAN: Final = ("kind", "name", "thread", "begin", "duration", "epoch", "step")
CALL_COLUMNS: Final = {name: _TYPES[name] for name in _CALL}
SPAN_COLUMNS: Final = {name: _TYPES[name] for name in _SPAN}

#: Speed of zlib counts more than a tenth of the bytes.
_LEVEL = 1

#: Bytes of columns that are not compressed yet, and of compressed chunks in memory, of one table.
_RAW, _KEPT = 24 << 20, 16 << 20


def deflate_chunk(column: NDArray[np.signedinteger], rows: int) -> bytes:
    """Return a column as a chunk of `rows` rows, padded with zeros: shuffled and deflated."""
    padded = np.zeros(rows, column.dtype)
    padded[: len(column)] = column
    size = column.dtype.itemsize
    return zlib.compress(padded.view(np.uint8).reshape(-1, size).T.tobytes(), _LEVEL)


@dataclass(slots=True)
class ColumnBuffer:
    """The rows of one table of one rank.

    `spill` is a file for chunks that memory has no room for. Rows beyond `most_bytes` of chunks are only counted, and
    so are all rows once a write to this file has failed.
    """

    #: columns, with their types
    types: Mapping[str, np.dtype[np.signedinteger]]
    #: largest number of bytes of all chunks
    most_bytes: int
    #: file for chunks that memory has no room for
    spill: SpillFile
    #: rows added
    added: int = 0
    #: rows of these that are kept
    kept: int = 0
    #: bytes of the chunks so far
    stored: int = 0
    _is_full: bool = False
    _pieces: dict[str, list[NDArray[np.signedinteger]]] = field(default_factory=dict)
    _pending: int = 0
    _chunks: list[bytes | tuple[int, int]] = field(default_factory=list)
    _in_memory: int = 0

    def add(self, columns: Mapping[str, NDArray[np.int64]]) -> None:
        """Add rows; all columns have one length."""
        count = len(columns["begin"])
        self.added += count
        if self._is_full or not count:
            return
        for name, kind in self.types.items():
            self._pieces.setdefault(name, []).append(columns[name].astype(kind))
        self.kept += count
        self._pending += count
        if self._pending * sum(kind.itemsize for kind in self.types.values()) > _RAW:
            self.compress()

    def compress(self) -> None:
        """Make chunks of as many rows as fill some."""
        whole = self._pending // CHUNK_ROWS
        if not whole:
            return
        chunks = []
        # Column by column: all joined at once would be in memory twice.
        for name, pieces in self._pieces.items():
            column = np.concatenate(pieces)
            blocks = [column[number * CHUNK_ROWS :][:CHUNK_ROWS] for number in range(whole)]
            chunks.append([deflate_chunk(block, CHUNK_ROWS) for block in blocks])
            self._pieces[name] = [column[whole * CHUNK_ROWS :].copy()]
        for group in zip(*chunks, strict=True):
            if not self._keep(group):
                return
            self._pending -= CHUNK_ROWS

    def seal(self) -> None:
        """Leave out the last rows if they are beyond `most_bytes`. No row is added after this."""
        self.compress()
        columns = self._join()
        rows = self._pending
        while rows:
            size = sum(len(deflate_chunk(column[:rows], rows)) for column in columns.values())
            if self.stored + size <= self.most_bytes:
                break
            # As many as have room if all take equal parts of the bytes; a chunk has some bytes of its own.
            rows = min(rows - 1, rows * max(0, self.most_bytes - self.stored) // size)
        self._pieces = {name: [column[:rows]] for name, column in columns.items()}
        self.kept -= self._pending - rows
        self._pending, self._is_full = rows, True

    def chunks(self, rows: int) -> Iterator[bytes]:
        """Yield all chunks, row by row of chunks and in each column by column; `rows` a chunk, if none was full.

        Raises OSError.
        """
        for chunk in self._chunks:
            yield chunk if isinstance(chunk, bytes) else self.spill.read(*chunk)
        if self._pending:
            for column in self._join().values():
                yield deflate_chunk(column, rows)

    def _join(self) -> dict[str, NDArray[np.signedinteger]]:
        return {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}

    def _keep(self, group: Sequence[bytes]) -> bool:
        """Keep the chunks of all columns of the same rows; return whether there was room, and so is for later ones."""
        size = sum(map(len, group))
        if self.stored + size > self.most_bytes:
            self._end_with(self.kept - self._pending)
            return False
        in_memory = self._in_memory + size <= _KEPT
        try:
            self._chunks += group if in_memory else [self.spill.write(chunk) for chunk in group]
        except OSError:  # the file has it, and all that was written to it is lost
            self._chunks.clear()
            self._end_with(0)
            return False
        self.stored += size
        self._in_memory += size if in_memory else 0
        return True

    def _end_with(self, rows: int) -> None:
        """Keep the first rows, which are in chunks, and no other."""
        self.kept, self._pending, self._is_full = rows, 0, True
        self._pieces.clear()


class SpillFile:
    """A file of one rank for chunks that memory has no room for; it is unlinked once open, so that no run leaves it."""

    def __init__(self, directory: str) -> None:
        #: folder of the file
        self.directory = directory
        #: first error of a write; the file takes nothing more then, and has given its room back
        self.failure: OSError | None = None
        self._file: BinaryIO | None = None
        self._end = 0

    def write(self, data: bytes) -> tuple[int, int]:
        """Append bytes; return their place. Raises OSError, and after an error the same again."""
        if self.failure is not None:
            raise self.failure
        begin, rest = self._end, memoryview(data)
        try:
            if self._file is None:
                self._file = TemporaryFile(dir=self.directory, buffering=0)  # noqa: SIM115  # as long as the run
            self._file.seek(begin)
            while rest:
                # A device that becomes full takes a part.
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.failure = error
            self.close()
            raise
        self._end += len(data)
        return begin, len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes that were written. Raises OSError."""
        if self._file is None:
            raise OSError(errno.EBADF, "the file is closed")
        self._file.seek(offset)
        data = self._file.read(length)
        if len(data) < length:
            raise OSError(errno.EIO, f"the file ends {length - len(data)} bytes early")
        return data

    def close(self) -> None:
        """Close the file, which frees its room; all that was written is lost."""
        if self._file is not None:
            self._file.close()
            self._file, self._end = None, 0
