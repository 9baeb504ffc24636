"""The samples that an application has read: its calls on the files of each data set, put together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints, find_starts
from dliosim.analyze.figures.view import PURPOSES, View

#: A data set has this share of the bytes of all data sets, or none of its files matters.
_MATTERS: Final = 0.01
#: Folders from this number on next to each other, with files of one ending, are the classes of one data set.
_CLASSES: Final = 4
#: The share of a file's reads that are within epochs from which on it is data.
_SURE: Final = 0.9
#: A visit of a file reads it whole from this share of its bytes on.
_WHOLE: Final = 0.8
#: Calls this many times as small as those that read half of the bytes are of headers, if they are few bytes.
_SMALL: Final = 64
#: Samples of calls that are divided: as many of all reads together at most, and no smaller ones; bytes.
_MOST_SAMPLES: Final = 10_000_000
_LEAST: Final = 512
#: More samples than this are in no call.
_MOST_OF_CALL: Final = 1 << 12
#: Calls of one size from which on they may be pieces of samples: no library cuts smaller ones.
_PIECE: Final = 4096


@dataclass(frozen=True, slots=True)
class SampleReads:
    """The reads of the samples of a data set, a row for each, in order of rank and time; (n,) each."""

    rank: Ints  #: the rank, or the process if no rank is known
    lane: Ints  #: thread of a process
    sample: Ints  #: number of the sample, in the order of the names of files
    size: Ints  #: bytes
    begin: Ints  #: ns
    end: Ints  #: ns
    epoch: Ints  #: epoch, from 1; -1 if it is not known
    step: Ints  #: step, from 1; -1 if it is not known

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files of a data set and what was read of them."""

    paths: tuple[str, ...]  #: files, in order
    rows: Bools  #: the reads among the events of the trace
    reads: SampleReads  #: the reads of samples
    samples: int  #: different samples that were read, or written before
    is_whole: bool  #: each file is a sample
    piece: int  #: bytes of the calls that read a part of a sample; 0 if one call reads it
    are_placed: bool  #: False if calls say no offsets
    is_divided: bool  #: True if calls read several samples, by the greatest divisor of their bytes
    is_seen: bool  #: False if calls moved in the files farther than all reads that were recorded

    @property
    def folders(self) -> int:
        """Return the number of folders that have its files."""
        return len({path.rpartition("/")[0] for path in self.paths})

    @property
    def suffix(self) -> str:
        """Return the ending of the files' names."""
        return _find_suffix(self.paths[0])


def list_data_files(view: View) -> list[DataFiles]:
    """Return the data sets that were read, in the order of their first reads; files of little matter are left out."""
    events = view.events
    reads = view.basic & events.is_kind("read") & (view.bytes > 0) & (events.file >= 0)
    reads &= np.append(_find_data(view, reads), False)[events.file]
    numbers = _number_families(events.files)
    family = np.append(numbers, -1)[events.file]
    total = Counter[int]()
    for number, size in zip(family[reads].tolist(), view.bytes[reads].tolist(), strict=True):
        total[number] += size
    matters = [number for number, size in total.items() if size >= _MATTERS * sum(total.values())]
    first = {number: int(events.begin[reads & (family == number)].min()) for number in matters}
    return [_describe(view, family == number, reads) for number in sorted(matters, key=lambda one: first[one])]


def _find_data(view: View, reads: Bools) -> Bools:
    """Return which files are data: by their paths, or if most reads of one named as a checkpoint are within epochs."""
    events, spans = view.events, np.flatnonzero(view.events.is_kind("epoch"))
    rows = np.flatnonzero(reads)
    inside = find_spans(view, spans, view.groups_of(rows), events.begin[rows]) >= 0
    files = len(events.files)
    times, within = (np.bincount(events.file[some], minlength=files) for some in (rows, rows[inside]))
    is_read = (view.purpose_of == PURPOSES.index("checkpoint")) & (within > _SURE * times)
    found: Bools = is_read | (view.purpose_of == PURPOSES.index("data set"))
    return found


