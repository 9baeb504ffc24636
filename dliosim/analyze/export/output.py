"""The events of an export, and its file: written under another name, and renamed once it is whole."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools
from dliosim.errors import ExecutionError
from dliosim.trace.cut import TracePart
from dliosim.trace.events import UNKNOWN, Events

#: Bytes of text in a member of gzip, at least: a reader may begin at each.
_MEMBER: Final = 1 << 20
#: Speed counts more than a tenth of the bytes.
_LEVEL: Final = 1

#: The name that stands for standard output.
STANDARD: Final = "-"


class TextOutput:
    """Text that is written to a file, or as members of gzip."""

    def __init__(self, file: BinaryIO, is_gzip: bool) -> None:
        self._file, self._is_gzip = file, is_gzip
        self._pending = bytearray()
        #: bytes of text so far
        self.size = 0

    def write(self, text: str) -> None:
        """Write a text."""
        data = encode_text(text)
        self.size += len(data)
        if not self._is_gzip:
            self._file.write(data)
            return
        self._pending += data
        if len(self._pending) >= _MEMBER:
            self.flush()

    def flush(self) -> None:
        """Write what is kept for the next member of gzip."""
        if self._pending:
            self._file.write(gzip.compress(self._pending, _LEVEL, mtime=0))
            self._pending.clear()


def encode_text(text: str) -> bytes:
    """Return a text in UTF-8; names of files that are none as their bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Half of a pair, which only a trace of another program has.
        return text.encode("utf-8", "replace")


@contextmanager
def open_text(path: str) -> Iterator[TextOutput]:
    """Open a file for text, as members of gzip where its name ends in .gz; `-` is standard output.

    The file is there whole or not at all. Raises ExecutionError if it is there already, or cannot be written.
    """
    if path == STANDARD:
        sys.stdout.flush()
        yield TextOutput(sys.stdout.buffer, is_gzip=False)
        sys.stdout.buffer.flush()
        return
    with open_new(Path(path)) as file:
        output = TextOutput(file, path.endswith(".gz"))
        yield output
        output.flush()


@contextmanager
def open_new(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is there whole or not at all. Raises ExecutionError as `open_text`."""
    check_new(path)
    aside = path.with_name(f"{path.name}.partial")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except FileExistsError as error:
        raise ExecutionError(
            f"cannot write {path}: {aside} is there already, of an export that is under way or was killed"
            f"\n  = help: rm {aside}"
        ) from error
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if type(error) is ExecutionError or not isinstance(error, OSError):
            raise
        raise ExecutionError(f"cannot write {path}: {error.strerror or error}") from error


def check_new(path: Path) -> None:
    """Check that a file is not there. Raises ExecutionError."""
    if path.exists() or path.is_symlink():
        raise ExecutionError(f"cannot write {path}: it is there already\n  = help: name another file with -o")


def select_part(events: Events, part: TracePart) -> Events:
    """Return the events of a part: of its ranks, epochs and steps, and those under way in its times.

    Events outside epochs or steps are kept, as by `dliosim run --trace`.
    """
    cut = part.cut
    ranks = np.array([rank_of(events, number) for number in range(len(events.processes))], np.int64)
    rows = _is_in(ranks, cut.ranks)[events.process] if len(ranks) else np.ones(len(events), np.bool_)
    for column, limits in ((events.epoch, cut.epochs), (events.step, cut.steps)):
        rows &= (column == UNKNOWN) | _is_in(column, limits)
    if part.times is not None:
        first, last = part.times
        # An event is over at its end: of two parts that touch it is in one. One that takes no time is at its begin.
        rows &= (events.begin < last) & ((events.end > first) | (events.begin >= first))
    return events if rows.all() else events.select(rows)


def rank_of(events: Events, process: int) -> int:
    """Return the rank of a process, or its number in a trace that has no ranks."""
    rank = events.processes[process].rank
    return process if rank == UNKNOWN else rank


def _is_in(column: NDArray[np.signedinteger], limits: tuple[int, int]) -> Bools:
    return (column >= limits[0]) & (column <= limits[1])
