"""Calls, bytes and time by function, by kind of file, and by layer of a training job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints, group_rows, quantiles, unite_intervals
from dliosim.analyze.figures.view import METADATA, PURPOSES, View
from dliosim.trace.events import KINDS, LAYERS


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that a call moved; quantiles are of the calls that say how much."""

    min: float  #: smallest
    p25: float  #: a quarter of the calls moved at most this
    mean: float  #: mean
    median: float  #: half of the calls moved at most this
    p75: float  #: three quarters of the calls moved at most this
    max: float  #: largest


@dataclass(frozen=True, slots=True)
class Function:
    """All calls of one name in one layer."""

    name: str  #: what the source calls it
    layer: str  #: application, loader, reader, checkpoint, library, mpi-io collective, mpi-io, stdio or posix
    kind: str  #: what its first call is: open, close, read, write, fsync, seek, metadata, compute, ...
    count: int  #: calls
    seconds: float  #: sum of the durations of all calls on all ranks
    bytes: int  #: bytes that all calls moved
    sizes: Sizes | None  #: None if no call moves bytes
    p50: float  #: median of durations, s
    p99: float  #: 99 % of the calls took at most this, s
    max: float  #: longest, s


def list_functions(view: View) -> tuple[Function, ...]:
    """Return all functions, those that took longest first."""
    events = view.events
    found = []
    for _, rows in group_rows(events.name.astype(np.int32) * len(LAYERS) + events.layer):
        first = rows[0]
        durations, moved = events.duration[rows], events.moved[rows]
        times = (time / 1e9 for time in quantiles(durations, 0.5, 0.99, 1.0))
        kind = KINDS[events.kind[first]]
        moved = moved[moved >= 0] if kind in ("read", "write") else moved[:0]
        name = events.names[events.name[first]] if len(events.names) > events.name[first] >= 0 else kind
        about = name, LAYERS[events.layer[first]], kind, len(rows)
        sizes = _sizes(moved) if len(moved) else None
        found.append(Function(*about, int(durations.sum()) / 1e9, int(moved.sum()), sizes, *times))
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.name)))


def _sizes(moved: Ints) -> Sizes:
    low, quarter, half, most, high = quantiles(moved, 0.0, 0.25, 0.5, 0.75, 1.0)
    return Sizes(low, quarter, float(moved.sum() / len(moved)), half, most, high)


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
    """Return the end of a name that says what is in the file: `.npz`; empty if there is none."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix if len(suffix) <= _LONGEST and not suffix[1:].isdigit() else ""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a job. Of one that the trace does not have all figures are 0."""

    name: str  #: what DFAnalyzer calls it
    parent: str  #: the layer that it belongs to; empty for the first one
    events: int  #: events
    seconds: float  #: union of the intervals of a rank, mean over ranks
    per_second: float | None  #: events / union of all ranks' intervals; None if that is 0
    bytes: int  #: bytes that its calls moved; 0 if it moves none itself
    bytes_per_second: float | None  #: bytes / union of all ranks' intervals; None if that is 0
    overlap: float | None  #: share of its time within its parent's, on the same rank; None if one of them is absent


_PROCESSING: Final = ("decode", "preprocess")

#: Each layer with its parent and its events. A file's purpose is known by its path: `View.purpose_of`.
_JOB_LAYERS: Final[dict[str, tuple[str, Callable[[View], Bools]]]] = {
    "app": ("", lambda view: view.events.is_kind("phase")),
    "training": ("app", lambda view: view.events.is_kind("epoch")),
    "compute": ("training", lambda view: view.events.is_kind("compute")),
    "fetch data": ("training", lambda view: view.events.is_kind("data wait")),
    "data loader": ("fetch data", lambda view: view.events.is_kind("load")),
    "reader": ("data loader", lambda view: view.events.is_layer("reader") | view.events.is_kind(*_PROCESSING)),
    "reader I/O": ("reader", lambda view: view.purpose("data set") & view.basic),
    "checkpoint": ("training", lambda view: view.events.is_kind("save", "restore")),
    "checkpoint I/O": ("checkpoint", lambda view: view.purpose("checkpoint") & view.basic),
    "other I/O": ("", lambda view: view.purpose("other") & view.basic),
}


def list_layers(view: View) -> tuple[Layer, ...]:
    """Return all layers, also those that the trace does not have."""
    found, times = [], {}
    for name, (parent, select) in _JOB_LAYERS.items():
        rows = select(view)
        times[name] = view.unite(rows)
        own = [one.length for one in times[name]]
        all_ranks = unite_intervals(*times[name]).length / 1e9
        moved = int(view.bytes[rows].sum())
        overlap = None
        if parent and sum(own) and sum(one.length for one in times[parent]):
            both = zip(times[name], times[parent], strict=True)
            overlap = sum(one.intersect(around).length for one, around in both) / sum(own)
        events, mean = int(np.count_nonzero(rows)), sum(own) / max(len(own), 1) / 1e9
        rate, bandwidth = (events / all_ranks, moved / all_ranks or None) if all_ranks else (None, None)
        found.append(Layer(name, parent, events, mean, rate, moved, bandwidth, overlap))
    return tuple(found)