def find_spans(view: View, spans: Ints, rank: Ints, time: Ints) -> Ints:
    """Return the place in `spans` of the event in which a rank was at some times; -1 for none; (times,)."""
    found = np.full(len(time), -1, np.int64)
    ranks = view.groups_of(spans)
    for number in np.unique(ranks).tolist():
        own, rows = np.flatnonzero(ranks == number), np.flatnonzero(rank == number)
        own = own[np.argsort(view.events.begin[spans[own]], kind="stable")]
        place = np.searchsorted(view.events.begin[spans[own]], time[rows], "right") - 1
        inside = (place >= 0) & (time[rows] <= view.events.end[spans[own[place]]])
        found[rows] = np.where(inside, own[place], -1)
    return found


def _number_families(paths: tuple[str, ...]) -> Ints:
    """Return the number of each file's family: files of one ending, in folders that differ by numbers or are many."""
    places = [(path.rpartition("/")[0], _find_suffix(path)) for path in paths]
    plain = {folder: re.sub(r"\d+", "#", folder) for folder in {folder for folder, _ in places}}
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


def _find_suffix(path: str) -> str:
    """Return the ending of a file's name if it is a plain one: others may be names."""
    match = re.search(r"[^/](\.[A-Za-z][A-Za-z0-9]{0,9})$", path)
    return match[1].lower() if match else ""


def _describe(view: View, is_own: Bools, reads: Bools) -> DataFiles:
    events, rows = view.events, np.flatnonzero(is_own & reads)
    written = is_own & events.is_kind("write")
    used = np.unique(events.file[(is_own & reads) | written])
    order = sorted(used.tolist(), key=lambda number: events.files[number])
    place = np.full(len(events.files), -1, np.int64)
    place[order] = np.arange(len(order))
    ends = np.zeros(len(order), np.int64)
    for some in (rows, np.flatnonzero(written)):
        np.maximum.at(ends, place[events.file[some]], np.maximum(events.offset[some], 0) + view.sizes[some])
    seeks = np.flatnonzero(is_own & events.is_kind("seek") & np.isin(events.file, used))
    farthest = np.zeros(len(order), np.int64)
    np.maximum.at(farthest, place[events.file[seeks]], events.offset[seeks])
    is_seen = bool((farthest > ends / _WHOLE).mean() < 1 - _SURE)
    lane = events.process[rows].astype(np.int64) << 32 | events.thread[rows]
    rows = rows[np.lexsort((events.begin[rows], lane, view.group_of[events.process[rows]]))]
    rows = rows[_is_content(view, rows)]
    rank, lane = view.group_of[events.process[rows]], events.process[rows].astype(np.int64) << 32 | events.thread[rows]
    file, size = place[events.file[rows]], view.sizes[rows]
    epoch, step = events.epoch[rows].astype(np.int64), events.step[rows].astype(np.int64)
    visit = find_starts(lane, file, epoch, step)
    visited = _sum_groups(size, visit)
    whole = visited >= _WHOLE * ends[file[visit]]
    # Visits that ended early, as those of a loader that is stopped, are few bytes.
    is_whole = len(order) > 1 and float(visited[whole].sum()) >= _WHOLE * float(visited.sum())
    most = np.zeros(len(order), np.int64)
    np.maximum.at(most, file[visit], visited)
    contents = np.minimum(most, ends)  # without headers that were not read, and what was read twice
    begins, piece = (
        (visit, _largest_piece(visit, size)) if is_whole else _find_samples(visit, events.offset[rows], size)
    )
    first, last = np.flatnonzero(begins), np.append(np.flatnonzero(begins)[1:], len(rows)) - 1
    length = _sum_groups(size, begins)
    unit = 0 if is_whole or piece else _common_size(length)
    many = length // unit if unit else np.ones(len(length), np.int64)
    call = np.repeat(np.arange(len(length)), many)  # the call of each sample
    within = np.arange(len(call)) - np.repeat(np.cumsum(many) - many, many)
    offset = np.zeros(len(call), np.int64) if is_whole else events.offset[rows][first][call] + within * unit
    are_placed = is_whole or bool((offset >= 0).mean() > _SURE)
    if not are_placed:  # calls of a library: each is a sample of its epoch
        offset = np.arange(len(call)) - np.searchsorted(np.sort(epoch[first][call]), epoch[first][call])
    known, sample = np.unique(np.stack([file[first][call], offset]), axis=1, return_inverse=True)
    by_time = np.lexsort((within, events.begin[rows][first][call], rank[first][call]))
    starts, ends_of = first[call][by_time], last[call][by_time]
    found = SampleReads(
        rank[starts],
        lane[starts],
        sample.reshape(-1)[by_time],
        (np.full(len(call), unit) if unit else contents[file[first]] if is_whole else length)[by_time],
        events.begin[rows][starts],
        events.end[rows][ends_of],
        epoch[starts] if (epoch >= 0).any() else _number_passes(rank[starts], sample.reshape(-1)[by_time]),
        step[starts],
    )
    samples = known.shape[1] + len(np.setdiff1d(np.arange(len(order)), file))
    if not is_whole and written.any():  # these writes made the files, so that their size is known
        mean, lowest = float(found.size.mean()), int(offset.min())
        in_all = float(np.maximum(ends - lowest, 0).sum()) / mean
        # If few were read, the first of a file may not be among them.
        more = in_all if samples > _WHOLE * in_all else float(np.maximum(ends - lowest % mean, 0).sum()) / mean
        samples = max(round(more), samples if are_placed else 1)
    return DataFiles(
        tuple(events.files[number] for number in order),
        is_own & reads,
        found,
        samples,
        is_whole,
        piece,
        are_placed,
        unit > 0,
        is_seen,
    )


