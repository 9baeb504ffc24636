"""What a failed call is called: one message that names the call, the file, the place and the reason."""

from __future__ import annotations

import errno
import os

from dliosim.errors import ExecutionError

_DAMAGED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}

#: What the system says where there is no room.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}


def failed(
    call: str, path: str, error: OSError, where: str = "", hint: str = "", reading: bool = False
) -> ExecutionError:
    """The error of a system call; `where` is like ' of 4096 bytes at offset 0'.

    Its code is R402 where there is no room, and with `reading` R401 where the data are not what was prepared. An
    ExecutionError, which is an OSError too, says all of that already, and is returned as it is.
    """
    if isinstance(error, ExecutionError):
        return error
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.ELOOP:
        hint = hint or "a symbolic link stands where a file should be"
    message = f"{call}{where} failed on {path}: {reason}" + (f" ({hint})" if hint else "")
    if error.errno in NO_ROOM:
        return ExecutionError(message, "R402")
    return ExecutionError(message, "R401" if reading and error.errno in _DAMAGED else None)


def failed_on(doing: str, error: OSError) -> ExecutionError:
    """The error of something that rank 0 does for all; R402 where there is no room."""
    reason = error.strerror or str(error)
    place = f": {error.filename}" if error.filename else ""
    code = "R402" if error.errno in NO_ROOM else None
    return ExecutionError(f"rank 0 could not {doing}{place}: {reason}", code)


def truncated(call: str, path: str, offset: int, length: int, got: int) -> ExecutionError:
    """The error of a read that met the end of the file before it had what was planned."""
    return ExecutionError(
        f"{call} of {length} bytes at offset {offset} returned {got} on {path}: the file is shorter than planned "
        "(truncated, or not yet completely prepared)",
        "R401",
    )


def no_room(text: str) -> str | None:
    """The code R402 if that is why something failed, says a library's text."""
    return "R402" if any(os.strerror(number) in text for number in NO_ROOM) else None
