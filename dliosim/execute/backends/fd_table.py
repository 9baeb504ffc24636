"""The files that a posix reader reads: their paths, the descriptors that stay open, and what failed on them."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import call_error, truncation_error
from dliosim.execute.safe_open import SAFE, close_read
from dliosim.measure.meter import Meter
from dliosim.model import PAGE, Access

# Files that a reader opens at a time with `open each sample`: enough that what a run of them costs once does not count.
_TOGETHER = 64
# One in so many of the descriptors that a process may have: all its readers together hold no more for such runs.
_SHARE = 8


class OpenFiles:
    """Opens and closes the files of one reader, timed into its meter; `kept` has the descriptors that stay open.

    `together` is how many files the reader may open at a time where none stays open, of what the system allows.
    `file_name` gives the path of a file below `directory`, and `file_size` its planned bytes, asked for only when an
    O_DIRECT call meets the end of a file.
    """

    def __init__(
        self,
        access: Access,
        directory: Path,
        file_name: Callable[[int], str],
        file_size: Callable[[int], int],
        meter: Meter,
    ) -> None:
        self.kept: dict[int, int] = {}
        self.direct = access.cache == "off"
        self._access = access
        self._meter = meter
        self._directory = str(directory)
        self._file_name = file_name
        self._file_size = file_size
        self._flags = os.O_RDONLY | SAFE | (os.O_DIRECT if self.direct else 0)
        self.together = max(1, min(_TOGETHER, raise_open_limit() // (_SHARE * max(1, access.readers))))

    def path(self, file: int) -> str:
        """Where a file lies."""
        return f"{self._directory}/{self._file_name(file)}"

    def open(self, file: int) -> int:
        """A new descriptor of a file, for the caller to close. Raises ExecutionError."""
        opened: list[int] = []
        try:
            self.open_all([file], opened)
        except ExecutionError:
            close_read(opened)
            raise
        return opened[0]

    def open_all(self, files: list[int], opened: list[int]) -> None:
        """Open files one after the other, and append their descriptors, for the caller to close. Raises ExecutionError.

        What an error leaves in `opened` is open too.
        """
        paths, first = [self.path(file) for file in files], len(opened)
        before = perf_counter_ns()
        try:
            opened.extend(map(os.open, paths, repeat(self._flags)))
        except OSError as error:
            path = paths[len(opened) - first]
            raise call_error("open", path, error, hint=self._open_hint(error), reading=True) from error
        finally:
            self._meter.open_ns += perf_counter_ns() - before
            self._meter.opens += len(opened) - first
            # As `open_regular` does. What is no file says so when it is read: to look costs 0.7 us a file, this 0.2.
            deque(map(os.set_blocking, opened[first:], repeat(True)), 0)
        if self._access.engine == "queued":
            self._require_seekable(paths, opened[first:])

    def close(self, descriptors: Iterable[int]) -> None:
        """Close descriptors that `open` gave."""
        before = perf_counter_ns()
        close_read(descriptors)
        self._meter.close_ns += perf_counter_ns() - before

    def keep_open(self, files: Iterable[int]) -> None:
        """Open those of the files that are not open; they stay so."""
        kept = self.kept
        for file in files:
            if file not in kept:
                kept[file] = self.open(file)

    def close_kept(self) -> None:
        """Close all that are kept open."""
        self.close(self.kept.values())
        self.kept.clear()

    def resume_read(self, descriptor: int, file: int, buffer: memoryview, offset: int, got: int) -> int:
        """Go on by preadv where a call returned `got` bytes, less than it was asked; return the bytes of all calls.

        With O_DIRECT a widened call may end early, but only where the file is planned to end; where it ends inside of a
        page elsewhere, that page is read again. Raises ExecutionError.
        """
        while got < len(buffer) and not (self.direct and offset + got == self._file_size(file)):
            begin = got // PAGE * PAGE if self.direct else got
            try:
                reached = begin + os.preadv(descriptor, [buffer[begin:]], offset + begin)
            except OSError as error:
                raise self.read_error("preadv", file, offset + begin, len(buffer) - begin, error) from error
            if reached <= got:
                raise truncation_error("preadv", self.path(file), offset, len(buffer), got)
            self._meter.calls += 1
            got = reached
        return got

    def read_error(self, call: str, file: int, offset: int, length: int, error: OSError) -> ExecutionError:
        """The error of a read that failed."""
        hint = f"`cache off`: O_DIRECT refuses this read, which is aligned to {PAGE} bytes"
        where = f" of {length} bytes at offset {offset}"
        refused = self.direct and error.errno == errno.EINVAL
        return call_error(call, self.path(file), error, where, hint if refused else "", reading=True)

    def _require_seekable(self, paths: list[str], opened: list[int]) -> None:
        """Raise ExecutionError [R401] for a pipe: preadv refuses it, a queue of the kernel's waits for its writer."""
        places: list[int] = []
        try:
            places.extend(map(os.lseek, opened, repeat(0), repeat(os.SEEK_CUR)))
        except OSError as error:
            raise call_error("lseek", paths[len(places)], error, reading=True) from error

    def _open_hint(self, error: OSError) -> str:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            if self._access.open != "each sample":
                need = "`open each sample` needs few at a time"
            elif self._access.depth:
                need = "fewer `readers`, or a smaller `depth`, need fewer"
            else:
                need = "fewer `readers` need fewer"
            return f"the limit is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}: {need}"
        return direct_hint(error) if self.direct else ""


def direct_hint(error: OSError) -> str:
    """What to add to the error of an open with O_DIRECT."""
    return "`cache off`: this file system refuses O_DIRECT" if error.errno == errno.EINVAL else ""


def raise_open_limit() -> int:
    """Let this process open as many files as the system allows it; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            limit = hard
        except (OSError, ValueError):
            pass  # some systems report a hard limit that they do not grant; the soft one then stays as it was
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
