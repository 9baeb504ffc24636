"""Files written by MPI-IO, independently or collectively."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.mpiio_files import Spec, close_file, get_hints, mpiio_error, open_file
from dliosim.measure.rank.meter import Meter, Stopwatch
from dliosim.model import Access
from dliosim.trace.calls import Call


class IndependentWriter:
    """Writes by MPI_File_write_at to a file that all ranks of `comm` open and close together."""

    _call, _recorded = "MPI_File_write_at", Call.MPI_WRITE

    def __init__(self, access: Access, path: Path, comm: MPI.Intracomm) -> None:
        """Open a file, and create it if it does not exist. Collective. Raises ExecutionError."""
        self.meter = Meter(lambda _: str(path))
        self.path = path
        self._status = MPI.Status()
        began = perf_counter_ns()
        with Stopwatch(self.meter, "open_ns"):
            self._handle = open_file(comm, str(path), MPI.MODE_WRONLY | MPI.MODE_CREATE, access.hints)
        self.meter.opens += 1
        self.meter.log_call(Call.MPI_OPEN, began)

    def write(self, offset: int, data: memoryview) -> None:
        """Write `data` at `offset` by one MPI call. Raises ExecutionError."""
        size = len(data)
        before = perf_counter_ns()
        try:
            self._issue(self._handle, offset, (data, size, MPI.BYTE))
        except MPI.Exception as error:
            raise mpiio_error(self._call, str(self.path), error, f" of {size} bytes at offset {offset}") from error
        wrote = self._status.Get_count(MPI.BYTE) if size else 0
        self.meter.add_write(self._recorded, before, offset, size, wrote)
        if wrote != size:
            raise ExecutionError(f"{self._call} of {size} bytes at offset {offset} wrote {wrote} on {self.path}")

    def sync(self) -> None:
        """Make the file durable by MPI_File_sync; its time is in `meter.sync_ns`. Collective."""
        began = perf_counter_ns()
        try:
            with Stopwatch(self.meter, "sync_ns"):
                self._handle.Sync()
            self.meter.log_call(Call.MPI_SYNC, began)
        except MPI.Exception as error:
            raise mpiio_error("MPI_File_sync", str(self.path), error) from error

    def active_hints(self) -> dict[str, str]:
        """Return the hints of the open file."""
        return get_hints(self._handle)

    def close(self) -> None:
        """Close the file. Collective."""
        handle, self._handle = self._handle, MPI.FILE_NULL
        if handle != MPI.FILE_NULL:
            began = perf_counter_ns()
            with Stopwatch(self.meter, "close_ns"):
                close_file(handle, lambda: str(self.path))
            self.meter.log_call(Call.MPI_CLOSE, began)

    def _issue(self, handle: MPI.File, offset: int, spec: Spec) -> None:
        handle.Write_at(offset, spec, self._status)


class CollectiveWriter(IndependentWriter):
    """Writes by MPI_File_write_at_all: all ranks of `comm` call `write` together, some perhaps without data."""

    _call, _recorded = "MPI_File_write_at_all", Call.MPI_WRITE_ALL

    def _issue(self, handle: MPI.File, offset: int, spec: Spec) -> None:
        handle.Write_at_all(offset, spec, self._status)
