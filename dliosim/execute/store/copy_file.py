"""Copy runs of a file to the same offsets of another one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter_ns
from typing import TypeAlias

from dliosim.execute.io_errors import truncation_error, wrap_call
from dliosim.execute.safe_open import open_for_read, open_for_write
from dliosim.trace.calls import Call
from dliosim.trace.recorder import open_log

#: Called after each piece with its bytes, and the ns of its read and of its writes.
Count: TypeAlias = Callable[[int, int, int], None]


def copy_file(
    source: Path,
    target: Path,
    runs: Iterable[tuple[int, int]] | None,
    buffer: memoryview,
    count: Count,
    fsync: bool,
    flags: int = os.O_WRONLY | os.O_CREAT,
) -> int:
    """Copy the runs (offset, bytes) of a file, or with None all of it; return the ns of its fsync, 0 without.

    Other ranks may be writing the target, too, unless `flags` truncate it. Raises ExecutionError.
    """
    log = open_log(lambda file: str((source, target)[file]), Call.READ)
    with open_for_write(target, flags) as to:
        with wrap_call("open", source, reading=True), open_for_read(source) as of:
            for begin, length in [(0, os.fstat(of).st_size)] if runs is None else runs:
                at, end = begin, begin + length
                while at < end:
                    begun = perf_counter_ns()
                    with wrap_call("preadv", source):
                        got = os.preadv(of, [buffer[: end - at]], at)
                    if log is not None:
                        log.add_call(Call.READ, begun, 0, at, end - at, got)
                    if not got:
                        raise truncation_error("preadv", str(source), at, end - at, got)
                    read = perf_counter_ns()
                    done = 0
                    while done < got:
                        now = perf_counter_ns()
                        with wrap_call("pwrite", target):
                            wrote = os.pwrite(to, buffer[done:got], at + done)
                            if wrote == 0:
                                raise OSError(errno.EIO, os.strerror(errno.EIO))
                        if log is not None:
                            log.add_call(Call.WRITE, now, 1, at + done, got - done, wrote)
                        done += wrote
                    at += got
                    count(got, read - begun, perf_counter_ns() - read)
        if not fsync:
            return 0
        begun = perf_counter_ns()
        with wrap_call("fsync", target):
            os.fsync(to)
        if log is not None:
            log.add_call(Call.FSYNC, begun, 1)
        return perf_counter_ns() - begun
