"""Making and opening files so that ranks cannot empty each other's, leave the root by a link, or fail apart."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.faults import failed
from dliosim.execute.world import wait

_LONGEST_ERROR = 4096


def create_file(path: str) -> None:
    """Make a file, or empty the one that is there; ExecutionError if that fails or `path` is a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        os.close(os.open(path, flags, 0o644))
    except OSError as error:
        raise failed("open", path, error) from error


def remove_file(path: str) -> None:
    """Remove a file that MPI_File_open is to make anew.

    ExecutionError if that fails, `path` is a link, or there is no directory for it, which MPI would not name.
    """
    refuse_link(path)
    try:
        Path(path).unlink()
    except OSError as error:
        if error.errno != errno.ENOENT or not Path(path).parent.is_dir():
            raise failed("unlink", path, error) from error


def refuse_link(path: str) -> None:
    """Raise ExecutionError if `path` is a link, which MPI_File_open would follow, or no file at all.

    MPICH opens a directory, and its Iread_at of one is never complete; opening a pipe waits for whoever writes to it.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return  # MPI_File_open says so, or makes it
    except OSError as error:
        raise failed("lstat", path, error) from error
    if not stat.S_ISREG(mode):
        text = f"MPI_File_open refused on {path}: {_kind(mode)} stands where a file should be"
        raise ExecutionError(text, "R401")


def require_file(path: Path) -> None:
    """Raise ExecutionError [R401] unless `path` is a file: a library would follow a link, or wait for a pipe."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise failed("open", str(path), error, reading=True) from error
    if not stat.S_ISREG(mode):
        raise ExecutionError(f"open refused on {path}: {_kind(mode)} stands where a file should be", "R401")


def _kind(mode: int) -> str:
    return "a symbolic link" if stat.S_ISLNK(mode) else "a directory" if stat.S_ISDIR(mode) else "no regular file"


def first_alone(comm: MPI.Intracomm, action: Callable[[], None]) -> None:
    """Do something on the first rank of `comm` while the others wait; its error is raised on all. Collective."""
    if comm.size == 1:
        action()
        return
    failure: ExecutionError | None = None
    if comm.rank == 0:
        try:
            action()
        except ExecutionError as error:
            failure = error
    failure = _told_by(comm, 0, failure)
    if failure is not None:
        raise failure


def same_error(comm: MPI.Intracomm, error: ExecutionError, is_own: bool) -> ExecutionError:
    """Of the errors that all ranks of `comm` have met in one call, that of the first which met it itself (`is_own`).

    The others know no more than that. Collective.
    """
    if comm.size == 1:
        return error
    first = np.array([comm.rank if is_own else comm.size], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, first, MPI.MIN))
    source = int(first[0]) % comm.size
    own = ExecutionError(f"rank {source} of the {comm.size} that open it: {error.message}", error.code)
    return _told_by(comm, source, own if comm.rank == source else None) or error


def _told_by(comm: MPI.Intracomm, source: int, error: ExecutionError | None) -> ExecutionError | None:
    """The error that rank `source` has, if any, on every rank, each of which knows that all have it. Collective."""
    note = np.zeros(_LONGEST_ERROR, np.uint8)
    if error is not None:
        text = f"{error.code or ''}\n{error.message}".encode()[:_LONGEST_ERROR]
        note[: len(text)] = np.frombuffer(text, np.uint8)
    wait(comm.Ibcast(note, source))
    if not note[0]:
        return None
    code, message = note.tobytes().rstrip(b"\0").decode(errors="replace").split("\n", 1)
    told = ExecutionError(message, code or None)
    told.shared = True
    return told
