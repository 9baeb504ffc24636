"""Access to bytes: sizes, order, alignment and repetition, by the definitions of Darshan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints, find_starts, merge_intervals, sort_groups
from dliosim.analyze.figures.view import View
from dliosim.trace.events import kind_number

#: Largest size of each of Darshan's bins, bytes; larger ones are in the last bin. And what Darshan calls the bins.
BIN_ENDS: Final = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30)
BIN_NAMES: Final = (
    "0-100 B", "100 B-1 KiB", "1-10 KiB", "10-100 KiB", "100 KiB-1 MiB",
    "1-4 MiB", "4-10 MiB", "10-100 MiB", "100 MiB-1 GiB", "1 GiB+",
)  # fmt: skip

#: Requests below this are small, bytes; one of this size is not.
SMALL: Final = 1 << 20

#: Offsets are aligned to this, bytes: a page, and a block of most file systems.
ALIGNMENT: Final = 4096

_COMMON = 4

_READ: Final = kind_number("read")
_NONBLOCKING: Final = re.compile(r"_i(read|write)|nonblocking|nb_", re.IGNORECASE)

#: Bytes of all files, one behind the other, beyond which places are no int64.
_MOST_PLACES: Final = 1 << 61


@dataclass(frozen=True, slots=True)
class Direction:
    """All reads, or all writes, of the lowest layer that each file has."""

    count: int  #: calls
    bytes: int  #: bytes that they moved
    seconds: float  #: sum of their durations on all ranks
    sized: int  #: calls whose size is known; `bins`, `common` and `small` are of these alone
    mean: float | None  #: mean size of a call; None if no size is known
    bins: tuple[int, ...]  #: calls in each of Darshan's bins of sizes
    common: tuple[tuple[int, int], ...]  #: the four commonest sizes, bytes, each with its calls
    small: int  #: calls below 1 MiB
    small_seconds: float  #: sum of their durations
    first: int  #: first calls of a process on a file, in each epoch where these are known: they follow nothing
    consecutive: int  #: calls that begin where the last one of the process on the file ended
    sequential: int  #: calls that begin there or later; consecutive ones among them
    random: int  #: calls that begin before the last one's end
    random_seconds: float  #: sum of their durations
    placed: int  #: calls whose offset is known; the order is known of these alone
    misaligned: int  #: calls of these whose offset is no multiple of 4096
    #: sum of their durations, each by the share of a block in the bytes with the block: what the block may cost
    misaligned_seconds: float
    again: int  #: bytes beyond those of all ranges once, over the job
    again_in_epoch: int | None  #: the same, within an epoch; None if no epochs are known
    shared: int  #: calls on files that several processes use
    extents: int  #: bytes of all ranges once
    from_device: int | None = None  #: bytes that devices gave, in a run of dliosim; None if that is not counted


@dataclass(frozen=True, slots=True)
class Access:
    """Reads, writes, and how often they alternate."""

    read: Direction  #: reads
    write: Direction  #: writes
    switches: int  #: calls of a process on a file that follow one in the other direction
    files: int  #: files with any operation
    shared_files: int  #: files that several processes read or write
    mpi_calls: int  #: reads and writes by MPI-IO
    shared_mpi_calls: int  #: those on shared files
    collective_calls: int  #: collective ones on shared files
    nonblocking_calls: int  #: calls by MPI-IO that do not wait
    stdio_bytes: int  #: bytes by stdio


def describe_access(view: View) -> Access:
    """Return how a trace's bytes were accessed."""
    events = view.events
    rows = np.flatnonzero(view.basic & events.is_kind("read", "write"))
    keys = events.process[rows].astype(np.int64) * (len(events.files) + 1) + events.file[rows] + 1
    order, starts = sort_groups(keys)
    rows = rows[order]  # by process, file and time
    follows = np.ones(len(rows), np.bool_)
    follows[starts] = False
    pairs = events.file[rows[starts]]  # of each process
    shared = np.bincount(pairs[pairs >= 0], minlength=len(events.files)) > 1
    reads = events.kind[rows] == _READ
    mpi = events.is_layer("mpi-io collective", "mpi-io") & events.is_kind("read", "write")
    mpi_shared = mpi & np.append(shared, False)[events.file]
    nonblocking = [index for index, name in enumerate(events.names) if _NONBLOCKING.search(name)]
    used = np.bincount(events.file[view.operations] + 1, minlength=1)[1:]
    return Access(
        _describe(view, rows[reads], shared),
        _describe(view, rows[~reads], shared),
        int((reads[1:] != reads[:-1])[follows[1:]].sum()),
        int((used > 0).sum()),
        int(shared.sum()),
        int(mpi.sum()),
        int(mpi_shared.sum()),
        int((mpi_shared & events.is_layer("mpi-io collective")).sum()),
        int((mpi & np.isin(events.name, nonblocking)).sum()),
        int(view.bytes[events.is_layer("stdio")].sum()),
    )


