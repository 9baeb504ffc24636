"""Calls of the operating system that fail on files of one name, whatever else goes well."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

#: What a call may fail with that proves nothing of what it was to read.
NO_PROOF = (
    errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EAGAIN,
    errno.ETIMEDOUT, errno.EREMOTEIO, errno.EBUSY, errno.ENODEV,
)  # fmt: skip


def _name(given: object) -> str:
    if not isinstance(given, int):
        return str(given)
    with suppress(OSError):
        return str(Path(f"/proc/self/fd/{given}").readlink())
    return ""


@contextmanager
def shrinking() -> Iterator[None]:
    """A block in which a file is cut to its half each time when somebody has looked how large it is."""
    real = os.fstat

    def look(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        os.truncate(f"/proc/self/fd/{descriptor}", found.st_size // 2)
        return found

    with mock.patch.object(os, "fstat", look):
        yield


@contextmanager
def failing(call: str, number: int, where: str) -> Iterator[list[str]]:
    """A block in which `os.<call>` fails with an error number for paths, and descriptors of such, that match `where`.

    A `close` that fails has closed all the same, as on Linux. The list has what it failed on.
    """
    real = getattr(os, call)
    failed: list[str] = []

    def attempt(first: Any, *more: Any, **named: Any) -> Any:
        name = _name(first)
        if not re.search(where, name):
            return real(first, *more, **named)
        if call == "close":
            real(first)
        failed.append(name)
        raise OSError(number, os.strerror(number), first if isinstance(first, str) else None)

    with mock.patch.object(os, call, attempt):
        yield failed
