"""The posix backend: preadv into buffers allocated once, pwrite, and nothing in between."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterable
from itertools import repeat
from operator import length_hint
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.buffers import Pieces, allocate, only_file
from dliosim.execute.faults import failed, truncated
from dliosim.measure.meter import Meter
from dliosim.model import PAGE, Access
from dliosim.plan.extents import Calls, sample_heads

_BOUNCE = 1 << 20


class PosixReader:
    """Reads files by preadv, one call a row, through descriptors that live as long as `Access.open` says.

    `file_name` gives the path of a file below `directory`, and `file_size` its planned bytes, asked for only when an
    O_DIRECT call meets the end of a file.
    """

    def __init__(
        self,
        access: Access,
        directory: Path,
        file_name: Callable[[int], str],
        file_size: Callable[[int], int],
    ) -> None:
        self.meter = Meter()
        self._directory = str(directory)
        self._file_name = file_name
        self._file_size = file_size
        self._direct = access.cache == "off"
        self._flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_DIRECT if self._direct else 0)
        self._lifetime = access.open
        self._merged = access.transfer is not None
        self._table: dict[int, int] = {}
        self._pieces: Pieces[list[memoryview]] = Pieces(lambda piece, _: [piece])
        raise_open_limit()

    def begin_epoch(self) -> None:
        """Nothing: files are opened when they are first read."""

    def read(self, calls: Calls, into: memoryview) -> int:
        """See `Reader.read`."""
        if not len(calls.file):
            return 0
        if self._lifetime == "each sample":
            return self._read_opening(calls, into)
        descriptors = self._descriptors(calls)
        cut = self._pieces.of(calls, into)
        buffers, moved, now = cut.pieces, cut.total, perf_counter_ns
        # Taken from just before each call is made, so that what is left of it tells which call failed.
        offsets = iter(calls.offset.tolist())

        def rest(got: int) -> bool:
            nonlocal moved
            row = len(buffers) - length_hint(offsets) - 1
            file, offset = int(calls.file[row]), int(calls.offset[row])
            moved -= cut.lengths[row] - self._rest(self._table[file], file, buffers[row][0], offset, got)
            return True

        results = zip(map(os.preadv, descriptors, buffers, offsets), cut.lengths)  # noqa: B905
        began = now()
        try:
            stamps = [now() for got, length in results if got == length or rest(got)]
        except ExecutionError:
            raise
        except OSError as error:
            row = len(buffers) - length_hint(offsets) - 1
            raise self._failed_read(int(calls.file[row]), int(calls.offset[row]), cut.lengths[row], error) from error
        meter = self.meter
        meter.stamps.extend([-began, *stamps])
        meter.calls += len(stamps)
        meter.moved += moved
        return moved

    def end_epoch(self) -> None:
        """Close what `open each epoch` closes."""
        if self._lifetime == "each epoch":
            self._close_table()

    def granted(self) -> dict[str, str]:
        """Nothing: there are no hints."""
        return {}

    def close(self) -> None:
        """Close every descriptor."""
        self._close_table()
        self._pieces.forget()

    def _descriptors(self, calls: Calls) -> Iterable[int]:
        table = self._table
        file = only_file(calls)
        if file is not None:
            if file not in table:
                table[file] = self._open(file)
            return repeat(table[file])
        files = calls.file.tolist()
        for file in dict.fromkeys(files):
            if file not in table:
                table[file] = self._open(file)
        return [table[file] for file in files]

    def _open(self, file: int) -> int:
        before = perf_counter_ns()
        try:
            descriptor = os.open(self._path(file), self._flags)
        except OSError as error:
            raise failed("open", self._path(file), error, hint=self._open_hint(error), reading=True) from error
        self.meter.open_ns += perf_counter_ns() - before
        self.meter.opens += 1
        return descriptor

    def _close_table(self) -> None:
        before = perf_counter_ns()
        while self._table:
            os.close(self._table.popitem()[1])
        self.meter.close_ns += perf_counter_ns() - before

    def _read_opening(self, calls: Calls, into: memoryview) -> int:
        """Open, read and close; the calls of one sample share the descriptor."""
        files, offsets = calls.file.tolist(), calls.offset.tolist()
        cut = self._pieces.of(calls, into)
        heads = [*sample_heads(calls, self._merged).tolist(), True]
        now, preadv = perf_counter_ns, os.preadv
        meter = self.meter
        stamps: list[int] = []
        moved, descriptor = 0, -1
        try:
            for row, (file, offset, length, buffer) in enumerate(
                zip(files, offsets, cut.lengths, cut.pieces, strict=True)
            ):
                if heads[row]:
                    descriptor = self._open(file)
                before = now()
                try:
                    got = preadv(descriptor, buffer, offset)
                except OSError as error:
                    raise self._failed_read(file, offset, length, error) from error
                if got != length:
                    got = self._rest(descriptor, file, buffer[0], offset, got)
                after = now()
                stamps += (-before, after)
                moved += got
                if heads[row + 1]:
                    os.close(descriptor)
                    descriptor = -1
                    meter.close_ns += now() - after
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        meter.stamps.extend(stamps)
        meter.calls += len(heads) - 1
        meter.moved += moved
        return moved

    def _rest(self, descriptor: int, file: int, buffer: memoryview, offset: int, got: int) -> int:
        """Go on where a call returned `got` bytes, less than it was asked; return the bytes of all calls."""
        while got < len(buffer):
            try:
                more = os.preadv(descriptor, [buffer[got:]], offset + got) if not self._direct or not got % PAGE else 0
            except OSError as error:
                raise self._failed_read(file, offset + got, len(buffer) - got, error) from error
            if more == 0:
                # A widened call may end early, but only where the file is planned to end.
                if self._direct and offset + got == self._file_size(file):
                    break
                raise truncated("preadv", self._path(file), offset, len(buffer), got)
            self.meter.calls += 1
            got += more
        return got

    def _path(self, file: int) -> str:
        return f"{self._directory}/{self._file_name(file)}"

    def _failed_read(self, file: int, offset: int, length: int, error: OSError) -> ExecutionError:
        hint = f"`cache off`: O_DIRECT refuses this read, which is aligned to {PAGE} bytes"
        where = f" of {length} bytes at offset {offset}"
        refused = self._direct and error.errno == errno.EINVAL
        return failed("preadv", self._path(file), error, where, hint if refused else "", reading=True)

    def _open_hint(self, error: OSError) -> str:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return f"{len(self._table)} are open and the limit is {limit}: `open each sample` needs one at a time"
        return _direct_hint(error) if self._direct else ""


class PosixWriter:
    """Writes one file by pwrite; with O_DIRECT (`cache off`) all but what is not aligned goes past the page cache."""

    def __init__(self, access: Access, path: Path, create: bool) -> None:
        """Open `path`; with `create` make it, or empty it. Raises ExecutionError."""
        self.meter = Meter()
        self.path = path
        self._descriptor = self._direct = -1
        self._bounce = allocate(_BOUNCE) if access.cache == "off" else memoryview(b"")
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        before = perf_counter_ns()
        try:
            self._descriptor = os.open(path, flags | (os.O_CREAT | os.O_TRUNC if create else 0), 0o644)
            if access.cache == "off":
                self._direct = os.open(path, flags | os.O_DIRECT)
        except OSError as error:
            self.close()
            hint = _direct_hint(error) if access.cache == "off" else ""
            raise failed("open", str(path), error, hint=hint) from error
        self.meter.open_ns += perf_counter_ns() - before
        self.meter.opens += 1

    def write(self, offset: int, data: memoryview) -> None:
        """See `Writer.write`."""
        if self._direct < 0:
            self._write(self._descriptor, offset, data)
            return
        head = min(-offset % PAGE, len(data))
        body = (len(data) - head) // PAGE * PAGE
        if head:
            self._write(self._descriptor, offset, data[:head])
        if body:
            self._write_direct(offset + head, data[head : head + body])
        if head + body < len(data):
            self._write(self._descriptor, offset + head + body, data[head + body :])

    def sync(self) -> None:
        """fsync; timed in `meter.sync_ns`."""
        before = perf_counter_ns()
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise failed("fsync", str(self.path), error) from error
        self.meter.sync_ns += perf_counter_ns() - before

    def granted(self) -> dict[str, str]:
        """Nothing: there are no hints."""
        return {}

    def close(self) -> None:
        """Close; raises ExecutionError where the file system only now says that it could not keep the data."""
        before = perf_counter_ns()
        open_ones = [descriptor for descriptor in (self._direct, self._descriptor) if descriptor >= 0]
        self._descriptor = self._direct = -1
        try:
            for descriptor in open_ones:
                os.close(descriptor)
        except OSError as error:
            raise failed("close", str(self.path), error) from error
        self.meter.close_ns += perf_counter_ns() - before

    def _write(self, descriptor: int, offset: int, data: memoryview) -> None:
        meter, done, size = self.meter, 0, len(data)
        while done < size:
            before = perf_counter_ns()
            try:
                wrote = os.pwrite(descriptor, data[done:] if done else data, offset + done)
            except OSError as error:
                where = f" of {size - done} bytes at offset {offset + done}"
                raise failed("pwrite", str(self.path), error, where) from error
            meter.call_ns.append(perf_counter_ns() - before)
            meter.calls += 1
            meter.moved += wrote
            done += wrote
            if wrote == 0:
                raise ExecutionError(
                    f"pwrite of {size - done} bytes at offset {offset + done} on {self.path} wrote none"
                )

    def _write_direct(self, offset: int, data: memoryview) -> None:
        if np.frombuffer(data, np.uint8).__array_interface__["data"][0] % PAGE == 0:
            self._write(self._direct, offset, data)
            return
        bounce = self._bounce
        for first in range(0, len(data), _BOUNCE):
            piece = data[first : first + _BOUNCE]
            bounce[: len(piece)] = piece
            self._write(self._direct, offset + first, bounce[: len(piece)])


def _direct_hint(error: OSError) -> str:
    return "`cache off`: this file system refuses O_DIRECT" if error.errno == errno.EINVAL else ""


def raise_open_limit() -> None:
    """Let this process open as many files as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some systems report a hard limit that they do not grant; the soft one then stays as it was.
            return
