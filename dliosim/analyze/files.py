"""Files by what they are for and by the end of their names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.view import METADATA, PURPOSES, View

#: Longer endings are no kinds of files, but numbers.
_LONGEST = 12


@dataclass(frozen=True, slots=True)
class FileKind:
    """All files of one purpose whose names end in the same way."""

    purpose: str  #: data set, checkpoint or other
    suffix: str  #: `.npz`; empty for names without one
    files: int  #: files with at least one operation
    opens: int  #: opens
    metadata: int  #: operations that move no bytes, opens among them
    read: int  #: bytes read
    written: int  #: bytes written
    seconds: float  #: sum of the durations of all operations on all ranks


def list_files(view: View) -> tuple[FileKind, ...]:
    """Return the kinds of files, those that took longest first."""
    events = view.events
    rows = np.flatnonzero(view.basic & (events.file >= 0))
    file, count = events.file[rows], len(events.files)
    kinds: dict[tuple[int, str], int] = {}
    purposes = view.purpose_of.tolist()
    numbers = [
        kinds.setdefault((purpose, file_suffix(path)), len(kinds))
        for purpose, path in zip(purposes, events.files, strict=True)
    ]
    kind_of = np.array(numbers, np.int64).reshape(-1)

    def add_up(weights: NDArray[Any]) -> list[float]:
        of_files = np.bincount(file, weights, count)
        sums: list[float] = np.bincount(kind_of, of_files, len(kinds)).tolist()
        return sums

    read, written = (np.where(events.is_kind(kind)[rows], view.bytes[rows], 0) for kind in ("read", "write"))
    used = np.bincount(kind_of, np.bincount(file, minlength=count) > 0, len(kinds)).tolist()
    columns = (
        used,
        add_up(events.is_kind("open")[rows]),
        add_up(events.is_kind(*METADATA)[rows]),
        add_up(read),
        add_up(written),
        add_up(events.duration[rows]),
    )
    found = [
        FileKind(PURPOSES[purpose], suffix, int(uses), int(opens), int(metadata), int(read), int(written), time / 1e9)
        for (purpose, suffix), uses, opens, metadata, read, written, time in zip(kinds, *columns, strict=True)
        if uses
    ]
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.purpose, one.suffix)))


def file_suffix(path: str) -> str:
    """Return the end of a name that says what is in the file: `.npz`; empty where there is none."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix if len(suffix) <= _LONGEST and not suffix[1:].isdigit() else ""
