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

_ASTRAY = {
    errno.ENOENT: "a symbolic link leads nowhere",
    errno.ENOTDIR: "a symbolic link leads nowhere",
    errno.ELOOP: "symbolic links lead in a circle",
}
_LONGEST_NOTE = 8192  # of an error, or of a path, of which Linux takes 4095 bytes


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


def follow(root: str, name: str) -> tuple[str, int]:
    """What a name below `root`, an absolute path without links, leads to by links: its path below it, and its mode.

    What opens that path follows no link any more. The system itself is asked, as it may be for every sample, and a walk
    from link to link would take longer. Raises ExecutionError [R401] where links lead nowhere, in a circle, or out of
    the root.
    """
    path = f"{root}/{name}"
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            real, mode = Path(f"/proc/self/fd/{descriptor}").readlink(), os.fstat(descriptor).st_mode
        finally:
            os.close(descriptor)
    except OSError as error:
        raise failed("open", path, error, hint=_ASTRAY.get(error.errno or 0, ""), reading=True) from error
    if not real.is_relative_to(root):
        text = f"open refused on {path}: a symbolic link leads out of the root {root}, to {real}"
        raise ExecutionError(f"{text}; give a root that holds both by --dir, or --root NAME=DIR", "R401")
    return str(real.relative_to(root)), mode


def follow_to_file(root: str, name: str) -> str:
    """As `follow`, to a file and nothing else."""
    below, mode = follow(root, name)
    if not stat.S_ISREG(mode):
        raise ExecutionError(f"open refused on {root}/{name}: a symbolic link leads to {_kind(mode)}", "R401")
    return below


def _kind(mode: int) -> str:
    return "a symbolic link" if stat.S_ISLNK(mode) else "a directory" if stat.S_ISDIR(mode) else "no regular file"


def first_alone(comm: MPI.Intracomm, action: Callable[[], str | None]) -> str:
    """Do something on the first rank of `comm` while the others wait; the path that it returns, on all. Collective.

    Its error is raised on all.
    """
    if comm.size == 1:
        return action() or ""
    note = np.zeros(_LONGEST_NOTE, np.uint8)
    if comm.rank == 0:
        try:
            text = b"+" + os.fsencode(action() or "")
        except ExecutionError as error:
            text = f"-{error.code or ''}\n{error.message}".encode(errors="surrogateescape")[:_LONGEST_NOTE]
        note[: len(text)] = np.frombuffer(text, np.uint8)
    wait(comm.Ibcast(note))
    said = note.tobytes().rstrip(b"\0")
    if said.startswith(b"+"):
        return os.fsdecode(said[1:])
    code, message = said[1:].decode(errors="replace").split("\n", 1)
    failure = ExecutionError(message, code or None)
    failure.shared = True
    raise failure
