"""Files of MPI-IO, which readers and writers share: opened with hints, closed, and the errors of their calls."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import NO_ROOM, storage_full_code
from dliosim.execute.mpi.world import find_first_error, run_on_first_rank
from dliosim.execute.safe_open import refuse_link
from dliosim.measure.progress.board import process_row

#: Memory, number of elements, and their datatype.
Spec = tuple[memoryview, int, MPI.Datatype]

#: ROMIO's text on ranks that succeeded in a collective open that failed on another rank.
_ELSEWHERE = "on a remote node"

_CODES = {
    MPI.ERR_NO_SUCH_FILE: "R401",
    MPI.ERR_NO_SPACE: "R402",
    MPI.ERR_QUOTA: "R402",
}

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
