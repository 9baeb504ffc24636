"""The files of a posix reader: their paths, their open descriptors, and the errors of their calls."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from time import perf_counter_ns

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files, only_file
from dliosim.execute.io_errors import call_error, truncation_error
from dliosim.execute.safe_open import SAFE, close_read
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access
from dliosim.model.direct_io import resume_offset
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.calls import Call
from dliosim.trace.recorder import CallLog

_C = ctypes.CDLL(None, use_errno=True)
_PREAD = getattr(_C, "pread64", _C.pread)
_PREAD.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
_PREAD.restype = ctypes.c_ssize_t

# Files that a reader opens together with `open each sample`: enough to make the fixed cost of a group negligible.
_TOGETHER = 64
# All readers of a process together may use one in this many of its descriptors for such groups.
_SHARE = 8


class OpenFiles:
    """Opens and closes the files of one reader, and adds the times to its meter.

    `kept` has the descriptors that stay open, by file. `together` is the number of files that the reader may open at a
    time if none stays open. The planned bytes of a file are needed only when an O_DIRECT call reaches its end.
    """

    def __init__(self, access: Access, files: Files, meter: Meter) -> None:
        self.kept: dict[int, int] = {}
        # The files of open descriptors, in a run whose calls are recorded.
        self._file_of: dict[int, int] = {}
        self.direct = access.cache == "off"
        self.call_name = "pread" if access.engine == "pread" else "preadv"
        self._recorded = Call.PREAD if access.engine == "pread" else Call.READ
        self._access = access
        self._meter = meter
        self._directory = str(files.directory)
        self._file_name = files.name
        self._file_size = files.size
        self._flags = os.O_RDONLY | SAFE | (os.O_DIRECT if self.direct else 0)
        self.together = max(1, min(_TOGETHER, raise_open_limit() // (_SHARE * max(1, access.readers))))

    def path(self, file: int) -> str:
        """Return the path of a file."""
        return f"{self._directory}/{self._file_name(file)}"

    def open(self, file: int) -> int:
        """Open a file and return its descriptor, which the caller closes. Raises ExecutionError."""
        opened: list[int] = []
        try:
            self.open_all([file], opened)
        except ExecutionError:
            close_read(opened)
            raise
        return opened[0]

    def open_all(self, files: list[int], opened: list[int]) -> None:
        """Open files in order and append their descriptors to `opened`; the caller closes them.

        Raises ExecutionError; the descriptors in `opened` are open then, too.
        """
        paths, first, log = [self.path(file) for file in files], len(opened), self._meter.log
        calls: Iterable[int] = map(os.open, paths, repeat(self._flags))
        before = perf_counter_ns()
        try:
            opened.extend(calls if log is None else self._follow_opens(log, files, calls))
        except OSError as error:
            path = paths[len(opened) - first]
            raise call_error("open", path, error, hint=self._open_hint(error), reading=True) from error
        finally:
            self._meter.open_ns += perf_counter_ns() - before
            self._meter.opens += len(opened) - first
            # As `open_regular` does, but without its check that this is a regular file: the check costs 0.7 us a file,
            # this call 0.2 us, and reading anything else fails.
            deque(map(os.set_blocking, opened[first:], repeat(True)), 0)
        if self._access.engine == "queued":
            self._require_seekable(paths, opened[first:])

    def close(self, descriptors: Iterable[int]) -> None:
        """Close descriptors that `open` or `open_all` returned."""
        log, before = self._meter.log, perf_counter_ns()
        close_read(descriptors if log is None else self._follow_closes(log, descriptors))
        self._meter.close_ns += perf_counter_ns() - before

    def _follow_opens(self, log: CallLog, files: list[int], calls: Iterable[int]) -> Iterator[int]:
        """Yield descriptors as calls return them, and record the calls."""
        for file, descriptor in zip(files, log.follow(Call.OPEN, files, calls), strict=False):
            self._file_of[descriptor] = file
            yield descriptor

    def _follow_closes(self, log: CallLog, descriptors: Iterable[int]) -> Iterator[int]:
        """Yield descriptors that the consumer closes one by one, and record that."""
        for descriptor in descriptors:
            file, began = self._file_of.pop(descriptor), perf_counter_ns()
            try:
                yield descriptor
            finally:
                log.add_call(Call.CLOSE, began, file)

    def keep_open(self, files: Iterable[int]) -> None:
        """Open those of the files that are not open yet, and keep them open."""
        kept = self.kept
        for file in files:
            if file not in kept:
                kept[file] = self.open(file)

    def keep_files_of(self, calls: Calls) -> int | list[int]:
        """Open the files that the calls read, and keep them open; return the descriptor of each call, or one for all.

        There must be a call.
        """
        kept, file = self.kept, only_file(calls)
        if file is not None:
            if file not in kept:
                self.keep_open([file])
            return kept[file]
        numbers = calls.file.tolist()
        self.keep_open(dict.fromkeys(numbers))
        return [kept[number] for number in numbers]

    def close_kept(self) -> None:
        """Close all descriptors in `kept`."""
        self.close(self.kept.values())
        self.kept.clear()

    @property
    def read_call(self) -> Callable[[int, list[memoryview], int], int]:
        """Function that reads from a descriptor into a buffer, at an offset; it returns bytes or raises OSError."""
        return pread if self._access.engine == "pread" else os.preadv

    def resume_read(self, descriptor: int, file: int, buffer: memoryview, offset: int, got: int) -> int:
        """Read the rest by `read_call` after a call that returned `got` bytes, too few; return the bytes of all calls.

        With O_DIRECT a widened call may end early, but only at the planned end of the file. If it ends inside a page
        elsewhere, that page is read again. Raises ExecutionError if the file ends too early or a call fails.
        """
        while got < len(buffer) and not (self.direct and offset + got == self._file_size(file)):
            begin, began = resume_offset(got, self._access.page), perf_counter_ns()
            try:
                reached = begin + self.read_call(descriptor, [buffer[begin:]], offset + begin)
            except OSError as error:
                raise self.read_error(self.call_name, file, offset + begin, len(buffer) - begin, error) from error
            if reached <= got:
                raise truncation_error(self.call_name, self.path(file), offset, len(buffer), got)
            self._meter.calls += 1
            if self._meter.log is not None:
                asked = len(buffer) - begin
                self._meter.log.add_call(self._recorded, began, file, offset + begin, asked, reached - begin)
            got = reached
        return got

    def read_error(self, call: str, file: int, offset: int, length: int, error: OSError) -> ExecutionError:
        """Return the error of a read that failed."""
        hint = f"`cache off`: O_DIRECT refuses this read, which is aligned to {self._access.alignment} bytes"
        where = f" of {length} bytes at offset {offset}"
        refused = self.direct and error.errno == errno.EINVAL
        return call_error(call, self.path(file), error, where, hint if refused else "", reading=True)

    def _require_seekable(self, paths: list[str], opened: list[int]) -> None:
        """Raise ExecutionError [R401] for a pipe: a queue of the kernel would wait for its writer."""
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


def pread(descriptor: int, buffers: list[memoryview], offset: int) -> int:
    """Read into the only buffer by pread of the C library; return the bytes. Raises OSError.

    Not `os.pread`, which reads into memory of its own: that would be a copy, and O_DIRECT needs aligned memory.
    """
    (buffer,) = buffers
    place = ctypes.byref(ctypes.c_char.from_buffer(buffer))
    while (got := _PREAD(descriptor, place, len(buffer), offset)) < 0:
        if (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return int(got)


def direct_hint(error: OSError) -> str:
    """Return the hint for the error of an open with O_DIRECT, or ""."""
    return "`cache off`: this file system refuses O_DIRECT" if error.errno == errno.EINVAL else ""


def raise_open_limit() -> int:
    """Raise this process's limit of open files to its hard limit; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            limit = hard
        except (OSError, ValueError):
            pass  # some systems report a hard limit that they do not grant: the soft limit remains
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
