"""Files of MPI-IO: opened with hints, written independently or collectively, closed, and the errors of their calls."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import time_call
from dliosim.execute.io_errors import NO_ROOM, storage_full_code
from dliosim.execute.mpi.world import find_first_error, run_on_first_rank
from dliosim.execute.safe_open import refuse_link
from dliosim.measure.progress.board import process_row
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access
from dliosim.trace.calls import Call

#: Memory, number of elements, and their datatype.
Spec = tuple[memoryview, int, MPI.Datatype]

#: ROMIO's text on ranks that succeeded in a collective open that failed on another rank.
_ELSEWHERE = "on a remote node"

_CODES = {MPI.ERR_NO_SUCH_FILE: "R401", MPI.ERR_NO_SPACE: "R402", MPI.ERR_QUOTA: "R402"}

#: What Open MPI's own MPI-IO (OMPIO) reports for most failed system calls: "known error not in list".
_UNNAMED = {MPI.ERR_OTHER, MPI.ERR_UNKNOWN}

#: Error numbers that the failed call is taken to have left. Others may be from a call that was expected to fail.
_REASONS = NO_ROOM | {errno.EIO, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT}
_REASONS |= {errno.EACCES, errno.EPERM, errno.ENOLCK, errno.EREMOTEIO, errno.ENODEV, errno.ENXIO, errno.EBADF}

_errno_location = ctypes.CDLL(None).__errno_location
_errno_location.restype = ctypes.POINTER(ctypes.c_int)


def open_file(comm: MPI.Intracomm, path: str, mode: int, hints: tuple[tuple[str, str], ...]) -> MPI.File:
    """Open a file on all ranks of `comm` with these hints. Collective; raises ExecutionError on every rank."""
    makes = comm.size > 1 and mode & MPI.MODE_CREATE

    def prepare_file() -> None:
        refuse_link(path)
        if makes:
            # The first rank creates the file alone, as ROMIO does inside a collective open. But there all ranks wait
            # forever if the first one's close fails.
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
    """Close a file. Collective over the ranks that opened it. Raises ExecutionError, which names `path()`."""
    try:
        handle.Close()
    except MPI.Exception as error:
        raise mpiio_error("MPI_File_close", path(), error) from error


def get_hints(handle: MPI.File) -> dict[str, str]:
    """Return the hints of an open file. Local."""
    info = handle.Get_info()
    try:
        return dict(info.items())
    finally:
        info.Free()


def mpiio_error(call: str, path: str, error: MPI.Exception, where: str = "") -> ExecutionError:
    """Return the error of an MPI-IO call; `where` is like ' of 4096 bytes at offset 0'."""
    last = _errno_location().contents.value  # of this thread; before anything else can fail
    text = " ".join(error.Get_error_string().split())
    if error.Get_error_class() in _UNNAMED and last in _REASONS:
        text = f"{os.strerror(last)} ({text})"
    # ROMIO reports missing space as an "other I/O error"; only its text has the reason.
    code = _CODES.get(error.Get_error_class()) or storage_full_code(text)
    return ExecutionError(f"{call}{where} failed on {path}: {text}", code)


class IndependentWriter:
    """Writes by MPI_File_write_at to a file that all ranks of `comm` open and close together."""

    _call, _recorded = "MPI_File_write_at", Call.MPI_WRITE

    def __init__(self, access: Access, path: Path, comm: MPI.Intracomm) -> None:
        """Open a file, and create it if it does not exist. Collective. Raises ExecutionError."""
        self.meter = Meter(lambda _: str(path))
        self.path = path
        self._status = MPI.Status()
        with time_call(self.meter, "open_ns", Call.MPI_OPEN):
            self._handle = open_file(comm, str(path), MPI.MODE_WRONLY | MPI.MODE_CREATE, access.hints)
        self.meter.opens += 1

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
        try:
            with time_call(self.meter, "sync_ns", Call.MPI_SYNC):
                self._handle.Sync()
        except MPI.Exception as error:
            raise mpiio_error("MPI_File_sync", str(self.path), error) from error

    def active_hints(self) -> dict[str, str]:
        """Return the hints of the open file."""
        return get_hints(self._handle)

    def close(self) -> None:
        """Close the file. Collective."""
        handle, self._handle = self._handle, MPI.FILE_NULL
        if handle != MPI.FILE_NULL:
            with time_call(self.meter, "close_ns", Call.MPI_CLOSE):
                close_file(handle, lambda: str(self.path))

    def _issue(self, handle: MPI.File, offset: int, spec: Spec) -> None:
        handle.Write_at(offset, spec, self._status)


class CollectiveWriter(IndependentWriter):
    """Writes by MPI_File_write_at_all: all ranks of `comm` call `write` together, some perhaps without data."""

    _call, _recorded = "MPI_File_write_at_all", Call.MPI_WRITE_ALL

    def _issue(self, handle: MPI.File, offset: int, spec: Spec) -> None:
        handle.Write_at_all(offset, spec, self._status)
