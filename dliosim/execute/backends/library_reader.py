"""Reading through a format's own library, as an application would (`through library`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.errors import ExecutionError, PlanError
from dliosim.execute.backends.contract import FileReader, Files, time_call
from dliosim.execute.io_errors import call_error, wrap_call
from dliosim.execute.safe_open import require_file
from dliosim.formats.protocols import LibraryFile
from dliosim.formats.registry import bind
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.calls import Call


def library_read_note(access: Access, counted: bool) -> str:
    """Return a note about the figures where a format's library reads, empty elsewhere.

    `counted` is true if the kernel counts the bytes that the processes read.
    """
    if access.through != "library":
        return ""
    moved = "contents of samples, as the kernel does not say what this process reads"
    if counted:
        moved = "all that these processes read by read calls, as the kernel counts it"
    return f"read by the format's library: calls are the library's and include its decoding, and moved is {moved}"


class LibraryReader(FileReader):
    """Reads samples by the library of their format, one call for each row: consecutive samples of a file.

    Offsets and lengths of calls are those of contents, not of files, as `read_ranges.plan_reads` plans them for a
    library. The library may make several system calls for one call; `meter` counts calls of the library.
    """

    _recorded = Call.LIBRARY_READ

    def __init__(self, access: Access, files: Files) -> None:
        """Keep the format's library for the data set. Raises PlanError if it cannot read single samples."""
        form = bind(files.dataset).library_reader() if files.dataset is not None else None
        if form is None:
            raise PlanError("`through library`: this format has no library that reads single samples")

        super().__init__(access, files)
        self._form = form
        self._size = form.dataset.constant_size
        self._comm = files.comm if access.is_mpi else None
        self._collective = access.collective
        self._open: dict[int, LibraryFile] = {}

    def begin_epoch(self) -> None:
        """Open the shared file, unless it is open. Collective over `comm` with MPI-IO."""
        if self._comm is not None and not self._open:
            self._open_files([0])

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read every call by the library; return the bytes. Raises ExecutionError."""
        if self._collective:
            return self._read_collective(calls, into)
        if self._lifetime != "each sample":
            self._open_files(calls.file.tolist())
            return self._read_rows(calls, range(len(calls.file)), into)
        moved = 0
        for first, last in self._sample_bounds(calls):
            self._open_files([int(calls.file[first])])
            try:
                moved += self._read_rows(calls, range(first, last), into)
            finally:
                self._close_files()
        return moved

    def _find_path(self, file: int) -> Path:
        """Return the path of a regular file, for all ranks that open it together."""

        def verify_path() -> str:
            path = self._files.path(file)
            require_file(Path(path))
            return path

        if self._comm is None:
            return Path(verify_path())
        from dliosim.execute.mpi.world import run_on_first_rank  # reader processes have no MPI

        return Path(run_on_first_rank(self._comm, verify_path))

    def _read_rows(self, calls: Calls, rows: Iterable[int], into: memoryview) -> int:
        moved = 0
        for row in rows:
            start, length = int(calls.start[row]), int(calls.length[row])
            part = calls.part(row, row + 1) if self.meter.log is not None else None
            file, offset = int(calls.file[row]), int(calls.offset[row])
            moved += self._call_library(file, offset, into[start : start + length], part)
        return moved

    def _read_collective(self, calls: Calls, into: memoryview) -> int:
        """Read by collective calls: every rank makes as many as the rank that needs most, the last ones empty."""
        most = np.array([len(calls.file)], np.int64)
        if self._comm is not None:
            from mpi4py import MPI  # as above

            self._comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
        moved = self._read_rows(calls, range(len(calls.file)), into)
        for _ in range(int(most[0]) - len(calls.file)):
            self._call_library(0, 0, into[:0], calls.part(0, 0))
        return moved

    def _call_library(self, file: int, offset: int, into: memoryview, planned: Calls | None = None) -> int:
        # If sizes vary, each call reads one sample.
        each = self._size or len(into)
        first, count = (offset // each, len(into) // each) if each else (0, 0)
        began = perf_counter_ns()
        try:
            got = self._open[file].read(first, count, into)
        except ExecutionError:
            raise
        except OSError as error:
            where = f" of samples {first} to {first + count - 1}"
            raise call_error(
                f"read by the {self._form.name} library", self._files.path(file), error, where, reading=True
            ) from error
        self.meter.add_run(began, (perf_counter_ns(),), planned)
        self.meter.calls += 1
        self.meter.moved += got
        if got != len(into):
            text = f"the {self._form.name} library returned {got} bytes of samples {first} to {first + count - 1}"
            raise ExecutionError(f"{text} of {self._files.path(file)}, not {len(into)}", "R401")
        return got

    def _open_files(self, files: Iterable[int]) -> None:
        for file in files:
            if file in self._open:
                continue
            path = self._find_path(file)
            with wrap_call("open", path, reading=True), time_call(self.meter, "open_ns", Call.LIBRARY_OPEN, file):
                self._open[file] = self._form.open_library(path, self._comm, self._collective)
            self.meter.opens += 1

    def _close_files(self) -> None:
        for file, one in self._open.items():
            with time_call(self.meter, "close_ns", Call.LIBRARY_CLOSE, file):
                one.close()
        self._open.clear()
