"""What a failed call is called: one message that names the call, the file, the place and the reason."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dliosim.errors import ExecutionError

_DAMAGED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ESPIPE}

_KINDS = {
    errno.EISDIR: "a directory stands where a file should be; move it away",
    errno.ELOOP: "a symbolic link stands where a file should be",
    errno.ESPIPE: "no regular file stands where a file should be",
}

#: What to do about something that could not be read.
_TRY_AGAIN = "nothing proves that it is damaged: see why it cannot be read, and try again"

#: What the system says where there is no room.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}


def is_damage(error: OSError) -> bool:
    """Whether a call that failed proves that data are not what was written: a file is not there, or no file.

    All else (EIO, ESTALE, EACCES, EMFILE, ENOMEM, ...) says nothing of the data, which may be read the next time.
    """
    return error.errno in _DAMAGED or (isinstance(error, ExecutionError) and error.code == "R401")


def error_reason(error: OSError) -> str:
    """Why a call failed, in words."""
    if isinstance(error, ExecutionError):
        return error.message
    return os.strerror(error.errno) if error.errno else str(error)


def call_error(
    call: str, path: str, error: OSError, where: str = "", hint: str = "", reading: bool = False
) -> ExecutionError:
    """The error of a system call; `where` is like ' of 4096 bytes at offset 0'.

    Its code is R402 where there is no room, and with `reading` R401 where it is proof of damage. An ExecutionError,
    which is an OSError too, says all of that already, and is returned as it is.
    """
    if isinstance(error, ExecutionError):
        return error
    hint = hint or _KINDS.get(error.errno or 0, "")
    message = f"{call}{where} failed on {path}: {error_reason(error)}" + (f" ({hint})" if hint else "")
    if error.errno in NO_ROOM:
        return ExecutionError(message, "R402")
    return ExecutionError(message, "R401" if reading and is_damage(error) else None)


def unreadable_error(failure: ExecutionError, instead: str = "") -> ExecutionError:
    """The same error as one [R401] of data that may be whole; `instead` is what else can be done about it."""
    text = f"{failure.message}: {_TRY_AGAIN}" + (f", or {instead}" if instead else "")
    return ExecutionError(text, failure.code or "R401")


@contextmanager
def wrap_call(call: str, path: Path) -> Iterator[None]:
    """A block that makes one system call: what that raises is an ExecutionError, which names the call and the file."""
    try:
        yield
    except OSError as error:
        raise call_error(call, str(path), error) from error


def rank_0_error(doing: str, error: OSError) -> ExecutionError:
    """The error of something that rank 0 does for all; R402 where there is no room."""
    place = f": {error.filename}" if error.filename else ""
    code = "R402" if error.errno in NO_ROOM else None
    return ExecutionError(f"rank 0 could not {doing}{place}: {error.strerror or error}", code)


def truncation_error(call: str, path: str, offset: int, length: int, got: int) -> ExecutionError:
    """The error of a read that returned less than was planned, and nothing more when it was gone on with.

    It is a short read, and no proof [R401] of a file cut short, where the file has more bytes than that.
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
    """The code R402 if that is why something failed, says a library's text."""
    return "R402" if any(os.strerror(number) in text for number in NO_ROOM) else None
