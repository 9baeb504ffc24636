"""The files of data sets, in families by their names, and the reads of each family."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints
from dliosim.analyze.figures.view import PURPOSES, View
from dliosim.analyze.infer.reads import find_spans, lanes_of
from dliosim.analyze.read.darshan.counters import LogTrace
from dliosim.readable import count

#: Folders from this number on next to each other, with files of one ending, are the classes of one data set.
_CLASSES: Final = 4
#: The share of a file's reads, or bytes, that makes what they are sure.
_SURE: Final = 0.9
#: Calls this many times as small as those that read half of the bytes are of headers, if they are few bytes.
_SMALL: Final = 64
#: Entries of a folder that are looked at for files that were not read, at most.
_MOST_ENTRIES: Final = 100_000


def find_data(view: View, reads: Bools) -> Bools:
    """Return which files are data: by their paths, or if most reads of one named as a checkpoint are within epochs."""
    events, spans = view.events, np.flatnonzero(view.events.is_kind("epoch"))
    rows = np.flatnonzero(reads)
    inside = find_spans(view, spans, view.groups_of(rows), events.begin[rows]) >= 0
    files = len(events.files)
    times, within = (np.bincount(events.file[some], minlength=files) for some in (rows, rows[inside]))
    is_read = (view.purpose_of == PURPOSES.index("checkpoint")) & (within > _SURE * times)
    found: Bools = is_read | (view.purpose_of == PURPOSES.index("data set"))
    return found


def number_families(paths: tuple[str, ...]) -> Ints:
    """Return the number of each file's family: files of one ending, in folders that differ by numbers or are many."""
    places = [(path.rpartition("/")[0], find_suffix(path)) for path in paths]
    plain = {folder: _hide_numbers(folder) for folder in {folder for folder, _ in places}}
    siblings: dict[tuple[str, str], set[str]] = defaultdict(set)
    for folder, suffix in places:
        siblings[plain[folder].rpartition("/")[0], suffix].add(plain[folder])
    known: dict[tuple[str, str], int] = {}
    found = []
    for folder, suffix in places:
        parent = plain[folder].rpartition("/")[0]
        is_class = len(siblings[parent, suffix]) >= _CLASSES
        found.append(known.setdefault((f"{parent}/*" if is_class else plain[folder], suffix), len(known)))
    return np.array(found, np.int64)


def find_suffix(path: str) -> str:
    """Return the ending of a file's name if it is a plain one: others may be names."""
    match = re.search(r"[^/](\.[A-Za-z][A-Za-z0-9]{0,9})$", path)
    return match[1].lower() if match else ""


@dataclass(frozen=True, slots=True)
class FileCalls:
    """The reads of a data set, and what the trace shows of its files."""

    paths: tuple[str, ...]  #: files, in order
    unread: tuple[str, ...]  #: files next to these that are here, but not in the trace
    place: Ints  #: number of each file of the trace among these; -1 for others
    rows: Ints  #: reads by rank, thread and time
    contents: Ints  #: the same, of contents alone
    ends: Ints  #: bytes of each file, as far as it was read or written before
    farthest: Ints  #: where in each file calls have moved, at most
    were_written: bool  #: calls of the trace made some of the files
    are_lost: bool  #: offsets are wrong, as calls that move in the files are missing

    @property
    def doubt(self) -> str:
        """Return why there may be other files; empty if nothing shows it."""
        return f"{count(len(self.unread), 'file')} next to them not read" if self.unread else ""


