"""The posix backend: preadv into buffers that are allocated once, and pwrite."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from itertools import repeat
from operator import length_hint
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import CallBufferCache, CallBuffers, FileReader, Files, address_of, allocate
from dliosim.execute.backends.fd_table import OpenFiles, direct_hint
from dliosim.execute.io_errors import call_error
from dliosim.execute.safe_open import CREATE_OR_TRUNCATE, close_written, open_regular
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access
from dliosim.model.direct_io import split_write
from dliosim.plan.samples.io_requests import Calls, sample_heads
from dliosim.trace.calls import Call

_BOUNCE = 1 << 20


class PosixReader(FileReader):
    """Reads files by preadv, one call a row, through descriptors that stay open as long as `Access.open` says."""

    def __init__(self, access: Access, files: Files) -> None:
        super().__init__(access, files)
        self._table = OpenFiles(access, files, self.meter)
        self._pieces: CallBufferCache[list[memoryview]] = CallBufferCache(lambda piece, _: [piece])

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read every call; return the bytes. Raises ExecutionError."""
        if not len(calls.file):
            return 0
        cut = self._pieces.cut_buffer(calls, into)
        if self._lifetime == "each sample":
            return self._open_and_read(calls, cut)
        kept = self._table.keep_files_of(calls)
        descriptors = repeat(kept) if isinstance(kept, int) else kept
        return self._read_rows(descriptors, calls, cut.pieces, cut.lengths, cut.total)

    def close(self) -> None:
        """Close every descriptor."""
        super().close()
        self._pieces.release_buffers()

    def _close_files(self) -> None:
        self._table.close_kept()

    def _open_and_read(self, calls: Calls, cut: CallBuffers[list[memoryview]]) -> int:
        """Open the files of a group of samples, read them, close them, and so on; return the bytes.

        The calls of one sample share the descriptor.
        """
        count = len(calls.file)
        if self._merged or calls.continues is not None:
            bounds = [*np.flatnonzero(sample_heads(calls, self._merged)).tolist(), count]
        else:
            bounds = list(range(count + 1))
        moved, together = 0, self._table.together
        for first in range(0, len(bounds) - 1, together):
            begins = bounds[first : first + together + 1]
            rows = slice(begins[0], begins[-1])
            opened: list[int] = []
            try:
                self._table.open_all(calls.file[begins[:-1]].tolist(), opened)
                descriptors = opened
                if len(opened) < rows.stop - rows.start:
                    descriptors = np.repeat(opened, np.diff(begins)).tolist()
                lengths = cut.lengths[rows]
                part = calls if len(lengths) == count else calls.part(rows.start, rows.stop)
                moved += self._read_rows(descriptors, part, cut.pieces[rows], lengths, sum(lengths))
            finally:
                self._table.close(opened)
        return moved

    def _read_rows(
        self,
        descriptors: Sequence[int] | repeat[int],
        calls: Calls,
        buffers: list[list[memoryview]],
        lengths: list[int],
        asked: int,
    ) -> int:
        """Read rows whose files are open, `asked` bytes in all; return the bytes."""
        moved, now, log = asked, perf_counter_ns, self.meter.log
        # Each call takes one offset just before it is made, so the number that remains tells which call failed.
        offsets = iter(calls.offset.tolist())

        def resume_row(got: int) -> bool:
            nonlocal moved
            row = len(buffers) - length_hint(offsets) - 1
            file, offset = int(calls.file[row]), int(calls.offset[row])
            descriptor = self._table.kept[file] if isinstance(descriptors, repeat) else descriptors[row]
            if log is not None:
                log.add_short(row, got, now())
            moved -= lengths[row] - self._table.resume_read(descriptor, file, buffers[row][0], offset, got)
            return True

        # `zip` and `map` make each call when the loop below asks for it: between two calls run only a clock reading and
        # a comparison.
        results = zip(map(self._table.read_call, descriptors, buffers, offsets), lengths)  # noqa: B905
        began = now()
        try:
            stamps = [now() for got, length in results if got == length or resume_row(got)]
        except ExecutionError:
            raise
        except OSError as error:
            row = len(buffers) - length_hint(offsets) - 1
            file, offset = int(calls.file[row]), int(calls.offset[row])
            raise self._table.read_error(self._table.call_name, file, offset, lengths[row], error) from error
        meter = self.meter
        meter.add_run(began, stamps, calls)
        meter.calls += len(stamps)
        meter.moved += moved
        return moved


