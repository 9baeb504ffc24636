"""Files by what they are for and by the end of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

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
    read, written = (np.where(events.is_kind(kind)[rows], view.bytes[rows], 0) for kind in ("read", "write"))
    opens, metadata = events.is_kind("open")[rows], events.is_kind(*METADATA)[rows]
    sums = [
        np.bincount(events.file[rows], column, len(events.files))
        for column in (opens, metadata, read, written, events.duration[rows] / 1e9)
    ]
    used = np.unique(events.file[rows]).tolist()
    columns = np.stack(sums, axis=1)[used].tolist()
    return sum_kinds([events.files[number] for number in used], view.purpose_of[used].tolist(), columns)


def sum_kinds(
    paths: Sequence[str], purposes: Sequence[int], columns: Sequence[Sequence[float]]
) -> tuple[FileKind, ...]:
    """Return the kinds of files, those that took longest first; a path may be there several times.

    `columns` has opens, operations without bytes, bytes read and written, and time in s of each path.
    """
    sums: dict[tuple[int, str], list[float]] = {}
    names: dict[tuple[int, str], set[str]] = {}
    for path, purpose, values in zip(paths, purposes, columns, strict=True):
        kind = (purpose, file_suffix(path))
        sums[kind] = [a + b for a, b in zip(sums.get(kind, [0.0] * 5), values, strict=True)]
        names.setdefault(kind, set()).add(path)
    found = [
        FileKind(
            PURPOSES[kind[0]], kind[1], len(names[kind]), round(opens), round(calls), round(read), round(wrote), time
        )
        for kind, (opens, calls, read, wrote, time) in sums.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.purpose, one.suffix)))


def file_suffix(path: str) -> str:
    """Return the end of a name that says what is in the file: `.npz`; empty where there is none."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix if len(suffix) <= _LONGEST and not suffix[1:].isdigit() else ""
