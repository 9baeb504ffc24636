"""Reads for an index: open a file, look at parts of it, read headers that follow each other."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Final

from dliosim.errors import ExecutionError
from dliosim.mincore import find_resident_pages

#: The smallest read where the next header is near, bytes: storage reads a page anyway
LEAST_BLOCK: Final = 4096

#: The largest read, bytes, where the caller asks for no more
BLOCK: Final = 256 * 1024

_NEAR: Final = 32 * 1024

#: The least that a look reads, bytes: the headers before and behind what an ordinary file holds
_LEAST_LOOK: Final = 512

#: Only what is in memory is read; 0 if the system has no such flag: then all of it counts as read from storage.
_IN_MEMORY: Final = getattr(os, "RWF_NOWAIT", 0)


def data_error(text: str) -> ExecutionError:
    """Return the error [R401] of a file whose data cannot be used as they are."""
    return ExecutionError(text, "R401")


@contextmanager
def report_damage(text: str) -> Iterator[None]:
    """Raise a library's errors about data as `data_error`, after `text`; errors of failed calls stay as they are."""
    try:
        yield
    except ExecutionError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise data_error(f"{text}: {type(error).__name__}: {error}") from error


@contextmanager
def file_to_read(path: Path) -> Iterator[FileIO]:
    """Open a file for reading, without a buffer, for the length of a block. Follows links; does not wait for a pipe.

    An error at close is ignored: what was read is whole. Raises ExecutionError [R401] if there is no regular file,
    OSError as open.
    """
    no_file = f"open refused on {path}: no regular file stands where a file should be; move it away"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # the error of a socket
            raise data_error(no_file) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise data_error(no_file)
        os.set_blocking(descriptor, True)
        yield FileIO(descriptor, closefd=False)
    finally:
        with suppress(OSError):
            os.close(descriptor)


@contextmanager
def file_to_look_at(path: Path) -> Iterator[FileLook]:
    """Open a file as `file_to_read`, to read small parts of it and leave the page cache as it is found.

    Nothing is read ahead. Pages that were not in the page cache before are dropped after the block.
    """
    with file_to_read(path) as stream:
        with suppress(OSError):  # some file systems take no advice
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        look = FileLook(stream.fileno(), os.fstat(stream.fileno()).st_size)
        try:
            yield look
        finally:
            look.drop_pages()


@dataclass(slots=True)
class FileLook:
    """An open file whose small parts are read."""

    descriptor: int  #: of the open file
    size: int  #: bytes of the file
    _data: bytes = b""  #: the last part
    _at: int = 0  #: offset of the last part
    _brought: list[tuple[int, int]] = field(default_factory=list)  #: offset and bytes of what was not in memory

    def read(self, count: int, offset: int) -> bytes:
        """Return `count` bytes at `offset`; fewer at the end of the file. Raises OSError."""
        begin = offset - self._at
        if begin < 0 or begin + count > len(self._data):
            self._data, self._at, begin = self._read(max(count, _LEAST_LOOK), offset), offset, 0
        return self._data[begin : begin + count]

    def _read(self, count: int, offset: int) -> bytes:
        # First: a read of only what is in memory begins to read what is not, and may find that there at once.
        self._brought += self._find_absent(offset, min(count, self.size - offset))
        known = bytearray(count)
        length = 0
        with suppress(OSError):  # not in memory; or the file system cannot say
            length = os.preadv(self.descriptor, [known], offset, _IN_MEMORY) if _IN_MEMORY else 0
        rest = read_at(self.descriptor, count - length, offset + length) if length < count else b""
        if rest:
            self._brought.append((offset + length, len(rest)))
        return bytes(known[:length]) + rest

    def _find_absent(self, offset: int, count: int) -> list[tuple[int, int]]:
        """Return offset and bytes of each page that is not in memory; nothing if the kernel does not say."""
        first = offset // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(OSError, ValueError):
            length = offset + count - first
            absent = {*range(-(-length // mmap.PAGESIZE))} - {*find_resident_pages(self.descriptor, first, length)}
            return [(first + page * mmap.PAGESIZE, mmap.PAGESIZE) for page in sorted(absent)]
        return []

    def drop_pages(self) -> None:
        """Drop the pages that were read and were not in the page cache before."""
        page = mmap.PAGESIZE  # the kernel drops whole pages
        for offset, length in self._brought:
            first, last = offset // page * page, -(-(offset + length) // page) * page
            with suppress(OSError):
                os.posix_fadvise(self.descriptor, first, last - first, os.POSIX_FADV_DONTNEED)


def read_at(descriptor: int, count: int, offset: int, least: int | None = None) -> bytes:
    """Read `count` bytes at `offset`, or at least `least` of them; fewer at the end of the file. Raises OSError.

    A call may return less than the file has. So only a call that returns nothing marks the end of the file.
    """
    enough = count if least is None else least
    parts = [os.pread(descriptor, count, offset)]
    got = len(parts[0])
    while parts[-1] and got < enough:
        parts.append(os.pread(descriptor, count - got, offset + got))
        got += len(parts[-1])
    return b"".join(parts)


@dataclass(slots=True)
class Scanner:
    """Reads an open file from front to back: in blocks where headers are close together, one by one if they are far.

    Blocks grow from `LEAST_BLOCK` to `BLOCK` while headers follow each other closely. A header further away than the
    length of the last block is read alone. So memory is bounded, small records are not read one by one, and little more
    than the headers of large records is read.
    """

    descriptor: int  #: of the open file
    touched: int = 0  #: bytes read so far
    _data: bytes = b""  #: the last block
    _at: int = 0  #: offset of the last block

    def take(self, offset: int, count: int) -> memoryview:
        """Return `count` bytes at `offset`; fewer at the end of the file. OSError as pread does."""
        begin = offset - self._at
        if begin < 0 or begin + count > len(self._data):
            self._read(offset, count)
            begin = 0
        return memoryview(self._data)[begin : begin + count]

    def _read(self, offset: int, count: int) -> None:
        last = len(self._data)
        gap = offset - (self._at + last)
        near = gap <= min(max(last, LEAST_BLOCK), _NEAR)
        want = max(count, min(BLOCK, max(LEAST_BLOCK, 2 * last))) if near else count
        self._data, self._at = read_at(self.descriptor, want, offset, least=count), offset
        self.touched += len(self._data)
