"""The page cache: drop and count the pages of files; and the bytes that the process really read and wrote."""

from __future__ import annotations

import errno
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.safe_open import close_read, open_for_read
from dliosim.mincore import find_resident_pages

# Files are examined in windows of this many bytes, so that a large file needs little address space and memory.
_WINDOW = 1 << 30

# A file that is larger than _LOOKS windows of _LOOK bytes is examined in that many windows, evenly spread: the kernel
# takes some 10 ms for 1 GiB.
_LOOKS, _LOOK = 16, 1 << 26

# The kernel drops a folio as a whole or not at all, and none is larger than this on most machines.
_LARGEST_FOLIO = 1 << 21

# Counts of the process, and of the thread that reads them.
_PROCESS_IO, _THREAD_IO = Path("/proc/self/io"), Path("/proc/thread-self/io")
_WRITES = re.compile(rb"wchar: (?P<bytes>\d+)\n.*\nsyscw: (?P<calls>\d+)\n")


#: Errors of posix_fadvise with which a file system refuses advice; others are failures.
_NO_ADVICE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ESPIPE}


@dataclass(frozen=True, slots=True)
class ProcessIO:
    """The bytes that this process has read; -1 if they are unknown."""

    #: bytes that its read calls returned
    called_read: int
    #: bytes read from storage, below the page cache
    storage_read: int
    #: bytes of reading these counts themselves, which the kernel adds to `called_read` only afterwards
    own: int = 0


