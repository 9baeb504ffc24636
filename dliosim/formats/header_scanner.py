"""Reading of a file what an index needs: a file that is open, bytes at a place, headers that follow each other."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

from dliosim.errors import ExecutionError

PAGE: Final = 4096
"""Bytes that are read at least where the next header is near: storage gives no less anyway."""

BLOCK: Final = 256 * 1024
"""Bytes that are read at once at most, if no more are asked for."""

_NEAR: Final = 32 * 1024


@contextmanager
def file_to_read(path: Path) -> Iterator[FileIO]:
    """A block with a file to read, without a buffer; links are followed, and a pipe is not waited for.

    What was only read is whole though its close fails. Raises ExecutionError [R401] where no regular file stands there,
    OSError as open.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # what a socket says
            raise _no_file_error(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_file_error(path)
        os.set_blocking(descriptor, True)
        yield FileIO(descriptor, closefd=False)
    finally:
        with suppress(OSError):
            os.close(descriptor)


def _no_file_error(path: Path) -> ExecutionError:
    text = f"open refused on {path}: no regular file stands where a file should be; move it away"
    return ExecutionError(text, "R401")


def read_at(descriptor: int, count: int, offset: int, least: int | None = None) -> bytes:
    """`count` bytes of a file at `offset`, or at least `least` of them; fewer where it ends. Raises OSError as pread.

    A call may give less than what is there, so the end is where one gives nothing.
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
    """Reads bytes of an open file front to back, in blocks where headers are close together, alone where they are far.

    Blocks grow while headers follow each other closely, from `PAGE` to `BLOCK`; a header that lies further away than
    the last block was long is read by itself. So memory is bounded, small records are not read one by one, and of large
    ones little but their headers is read. `touched` is the bytes read so far.
    """

    descriptor: int
    touched: int = 0
    _data: bytes = b""
    _at: int = 0

    def take(self, offset: int, count: int) -> memoryview:
        """`count` bytes at `offset`; fewer where the file ends. OSError as pread does."""
        begin = offset - self._at
        if begin < 0 or begin + count > len(self._data):
            self._read(offset, count)
            begin = 0
        return memoryview(self._data)[begin : begin + count]

    def _read(self, offset: int, count: int) -> None:
        last = len(self._data)
        gap = offset - (self._at + last)
        near = gap <= min(max(last, PAGE), _NEAR)
        want = max(count, min(BLOCK, max(PAGE, 2 * last))) if near else count
        self._data, self._at = read_at(self.descriptor, want, offset, least=count), offset
        self.touched += len(self._data)
