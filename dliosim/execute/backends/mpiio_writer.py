"""Files of MPI-IO: opened with hints, written by ranks alone or together, and what a failed call is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import storage_full_code
from dliosim.execute.mpi.world import find_first_error, run_on_first_rank
from dliosim.execute.safe_open import refuse_link
from dliosim.measure.board import process_row
from dliosim.measure.meter import Meter
from dliosim.model import Access

#: Memory, how many elements of it, and their type.
Spec = tuple[memoryview, int, MPI.Datatype]

#: What ROMIO says on ranks where a collective open went well, but not on another.
_ELSEWHERE = "on a remote node"

_CODES = {
    MPI.ERR_NO_SUCH_FILE: "R401",
    MPI.ERR_NO_SPACE: "R402",
    MPI.ERR_QUOTA: "R402",
}


class IndependentWriter:
    """Writes by MPI_File_write_at on a file opened by all ranks of `comm`; made and closed by all."""

    _call = "MPI_File_write_at"

    def __init__(self, access: Access, path: Path, comm: MPI.Intracomm) -> None:
        """Open a file, made if it is not there. Collective. Raises ExecutionError."""
        self.meter = Meter()
        self.path = path
        self._status = MPI.Status()
        self._handle: MPI.File | None = None
        before = perf_counter_ns()
        self._handle = open_file(comm, str(path), MPI.MODE_WRONLY | MPI.MODE_CREATE, access.hints)
        self.meter.open_ns += perf_counter_ns() - before
        self.meter.opens += 1

    def write(self, offset: int, data: memoryview) -> None:
        """See `Writer.write`."""
        size = len(data)
        before = perf_counter_ns()
        try:
            self._issue(self._require_handle(), offset, (data, size, MPI.BYTE))
        except MPI.Exception as error:
            raise mpiio_error(self._call, str(self.path), error, f" of {size} bytes at offset {offset}") from error
        meter = self.meter
        meter.call_ns.append(perf_counter_ns() - before)
        meter.calls += 1
        wrote = self._status.Get_count(MPI.BYTE) if size else 0
        meter.moved += wrote
        if wrote != size:
            raise ExecutionError(f"{self._call} of {size} bytes at offset {offset} wrote {wrote} on {self.path}")

    def sync(self) -> None:
        """MPI_File_sync; collective, timed in `meter.sync_ns`."""
        before = perf_counter_ns()
        try:
            self._require_handle().Sync()
        except MPI.Exception as error:
            raise mpiio_error("MPI_File_sync", str(self.path), error) from error
        self.meter.sync_ns += perf_counter_ns() - before

    def active_hints(self) -> dict[str, str]:
        """The hints of the file while it is open."""
        return get_hints(self._require_handle())

    def close(self) -> None:
        """Close. Collective."""
        before = perf_counter_ns()
        handle, self._handle = self._handle, None
        if handle is not None:
            close_file(handle, lambda: str(self.path))
        self.meter.close_ns += perf_counter_ns() - before

    def _issue(self, handle: MPI.File, offset: int, spec: Spec) -> None:
        handle.Write_at(offset, spec, self._status)

    def _require_handle(self) -> MPI.File:
        if self._handle is None:
            raise ExecutionError(f"{self.path} is closed")
        return self._handle


class CollectiveWriter(IndependentWriter):
    """Writes by MPI_File_write_at_all: all ranks of `comm` call `write` together, some perhaps with no data."""

    _call = "MPI_File_write_at_all"

    def _issue(self, handle: MPI.File, offset: int, spec: Spec) -> None:
        handle.Write_at_all(offset, spec, self._status)


def open_file(comm: MPI.Intracomm, path: str, mode: int, hints: tuple[tuple[str, str], ...]) -> MPI.File:
    """Open by all ranks of `comm`, with the hints as they are. Collective; ExecutionError on every rank if it fails."""
    makes = comm.size > 1 and mode & MPI.MODE_CREATE

    def prepare_file() -> None:
        refuse_link(path)
        if makes:
            # As ROMIO does where all ranks make a file together; but there they hang if the first one's close fails.
            close_file(_open(MPI.COMM_SELF, path, mode, hints), lambda: path)

    with process_row().collective_call(f"MPI_File_open of {path}"):
        run_on_first_rank(comm, prepare_file)
        return _open(comm, path, mode & ~MPI.MODE_CREATE if makes else mode, hints)


def _open(comm: MPI.Intracomm, path: str, mode: int, hints: tuple[tuple[str, str], ...]) -> MPI.File:
    info = MPI.Info.Create() if hints else MPI.INFO_NULL
    try:
        for key, value in hints:
            info.Set(key, value)
        return MPI.File.Open(comm, path, mode, info)
    except MPI.Exception as error:
        failure = mpiio_error("MPI_File_open", path, error)
        raise find_first_error(comm, failure, _ELSEWHERE not in failure.message) from error
    finally:
        if hints:
            info.Free()


def close_file(handle: MPI.File, path: Callable[[], str]) -> None:
    """Close. Collective over the ranks that opened it; raises ExecutionError, which alone needs `path`."""
    try:
        handle.Close()
    except MPI.Exception as error:
        raise mpiio_error("MPI_File_close", path(), error) from error


def get_hints(handle: MPI.File) -> dict[str, str]:
    """The hints that an open file has. Local."""
    info = handle.Get_info()
    try:
        return dict(info.items())
    finally:
        info.Free()


def mpiio_error(call: str, path: str, error: MPI.Exception, where: str = "") -> ExecutionError:
    """The error of an MPI-IO call; `where` is like ' of 4096 bytes at offset 0'."""
    text = " ".join(error.Get_error_string().split())
    # What has no room ROMIO calls an "other I/O error", and the reason stands in its text.
    code = _CODES.get(error.Get_error_class()) or storage_full_code(text)
    return ExecutionError(f"{call}{where} failed on {path}: {text}", code)