def drop_pages(path: Path) -> bool:
    """Ask the kernel of this node to drop the pages of a file; pages not yet on storage are written first.

    Returns False if the file system takes no such advice. Raises ExecutionError if the file cannot be opened or
    synced.
    """
    with _open_for("posix_fadvise", path) as descriptor:
        # POSIX_FADV_DONTNEED keeps dirty pages, so they are written first.
        with wrap_call("fdatasync", path, reading=True):
            os.fdatasync(descriptor)
        return _advise(descriptor, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _open_for(call: str, path: Path) -> Iterator[int]:
    """Open a file to read for a block that makes a system call; failures of both become ExecutionErrors."""
    with wrap_call("open", path, reading=True), open_for_read(path) as descriptor, wrap_call(call, path, reading=True):
        yield descriptor


def _advise(descriptor: int, length: int, advice: int) -> bool:
    """Give the kernel advice on the first bytes of a file, 0 for all; return False if its file system takes none."""
    try:
        os.posix_fadvise(descriptor, 0, length, advice)
    except OSError as error:
        if error.errno not in _NO_ADVICE:
            raise
        return False
    return True


def warm_page_cache(path: Path, scratch: bytearray) -> None:
    """Read a file from its beginning to its end through the page cache, and discard it. Raises ExecutionError."""
    with _open_for("readv", path) as descriptor:
        while os.readv(descriptor, [scratch]):
            pass


def count_resident_bytes(path: Path, whole: bool = False) -> tuple[int, int]:
    """Return the bytes of a file in this node's page cache, and the bytes examined; (0, 0) if the kernel does not say.

    A file up to 1 GiB is examined as a whole. Of a larger one 1 GiB is examined, evenly spread, unless `whole` is set.
    The kernel answers only a process that owns the file or may write it; to others it claims that all of it is cached.
    Raises ExecutionError.
    """
    with _open_for("mincore", path) as descriptor:
        status = os.fstat(descriptor)
        if not _shows_residency(path, status):
            return 0, 0
        size = status.st_size
        windows = _mincore_windows(size, whole)
        try:
            found = sum(_count_resident(descriptor, first, length) for first, length in windows)
        except ValueError as error:  # from Python itself, which checks the size before it maps
            raise ExecutionError(f"mincore failed on {path}: the file was cut short meanwhile ({error})") from error
    return found, sum(length for _, length in windows)


def counts_reads(path: Path) -> bool | None:
    """Return whether the kernel counts the bytes that a process reads from a file below the page cache.

    The first page is dropped and read, which has to count, and read again from the page cache, which must not: some
    file systems count neither, and some both. None if the page stays in memory (it is dirty or mapped, or that is
    where its file system has it), or if the kernel does not say. Up to 2 MiB of the file are dropped; if any of
    these were in the page cache, the kernel is asked to read them again. Raises ExecutionError, and ValueError for a
    file that is cut short meanwhile.
    """
    with _open_for("read", path) as descriptor:
        status = os.fstat(descriptor)
        window, page = (min(status.st_size, most) for most in (_LARGEST_FOLIO, mmap.PAGESIZE))
        if not page:
            return None
        is_shown = _shows_residency(path, status)
        was_cached = is_shown and _count_resident(descriptor, 0, window) > 0
        # Without the first advice other pages are read ahead, and counted.
        if not all(
            _advise(descriptor, *each) for each in ((0, os.POSIX_FADV_RANDOM), (window, os.POSIX_FADV_DONTNEED))
        ):
            return None
        was_dropped = is_shown and not _count_resident(descriptor, 0, page)
        first, second = _count_read(descriptor, page), _count_read(descriptor, page)
        afterwards = os.POSIX_FADV_WILLNEED if was_cached else os.POSIX_FADV_DONTNEED
        _advise(descriptor, window, afterwards)
    if first is None or second is None or not (first or was_dropped):
        return None
    return first > 0 and not second


def _count_read(descriptor: int, length: int) -> int | None:
    """Read the first bytes of a file; return what the kernel counts of that for this thread, None if it does not."""
    before = read_process_io(_THREAD_IO)
    os.pread(descriptor, length, 0)
    after = read_process_io(_THREAD_IO)
    return None if before is None or after is None else after.storage_read - before.storage_read


def _shows_residency(path: Path, status: os.stat_result) -> bool:
    """Return True if the kernel says which pages of a file are in memory; to others it claims that all are."""
    return status.st_uid == os.geteuid() or os.access(path, os.W_OK, effective_ids=True)


def _mincore_windows(size: int, whole: bool) -> list[tuple[int, int]]:
    """Return the windows to examine in a file of `size` bytes: first byte, a multiple of the page size, and length."""
    if whole or size <= _LOOKS * _LOOK:
        return [(first, min(_WINDOW, size - first)) for first in range(0, size, _WINDOW)]
    spread = (-(-(size - _LOOK) * number // (_LOOKS - 1) // mmap.PAGESIZE) * mmap.PAGESIZE for number in range(_LOOKS))
    return [(first, min(_LOOK, size - first)) for first in spread]


def read_process_io(path: Path = _PROCESS_IO, processes: Sequence[int] = ()) -> ProcessIO | None:
    """Return the counts of this process and of other `processes` together, or of a thread by its own file.

    None if there is no such file.
    """
    try:
        # This process first: its count has nothing of reading the others'.
        texts = [path.read_text(), *(Path(f"/proc/{process}/io").read_text() for process in processes)]
    except OSError:
        return None
    called, stored = (
        sum(int(re.findall(rf"^{name}: (\d+)$", text, re.MULTILINE)[0]) for text in texts)
        for name in ("rchar", "read_bytes")
    )
    return ProcessIO(called, stored, sum(map(len, texts)))


def process_io_since(
    before: ProcessIO | None, drained: int = 0, path: Path = _PROCESS_IO, processes: Sequence[int] = ()
) -> ProcessIO:
    """Return what this process has read since `before`, without reading the counts and without `drained` bytes.

    If bytes were drained, those from storage are unknown (-1). `path` and `processes` are those of `read_process_io`.
    """
    now = read_process_io(path, processes)
    if before is None or now is None:
        return ProcessIO(-1, -1)
    called = now.called_read - before.called_read - before.own - drained
    return ProcessIO(max(called, 0), -1 if drained else now.storage_read - before.storage_read)


class WriteCounter:
    """The kernel's count of all writes of the thread that made this counter; close it at the end."""

    def __init__(self) -> None:
        try:
            self._descriptor: int | None = os.open(_THREAD_IO, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = None

    def read(self) -> tuple[int, int] | None:
        """Return calls and bytes so far; None if the kernel does not count them. Takes some microseconds."""
        if self._descriptor is None:
            return None
        try:
            found = _WRITES.search(os.pread(self._descriptor, 512, 0))
        except OSError:
            return None
        return (int(found["calls"]), int(found["bytes"])) if found else None

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            close_read([self._descriptor])


def _count_resident(descriptor: int, first: int, length: int) -> int:
    present = find_resident_pages(descriptor, first, length)
    # The file may end inside its last page.
    last = (length - 1) // mmap.PAGESIZE
    beyond = (last + 1) * mmap.PAGESIZE - length if len(present) and present[-1] == last else 0
    return len(present) * mmap.PAGESIZE - beyond
