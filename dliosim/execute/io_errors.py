"""The errors of failed calls: one message that names the call, the file, the offset and the reason."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dliosim.errors import HELP, ExecutionError

_DAMAGED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ESPIPE}

_KINDS = {
    errno.EISDIR: "a directory stands where a file should be; move it away",
    errno.ELOOP: "a symbolic link stands where a file should be",
    errno.ESPIPE: "no regular file stands where a file should be",
}

#: The remedy for data that could not be read.
_TRY_AGAIN = "nothing proves that it is damaged: see why it cannot be read, and try again"

#: Error numbers of a system without room.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}


def is_damage(error: OSError) -> bool:
    """Return whether a failed call proves that data are not what was written: a file is missing, or is no file.

    All else (EIO, ESTALE, EACCES, EMFILE, ENOMEM, ...) proves nothing about the data: the next read may succeed. Nor
    does an [R401] that such a call has caused, as in h5py. ENXIO is what opening a socket fails with.
    """
    if isinstance(error, ExecutionError):
        return error.code == "R401" and getattr(error.__cause__, "errno", None) in {None, errno.ENXIO, *_DAMAGED}
    return error.errno in _DAMAGED


def error_reason(error: OSError) -> str:
    """Return the reason of a failed call, in words."""
    if isinstance(error, ExecutionError):
        return error.message
    return os.strerror(error.errno) if error.errno else str(error)


def call_error(
    call: str, path: str, error: OSError, where: str = "", hint: str = "", reading: bool = False
) -> ExecutionError:
    """Return the error of a system call; `where` is like ' of 4096 bytes at offset 0'.

    Its code is R402 if there is no room, and with `reading` R401 if it proves damage. An ExecutionError, which is
    an OSError too, already has all of that and is returned unchanged.
    """
    if isinstance(error, ExecutionError):
        return error
    hint = hint or _KINDS.get(error.errno or 0, "")
    message = f"{call}{where} failed on {path}: {error_reason(error)}" + (f" ({hint})" if hint else "")
    if error.errno in NO_ROOM:
        return ExecutionError(message, "R402")
    return ExecutionError(message, "R401" if reading and is_damage(error) else None)


def unreadable_error(failure: ExecutionError, instead: str = "") -> ExecutionError:
    """Return the error as one [R401] of data that may be whole; `instead` is another remedy."""
    text = f"{failure.message}: {_TRY_AGAIN}" + (f", or {instead}" if instead else "")
    return ExecutionError(text, failure.code or "R401")


@contextmanager
def wrap_call(call: str, path: Path | str, reading: bool = False) -> Iterator[None]:
    """Make each OSError of the block, which makes one system call, an ExecutionError with the call and the file.

    One that is an ExecutionError already, as of a block inside, stays. `reading` as in `call_error`.
    """
    try:
        yield
    except ExecutionError:
        raise
    except OSError as error:
        raise call_error(call, str(path), error, reading=reading) from error


def rank_0_error(doing: str, error: OSError, cure: str = "") -> ExecutionError:
    """Return the error of something that rank 0 does for all, and its `cure`; R402 if there is no room."""
    place = f": {error.filename}" if error.filename else ""
    code = "R402" if error.errno in NO_ROOM else None
    help_line = f"{HELP}{cure}" if cure else ""
    return ExecutionError(f"rank 0 could not {doing}{place}: {error.strerror or error}{help_line}", code)


def truncation_error(call: str, path: str, offset: int, length: int, got: int) -> ExecutionError:
    """Return the error of a read that returned less than was planned, and then nothing more.

    It is R401 if the file is too short. If the file has more bytes it is a short read, without a code.
    """
    with suppress(OSError):
        size = Path(path).stat().st_size
        if size > offset + got:
            text = f"{call} of {length} bytes at offset {offset} returned {got} on {path}, which has {size} bytes"
            return ExecutionError(f"{text}: the file system ended the read before the file does")
    return ExecutionError(
        f"{call} of {length} bytes at offset {offset} returned {got} on {path}: the file is shorter than planned "
        "(truncated, or not yet completely prepared)",
        "R401",
    )


def storage_full_code(text: str) -> str | None:
    """Return R402 if the text of a library says that there is no room, else None."""
    return "R402" if any(os.strerror(number) in text for number in NO_ROOM) else None