def list_calls(view: View, is_own: Bools, reads: Bools) -> FileCalls:
    """Return the reads of a family of files, without settings that are next to data."""
    events, rows = view.events, np.flatnonzero(is_own & reads)
    rows = rows[np.lexsort((events.begin[rows], lanes_of(view, rows), view.groups_of(rows)))]
    within = events.epoch[rows] >= 0
    rows = rows[within] if within.mean() > _SURE else rows  # some are read once more before the first epoch
    contents = rows[_is_content(view, rows)]
    used, content = np.unique(events.file[rows]), np.unique(events.file[contents])
    # What was written before may be data that were not read; what was written later is another thing.
    written = is_own & events.is_kind("write") & _come_before(view, rows)
    early = np.unique(events.file[written & (events.begin < events.begin[contents].min())])
    # A file that has nothing but small reads is a setting next to one of data, and a small sample of many.
    used = np.union1d(used if len(content) > _SURE * len(used) else content, np.setdiff1d(early, used))
    written &= np.isin(events.file, used)
    order = sorted(used.tolist(), key=lambda number: events.files[number])
    place = np.full(len(events.files), -1, np.int64)
    place[order] = np.arange(len(order))
    rows = rows[place[events.file[rows]] >= 0]
    seeks = np.flatnonzero(is_own & events.is_kind("seek") & np.isin(events.file, used))
    was_read, wrote, farthest = np.zeros((3, len(order)), np.int64)
    for ends, some, size in (
        (was_read, rows, _extents_of(view, rows, place[events.file[rows]])),
        (wrote, np.flatnonzero(written), view.sizes[written]),
        (farthest, seeks, 0),
    ):
        np.maximum.at(ends, place[events.file[some]], np.maximum(events.offset[some], 0) + size)
    known = wrote[place[events.file[contents]]]
    # DFTracer says no offsets. If what follows from its calls is behind all that was written, some calls are missing.
    is_behind = (known > 0) & (events.offset[contents] >= known)
    are_lost = view.trace.source == "DFTracer" and bool(is_behind.mean() > 1 - _SURE)
    paths = tuple(events.files[number] for number in order)
    return FileCalls(
        paths,
        _list_unread(paths, events.files),
        place,
        rows,
        contents,
        np.where(wrote > 0, wrote, was_read) if are_lost else np.maximum(was_read, wrote),
        np.maximum(farthest, _find_streamed(view)[order]),
        bool(written.any()),
        are_lost,
    )


def _extents_of(view: View, rows: Ints, file: Ints) -> Ints:
    """Return the bytes behind the offset of some reads: copies of several samples have the lowest one; (rows,)."""
    size = view.sizes[rows]
    least = np.full(file.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, file, size)
    found: Ints = np.where(view.copies[rows], least[file], size)
    return found


def _list_unread(paths: tuple[str, ...], traced: Sequence[str]) -> tuple[str, ...]:
    """Return files next to these that are not `traced`, with names that differ in numbers; none if many."""
    plain = {_hide_numbers(path) for path in paths}
    found: list[str] = []
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        try:
            with os.scandir(folder) as entries:
                for entry in islice(entries, _MOST_ENTRIES):
                    if _hide_numbers(entry.path) in plain and entry.is_file(follow_symlinks=False):
                        found.append(entry.path)
        except (OSError, ValueError):  # not here, or no path at all
            return ()
    others = {*found} - {*traced}
    return tuple(sorted(others)) if len(others) < len(paths) else ()


def _hide_numbers(path: str) -> str:
    """Return a path with its numbers replaced by `#`."""
    return re.sub(r"\d+", "#", path)


def _come_before(view: View, reads: Ints) -> Bools:
    """Return which events are before the first read of their file: later writes, or misnamed ones, made no data."""
    events = view.events
    first = np.full(len(events.files) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, events.file[reads], events.begin[reads])
    found: Bools = events.begin < first[events.file]
    return found


def _find_streamed(view: View) -> Ints:
    """Return up to where C's streams read each file by the counters of a log, of whose calls DXT has none; (files,)."""
    found = np.zeros(len(view.events.files), np.int64)
    place = {path: number for number, path in enumerate(view.events.files)}
    for table in view.trace.counters if isinstance(view.trace, LogTrace) and len(view.events) else ():
        if table.module == "STDIO" and "MAX_BYTE_READ" in table.counts:
            numbers = np.array([place.get(path, -1) for path in table.files], np.int64)[table.file]
            is_read = (numbers >= 0) & (table.count("BYTES_READ") > 0)
            np.maximum.at(found, numbers[is_read], table.count("MAX_BYTE_READ")[is_read] + 1)
    return found


def _is_content(view: View, rows: Ints) -> Bools:
    """Return which reads are of contents: those of headers are small, few bytes in all, and follow no large one."""
    size = view.sizes[rows]
    by_size = np.sort(size)
    half = by_size[np.searchsorted(np.cumsum(by_size), by_size.sum() / 2)]
    is_small = size < half / _SMALL
    few = float(size[is_small].sum()) < (1 - _SURE) * float(size.sum()) / 10
    ends, file = view.events.offset[rows] + size, view.events.file[rows]
    follows = np.zeros(len(rows), np.bool_)
    follows[1:] = ~is_small[:-1] & (view.events.offset[rows][1:] == ends[:-1]) & (file[1:] == file[:-1])
    found: Bools = ~is_small | follows if few else np.ones(len(rows), np.bool_)
    return found
