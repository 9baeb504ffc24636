"""A backend that reads by pread into memory of its own, copies that to the buffer, and writes by pwrite."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.extend import Access, Backend, Calls, Files, Meter, call_error, sample_heads, truncation_error


class MirrorReader:
    """The reader of one thread, with the methods of `dliosim.extend.Reader`."""

    def __init__(self, access: Access, files: Files) -> None:
        self.meter = Meter()
        self._lifetime, self._merged, self._files = access.open, access.transfer is not None, files
        self._open: dict[int, int] = {}

    def begin_epoch(self) -> None:
        """Do nothing: files are opened when they are first read."""

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read one call after the other; with `open each sample` the calls of one sample share its descriptor."""
        each_sample = self._lifetime == "each sample"
        heads = sample_heads(calls, self._merged).tolist()
        rows = zip(calls.file.tolist(), calls.offset.tolist(), calls.length.tolist(), calls.start.tolist(), strict=True)
        moved = 0
        try:
            for head, (file, offset, length, start) in zip(heads, rows, strict=True):
                if each_sample and head:
                    self.close()
                moved += self._call(file, offset, into[start : start + length])
        finally:
            if each_sample:
                self.close()
        return moved

    def end_epoch(self) -> None:
        if self._lifetime == "each epoch":
            self.close()

    def active_hints(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        began = perf_counter_ns()
        while self._open:
            os.close(self._open.popitem()[1])
        self.meter.close_ns += perf_counter_ns() - began

    def _call(self, file: int, offset: int, into: memoryview) -> int:
        path, meter = str(self._files.directory / self._files.name(file)), self.meter
        descriptor = self._descriptor(file, path)
        began = perf_counter_ns()
        try:
            data = os.pread(descriptor, len(into), offset)
        except OSError as error:
            raise call_error("pread", path, error, f" of {len(into)} bytes at offset {offset}", reading=True) from error
        if len(data) < len(into):
            raise truncation_error("pread", path, offset, len(into), len(data))
        into[:] = data
        meter.add_run(began, (perf_counter_ns(),))
        meter.calls += 1
        meter.moved += len(data)
        return len(data)

    def _descriptor(self, file: int, path: str) -> int:
        if file not in self._open:
            began = perf_counter_ns()
            try:
                self._open[file] = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                raise call_error("open", path, error, reading=True) from error
            self.meter.open_ns += perf_counter_ns() - began
            self.meter.opens += 1
        return self._open[file]


class MirrorWriter:
    """The writer of a file that exists, with the methods of `dliosim.extend.Writer`."""

    def __init__(self, access: Access, path: Path, comm: MPI.Intracomm) -> None:
        self.meter, self.path, self._open = Meter(), path, -1
        began = perf_counter_ns()
        try:
            self._open = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise call_error("open", str(path), error) from error
        self.meter.open_ns += perf_counter_ns() - began
        self.meter.opens += 1

    def write(self, offset: int, data: memoryview) -> None:
        meter, done = self.meter, 0
        while done < len(data):
            began = perf_counter_ns()
            try:
                wrote = os.pwrite(self._open, data[done:], offset + done)
            except OSError as error:
                where = f" of {len(data) - done} bytes at offset {offset + done}"
                raise call_error("pwrite", str(self.path), error, where) from error
            meter.call_ns.append(perf_counter_ns() - began)
            meter.calls += 1
            meter.moved += wrote
            done += wrote

    def sync(self) -> None:
        began = perf_counter_ns()
        try:
            os.fsync(self._open)
        except OSError as error:
            raise call_error("fsync", str(self.path), error) from error
        self.meter.sync_ns += perf_counter_ns() - began

    def active_hints(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        """Close the file; raises the error that a file system reports only now."""
        began, self._open, last = perf_counter_ns(), -1, self._open
        try:
            if last >= 0:
                os.close(last)
        except OSError as error:
            raise call_error("close", str(self.path), error) from error
        self.meter.close_ns += perf_counter_ns() - began


MIRROR = Backend("mirror", MirrorReader, MirrorWriter)