def _describe(view: View, rows: Ints, shared: Bools) -> Direction:
    """Return the figures of some rows of one direction, in order of process, file and time."""
    events = view.events
    size, duration, offset, file = view.bytes[rows], events.duration[rows], events.offset[rows], events.file[rows]
    sized = view.sizes[rows] >= 0
    known = size if sized.all() else size[sized]
    sizes, counts = np.unique(known, return_counts=True)
    most = np.lexsort((sizes, -counts))[:_COMMON]
    small = sized & (size < SMALL)
    placed = (offset >= 0) & (file >= 0) & ~view.copies[rows]
    misaligned = placed & (offset % ALIGNMENT != 0)
    # The first call of a process on a file in an epoch follows nothing: to read it from its start again is no jump.
    some = rows[placed]
    first = find_starts(events.process[some], events.file[some], events.epoch[some])
    ahead = np.zeros(len(some), np.int64)
    ahead[1:] = events.offset[some[1:]] - events.offset[some[:-1]] - view.bytes[some[:-1]]
    extents, again, again_in_epoch = _measure_repetition(view, some)
    backward = np.flatnonzero(placed)[~first & (ahead < 0)]
    return Direction(
        len(rows),
        int(size.sum()),
        int(duration.sum()) / 1e9,
        len(known),
        int(known.sum()) / len(known) if len(known) else None,
        tuple(np.bincount(np.searchsorted(BIN_ENDS, known), minlength=len(BIN_NAMES)).tolist()),
        tuple(zip(sizes[most].tolist(), counts[most].tolist(), strict=True)),
        int(small.sum()),
        int(duration[small].sum()) / 1e9,
        int(first.sum()),
        int((~first & (ahead == 0)).sum()),
        int((~first & (ahead >= 0)).sum()),
        len(backward),
        int(duration[backward].sum()) / 1e9,
        int(placed.sum()),
        int(misaligned.sum()),
        float((duration[misaligned] * (ALIGNMENT / (size[misaligned] + ALIGNMENT))).sum()) / 1e9,
        again,
        again_in_epoch,
        int(np.append(shared, False)[file].sum()),
        extents,
    )


def _measure_repetition(view: View, rows: Ints) -> tuple[int, int, int | None]:
    """Return the bytes of all ranges once, those beyond them, and those beyond the ranges of each epoch."""
    events = view.events
    size, file = view.bytes[rows], events.file[rows]
    ends = np.zeros(len(events.files), np.int64)
    np.maximum.at(ends, file, events.offset[rows] + size)
    total = sum(ends.tolist())
    if total > _MOST_PLACES:
        return 0, 0, None
    # All files one behind the other, so that a place is one number.
    place = (np.cumsum(ends) - ends)[file] + events.offset[rows]
    moved = int(size.sum())
    once = merge_intervals(place, place + size).length
    epoch = events.epoch[rows]
    if not len(rows) or epoch.min() < 0 or total * (int(epoch.max()) + 1) > _MOST_PLACES:
        return once, moved - once, None
    if epoch.min() == epoch.max():
        return once, moved - once, moved - once
    place += epoch * np.int64(total)
    return once, moved - once, moved - merge_intervals(place, place + size).length