def _number_passes(rank: Ints, sample: Ints) -> Ints:
    """Return the epoch of each read, from 1, in order of rank and time: how often its sample was read, by its rank."""
    key = rank * (int(sample.max()) + 1) + sample
    order = np.argsort(key, kind="stable")
    starts = find_starts(key[order])
    passes = np.empty(len(key), np.int64)
    passes[order] = np.arange(len(key)) - np.flatnonzero(starts)[np.cumsum(starts) - 1] + 1
    return passes


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


def _common_size(length: Ints) -> int:
    """Return the bytes of a sample if calls read several: a divisor of all lengths, if most are the greatest.

    Samples next to each other are read at once, and fewer of them at the end of a file. 0 if a call is a sample.
    """
    most, unit = int(length.max()), int(np.gcd.reduce(length))
    is_several = _LEAST <= unit < most < _MOST_OF_CALL * unit and (length == most).mean() > 0.5
    # One smaller length may be the rest of a file: any divisor of two lengths would be a sample.
    is_several = is_several and len(np.unique(length)) > 2 and bool(length.sum() < _MOST_SAMPLES * unit)
    return unit if is_several else 0


def _find_samples(visit: Bools, offset: Ints, size: Ints) -> tuple[Bools, int]:
    """Return which calls begin a sample, and the bytes of a piece of one, 0 if a call reads a sample.

    Calls are pieces if the largest size is a common one, and what follows the end of such a call is a smaller rest.
    """
    joined = np.zeros(len(size), np.bool_)
    joined[1:] = ~visit[1:] & (offset[1:] == offset[:-1] + size[:-1]) & (offset[1:] >= 0)
    most = int(size.max())
    is_full = size == most
    rest = ~is_full & joined & np.append(False, is_full[:-1])
    if most < _PIECE or most % _PIECE or is_full.mean() < 0.5 or rest.sum() < 0.5 * (~joined).sum():
        return np.ones(len(size), np.bool_), 0
    begins = ~joined | np.append(True, ~is_full[:-1])
    return begins, most


def _largest_piece(visit: Bools, size: Ints) -> int:
    """Return the bytes of the calls that cut whole files; 0 if most files are read by a single call of that size."""
    if visit.mean() > 0.5:
        return 0
    number, times = np.unique(size, return_counts=True)
    most = int(number[-1])
    return most if most >= _PIECE and most % _PIECE == 0 and times[-1] * 2 > len(size) - visit.sum() else 0


def _sum_groups(values: Ints, starts: Bools) -> Ints:
    found: Ints = np.add.reduceat(values, np.flatnonzero(starts))
    return found


def count_by(*columns: Ints) -> tuple[list[Ints], Ints]:
    """Return the different rows of some columns, and how often each is there."""
    if not len(columns[0]):
        return [each[:0] for each in columns], np.zeros(0, np.int64)
    found, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    return list(found), counts


def mode_of(values: Ints) -> tuple[int, float]:
    """Return the most frequent value and its share; the smallest of several."""
    if not len(values):
        return 0, 0.0
    number, times = np.unique(values, return_counts=True)
    most = int(times.argmax())
    return int(number[most]), float(times[most] / len(values))


def group_rows(keys: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each key and its rows, in order."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(find_starts(keys[order]))
    for rows in np.split(order, starts[1:]) if len(order) else ():
        yield int(keys[rows[0]]), rows
