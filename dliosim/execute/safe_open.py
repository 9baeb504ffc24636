"""Make, open and close files: no link leads out of the root, no pipe blocks, no rank fails alone.

All descriptors of small files next to data, and of data that are not read through a `Reader`, are opened and closed
here. An error of closing a descriptor that was only read from says nothing about what was read, and is ignored. An
error of closing one that was written to is raised like that of a write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import call_error, wrap_call

_ASTRAY = {
    errno.ENOENT: "a symbolic link leads nowhere",
    errno.ENOTDIR: "a symbolic link leads nowhere",
    errno.ELOOP: "symbolic links lead in a circle",
}

#: Flags of every open: without O_NONBLOCK, opening a pipe or a device would wait for its other end.
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: Flags that make a file, or truncate an existing one.
CREATE_OR_TRUNCATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

_AT_ONCE = 1 << 20


def open_regular(path: str | Path, flags: int = os.O_RDONLY, folder: int | None = None) -> int:
    """Open a file, below the directory `folder` if that is given, and return a descriptor whose calls block as usual.

    Raises OSError as the calls do, and ExecutionError [R401] if it is not a regular file.
    """
    try:
        descriptor = os.open(path, flags | SAFE, 0o644, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENXIO:  # from a socket, and from a pipe without a reader
            raise file_kind_error("open", path, os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode) from error
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise file_kind_error("open", path, mode)
        # With O_NONBLOCK, Lustre would not wait for its locks, and io_uring may return EAGAIN.
        os.set_blocking(descriptor, True)
    except OSError:
        close_read([descriptor])
        raise
    return descriptor


def close_read(descriptors: Iterable[int]) -> None:
    """Close descriptors that were only read from; errors are ignored."""
    left = iter(descriptors)
    while True:
        try:
            deque(map(os.close, left), 0)
        except OSError:
            continue  # with the next one: this descriptor is closed in spite of the error
        return


@contextmanager
def open_for_read(path: str | Path, folder: int | None = None) -> Iterator[int]:
    """Open a file to read during the block, as `open_regular` does."""
    descriptor = open_regular(path, folder=folder)
    try:
        yield descriptor
    finally:
        close_read([descriptor])


@contextmanager
def open_for_write(path: Path, flags: int = CREATE_OR_TRUNCATE) -> Iterator[int]:
    """Open a file to write during the block, and close it at the end. Raises ExecutionError for errors of both."""
    try:
        descriptor = open_regular(path, flags)
    except OSError as error:
        raise call_error("open", str(path), error) from error
    try:
        yield descriptor
    except BaseException:
        close_read([descriptor])
        raise
    try:
        close_written(descriptor)
    except OSError as error:
        raise call_error("close", str(path), error) from error


def close_written(descriptor: int) -> None:
    """Close a descriptor that was written to. Raises OSError if the file system could not keep the data.

    A close that a signal interrupts is done: Linux frees the descriptor first, and what was written stays in the page
    cache. Only what was synced before is durable.
    """
    with suppress(InterruptedError):
        os.close(descriptor)


@contextmanager
def open_folder(directory: Path, follow: bool = False) -> Iterator[int]:
    """Open a directory during the block; it must not be a link unless `follow` is set. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(directory, flags if follow else flags | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        close_read([descriptor])


def read_pieces(descriptor: int, most: int) -> Iterator[bytes]:
    """Yield the content of a file from its beginning, but no more than `most` bytes of it. Raises OSError."""
    at = 0
    while data := os.pread(descriptor, min(most - at, _AT_ONCE), at):
        yield data
        at += len(data)


def write_file(path: Path, pieces: Iterable[bytes], durable: bool) -> int:
    """Make or overwrite a file, and return its bytes. Raises ExecutionError."""
    call, at = "write", 0
    with open_for_write(path) as descriptor:
        try:
            for piece in pieces:
                write_at(descriptor, piece, at)
                at += len(piece)
            if durable:
                call = "fsync"
                os.fsync(descriptor)
        except OSError as error:
            raise call_error(call, str(path), error) from error
    return at


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data` at an offset of a file, in as many calls as needed. Raises OSError."""
    left = memoryview(data)
    while left:
        wrote = os.pwrite(descriptor, left, offset)
        if wrote == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left, offset = left[wrote:], offset + wrote


def create_file(path: str) -> None:
    """Make a file, or truncate an existing one; ExecutionError if that fails or `path` is no file."""
    write_file(Path(path), (), durable=False)


def remove_file(path: str) -> None:
    """Remove a file before MPI_File_open makes it again.

    Raises ExecutionError if that fails, `path` is a link, or its directory is missing, which MPI would not name.
    """
    refuse_link(path)
    try:
        Path(path).unlink()
    except OSError as error:
        if error.errno != errno.ENOENT or not Path(path).parent.is_dir():
            raise call_error("unlink", path, error) from error


def refuse_link(path: str) -> None:
    """Raise ExecutionError if `path` is a link, which MPI_File_open would follow, or no file at all.

    MPICH opens a directory, and its Iread_at of one never completes; opening a pipe waits for a writer.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return  # MPI_File_open raises this, or makes the file
    except OSError as error:
        raise call_error("lstat", path, error) from error
    if not stat.S_ISREG(mode):
        raise file_kind_error("MPI_File_open", path, mode)


def require_file(path: Path) -> None:
    """Raise ExecutionError [R401] unless `path` is a file: a library would follow a link, or wait for a pipe."""
    with wrap_call("open", path, reading=True):
        mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        raise file_kind_error("open", path, mode)


def follow_links(root: str, name: str) -> tuple[str, int]:
    """Return the path below `root` that a name below it leads to by links, and the mode of that file.

    `root` is an absolute path without links. The returned path has no links, so it can be opened without following any.
    The kernel resolves the name (O_PATH), since this may be done for every sample, and following link after link would
    take longer. Raises ExecutionError [R401] if links lead nowhere, in a circle, or out of the root.
    """
    path = f"{root}/{name}"
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            real, mode = Path(f"/proc/self/fd/{descriptor}").readlink(), os.fstat(descriptor).st_mode
        finally:
            close_read([descriptor])
    except OSError as error:
        raise call_error("open", path, error, hint=_ASTRAY.get(error.errno or 0, ""), reading=True) from error
    if not real.is_relative_to(root):
        text = f"open refused on {path}: a symbolic link leads out of the root {root}, to {real}"
        raise ExecutionError(f"{text}; give a root that holds both by --dir, or --root NAME=DIR", "R401")
    return str(real.relative_to(root)), mode


def follow_to_file(root: str, name: str) -> str:
    """Return the path below `root` that a name leads to, as `follow_links`; ExecutionError [R401] if it is no file."""
    below, mode = follow_links(root, name)
    if not stat.S_ISREG(mode):
        raise ExecutionError(f"open refused on {root}/{name}: a symbolic link leads to {_kind_name(mode)}", "R401")
    return below


def file_kind_error(call: str, path: str | Path, mode: int) -> ExecutionError:
    """Return the error [R401] of a call on something that is no file, by its mode."""
    return ExecutionError(
        f"{call} refused on {path}: {_kind_name(mode)} stands where a file should be; move it away", "R401"
    )


def _kind_name(mode: int) -> str:
    return "a symbolic link" if stat.S_ISLNK(mode) else "a directory" if stat.S_ISDIR(mode) else "no regular file"