class PreadReader(PosixReader):
    """Reads files by pread, likewise (`engine pread`)."""

    _recorded = Call.PREAD


class PosixWriter:
    """Writes one file by pwrite. With `cache off` (O_DIRECT) only unaligned ends go through the page cache."""

    def __init__(self, access: Access, path: Path, create: bool) -> None:
        """Open `path`; with `create` create or truncate it. Raises ExecutionError."""
        self.meter = Meter(lambda _: str(path))
        self.path = path
        self._descriptor = self._direct = -1
        self._alignment = access.page
        self._bounce = allocate(max(_BOUNCE, self._alignment)) if access.cache == "off" else memoryview(b"")
        before = perf_counter_ns()
        try:
            self._descriptor = open_regular(path, CREATE_OR_TRUNCATE if create else os.O_WRONLY)
            self.meter.log_call(Call.OPEN, before)
            if access.cache == "off":
                again = perf_counter_ns()
                self._direct = open_regular(path, os.O_WRONLY | os.O_DIRECT)
                self.meter.log_call(Call.OPEN, again)
        except OSError as error:
            self.close()
            hint = direct_hint(error) if access.cache == "off" else ""
            raise call_error("open", str(path), error, hint=hint) from error
        self.meter.open_ns += perf_counter_ns() - before
        self.meter.opens += 1

    def write(self, offset: int, data: memoryview) -> None:
        """Write `data` at `offset`, in several calls if a part is unaligned. Raises ExecutionError."""
        if self._direct < 0:
            self._write(self._descriptor, offset, data)
            return
        head, body = split_write(offset, len(data), self._alignment)
        if head:
            self._write(self._descriptor, offset, data[:head])
        if body:
            self._write_direct(offset + head, data[head : head + body])
        if head + body < len(data):
            self._write(self._descriptor, offset + head + body, data[head + body :])

    def sync(self) -> None:
        """Make the file durable by fsync; its time is in `meter.sync_ns`. Raises ExecutionError."""
        before = perf_counter_ns()
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise call_error("fsync", str(self.path), error) from error
        self.meter.sync_ns += perf_counter_ns() - before
        self.meter.log_call(Call.FSYNC, before)

    def active_hints(self) -> dict[str, str]:
        """Nothing: there are no hints."""
        return {}

    def close(self) -> None:
        """Close the file. Raises ExecutionError if the file system reports only now that it lost data."""
        before = perf_counter_ns()
        open_ones = [descriptor for descriptor in (self._direct, self._descriptor) if descriptor >= 0]
        self._descriptor = self._direct = -1
        errors: list[OSError] = []
        for descriptor in open_ones:
            begun = perf_counter_ns()
            try:
                close_written(descriptor)
                self.meter.log_call(Call.CLOSE, begun)
            except OSError as error:
                errors.append(error)
        if errors:
            raise call_error("close", str(self.path), errors[0]) from errors[0]
        self.meter.close_ns += perf_counter_ns() - before

    def _write(self, descriptor: int, offset: int, data: memoryview) -> None:
        meter, done, size = self.meter, 0, len(data)
        while done < size:
            before = perf_counter_ns()
            try:
                wrote = os.pwrite(descriptor, data[done:] if done else data, offset + done)
            except OSError as error:
                where = f" of {size - done} bytes at offset {offset + done}"
                raise call_error("pwrite", str(self.path), error, where) from error
            meter.add_write(Call.WRITE, before, offset + done, size - done, wrote)
            done += wrote
            if wrote == 0:
                raise ExecutionError(
                    f"pwrite of {size - done} bytes at offset {offset + done} on {self.path} wrote none"
                )

    def _write_direct(self, offset: int, data: memoryview) -> None:
        if address_of(data) % min(self._alignment, mmap.PAGESIZE) == 0:  # no kernel asks more of memory than a page
            self._write(self._direct, offset, data)
            return
        bounce = self._bounce
        for first in range(0, len(data), len(bounce)):
            piece = data[first : first + len(bounce)]
            bounce[: len(piece)] = piece
            self._write(self._direct, offset + first, bounce[: len(piece)])
