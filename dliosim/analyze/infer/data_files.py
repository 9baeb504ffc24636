"""The data sets of an application: their files, and the calls on these put together to samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints, find_starts
from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.contents import Contents, number_places, read_contents
from dliosim.analyze.infer.file_calls import FileCalls, find_data, find_suffix, list_calls, number_families
from dliosim.analyze.infer.reads import SampleReads, find_long, lanes_of, list_reads, number_rows, number_within
from dliosim.analyze.infer.sums import find_means

#: A data set has this share of the bytes of all data sets, or none of its files matters, but for loops that read it
#: with another one: then it has this share of the calls that read.
MATTERS: Final = 0.01
_CALLS: Final = 0.1
#: The share of calls, or of samples, that makes what they show sure.
_SURE: Final = 0.9
#: A visit of a file reads it whole from this share of its bytes on.
_WHOLE: Final = 0.8
#: Reads that were recorded go at least so far of where calls moved in a file, or some were not recorded.
_SEEN: Final = 0.99
#: Samples of calls that are divided: as many of all reads together at most, and no smaller ones; bytes.
_MOST_SAMPLES: Final = 10_000_000
_LEAST: Final = 512
#: More samples than this are in no call.
_MOST_OF_CALL: Final = 1 << 12
#: Bytes before the contents of a sample in its file, at most: its header.
_FRAME: Final = 1024
#: Bytes of a token.
_TOKENS: Final = (1, 2, 4, 8)
#: Calls of one size from which on they may be pieces of samples: no library cuts smaller ones.
_PIECE: Final = 4096
#: Endings of files that are made to have many samples.
_ARCHIVES: Final = frozenset(
    (".tar", ".tfrecord", ".tfrecords", ".parquet", ".arrow", ".rec", ".lmdb", ".mds", ".beton")
)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files of a data set and what was read of them."""

    paths: tuple[str, ...]  #: files, in order
    rows: Bools  #: the reads among the events of the trace
    reads: SampleReads  #: the reads of samples
    samples: int  #: different samples that were read, or written before
    is_whole: bool = False  #: each file is a sample
    piece: int = 0  #: bytes of the calls that read a part of a sample; 0 if one call reads it
    are_placed: bool = True  #: False if calls do not say where their samples are
    is_divided: bool = False  #: True if calls read several samples, by the greatest divisor of their bytes
    is_seen: bool = True  #: False if calls moved in the files farther than all reads that were recorded
    contents: Contents | None = None  #: what the files are, if they are here
    is_sized: bool = True  #: False if the sizes of samples are means of several
    columns: Bools | None = None  #: which columns of a table were read; None if it has only one
    were_written: bool = False  #: calls of the trace made some of the files
    doubt: str = ""  #: why a file that is read whole, or a call, may have several samples; empty if nothing shows it

    @property
    def is_counted(self) -> bool:
        """Return whether the files say where samples are, and not calls alone."""
        found = self.contents
        return found is not None and found.samples == self.samples and (found.are_marked or not self.is_whole)

    @property
    def folders(self) -> int:
        """Return the number of folders that have its files."""
        return len({path.rpartition("/")[0] for path in self.paths})

    @property
    def suffix(self) -> str:
        """Return the ending of the files' names."""
        return find_suffix(self.paths[0])


def list_data_files(view: View) -> list[DataFiles]:
    """Return the data sets that were read, in the order of their first reads, without files of few bytes and calls."""
    events = view.events
    reads = view.basic & events.is_kind("read") & (view.bytes > 0) & (events.file >= 0)
    is_data = find_data(view, reads)
    reads &= np.append(is_data, False)[events.file]
    numbers = np.where(is_data, number_families(events.files), -1)
    family = np.append(numbers, -1)[events.file]
    calls = np.bincount(family[reads]) if reads.any() else np.zeros(0)
    total = np.bincount(family[reads], view.bytes[reads]) if reads.any() else np.zeros(0)
    matters = (total >= MATTERS * total.sum()) | (calls >= _CALLS * calls.sum())
    matters = np.flatnonzero((total > 0) & matters).tolist()
    first = {number: int(events.begin[reads & (family == number)].min()) for number in matters}
    order = sorted(matters, key=lambda one: first[one])
    return [_describe(view, list_calls(view, family == number, reads)) for number in order]


def _describe(view: View, calls: FileCalls) -> DataFiles:
    """Return a data set: by what its files have if they are here, else by the calls alone."""
    contents = read_contents((*calls.paths, *calls.unread))
    if contents is not None and (calls.ends > contents.ends[: len(calls.ends)]).any():
        contents = None  # other files than those of the trace
    if (view.events.offset[calls.rows] >= 0).all():
        found = _count_samples(view, calls, contents) or _find_tokens(view, calls, contents)
        if found is not None:
            return found
    return _guess_samples(view, calls, contents)


def _guess_samples(view: View, calls: FileCalls, contents: Contents | None) -> DataFiles:
    """Return a data set whose samples are whole files, or calls, or parts of calls."""
    events, rows, ends, files = view.events, calls.contents, calls.ends, len(calls.paths)
    is_seen = bool((calls.farthest > ends / _SEEN).mean() < 1 - _SURE)
    file, size = calls.place[events.file[rows]], view.sizes[rows]
    visit = _find_visits(view, rows, file)
    visited = np.add.reduceat(size, np.flatnonzero(visit))
    has_no_places = bool((events.offset[rows] < 0).mean() > 1 - _SURE)
    if has_no_places and not calls.were_written:
        ends = np.zeros(files, np.int64)
        np.maximum.at(ends, file[visit], visited)
    whole = visited >= _WHOLE * ends[file[visit]]
    # Visits that ended early, as those of a loader that is stopped, are few bytes.
    is_whole = files > 1 and float(visited[whole].sum()) >= _WHOLE * float(visited.sum())
    most = np.zeros(files, np.int64)
    np.maximum.at(most, file[visit], visited)
    # Without headers that were not read, and what was read twice; up to where the file was sought if reads are missing.
    most = np.maximum(np.minimum(most, ends), 0 if is_seen else calls.farthest)
    begins, piece = (visit, _usual_piece(visit, size)) if is_whole else _find_samples(visit, events.offset[rows], size)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(rows)) - 1
    length = np.add.reduceat(size, first)
    unit = 0 if is_whole or piece else _common_size(length)
    call, within = _number_parts(length // unit if unit else np.ones(len(length), np.int64))
    offset = np.zeros(len(call), np.int64) if is_whole else events.offset[rows][first][call] + within * unit
    are_placed = is_whole or (bool((offset >= 0).mean() > _SURE) and not calls.are_lost)
    if not are_placed:  # each call is a sample of its epoch
        offset = number_within(events.epoch[rows][first][call].astype(np.int64))
    sample = number_rows(file[first][call], offset)
    sizes = np.full(len(call), unit) if unit else most[file[first]] if is_whole else length
    reads = list_reads(view, rows[first][call], rows[last][call], within, sample, file[first][call], sizes)
    unread = calls.unread if is_whole else ()
    contents = contents if len(unread) == len(calls.unread) else None
    samples = int(sample.max()) + 1 + files - len(np.unique(file)) + len(unread)
    if not are_placed and contents is not None:
        samples = contents.samples
    elif not is_whole and calls.were_written:  # these writes made the files, so that their size is known
        mean, lowest = float(reads.size.mean()), int(offset.min())
        in_all = float(np.maximum(ends - lowest, 0).sum()) / mean
        # If few were read, the first of a file may not be among them.
        more = in_all if samples > _WHOLE * in_all else float(np.maximum(ends - lowest % mean, 0).sum()) / mean
        samples = max(round(more), samples if are_placed else 1)
    is_sized = is_whole or bool(find_means(events)[rows].mean() < 1 - _SURE)
    is_marked = contents is not None and contents.are_marked and contents.samples == samples
    doubt = "" if is_marked else _doubt_samples(view, calls, visit, is_whole, piece or unit)
    doubt = doubt or ("calls say no offsets, so files may have more" if has_no_places and is_whole else calls.doubt)
    data = _make_data(view, calls, reads, samples, contents, is_whole=is_whole, piece=piece, doubt=doubt)
    how: dict[str, Any] = {"are_placed": are_placed, "is_divided": unit > 0, "is_seen": is_seen, "is_sized": is_sized}
    return replace(data, paths=(*calls.paths, *unread), **how)


def _make_data(
    view: View, calls: FileCalls, reads: SampleReads, samples: int, contents: Contents | None, **more: Any
) -> DataFiles:
    """Return a data set by the reads of its samples; `more` is all that is unusual."""
    rows = np.zeros(len(view.events), np.bool_)
    rows[calls.rows] = True
    known = {"contents": contents, "were_written": calls.were_written, "doubt": calls.doubt}
    return DataFiles((*calls.paths, *calls.unread), rows, reads, samples, **known | more)


def _doubt_samples(view: View, calls: FileCalls, visit: Bools, is_whole: bool, unit: int) -> str:
    """Return why calls may not be of one sample: pauses within files that are read whole, calls of a buffer, a name."""
    events, rows = view.events, calls.contents
    size, most, suffix = view.sizes[rows], int(view.sizes[rows].max()), find_suffix(calls.paths[0])
    if is_whole:
        same = ~find_starts(lanes_of(view, rows))[1:]
        is_long = find_long((events.begin[rows][1:] - events.end[rows][:-1])[same])
        if is_long.any() and (~visit[1:][same])[is_long].mean() > 0.5:
            return "most pauses are within a file, which may have several"
    elif not unit and most >= _PIECE and most % _PIECE == 0 and 0.5 <= (size == most).mean() < 1:
        return f"most calls are of {most:_} B, as those of a buffer, which may have several"
    return f"files that end with {suffix} may have several each" if suffix in _ARCHIVES else ""


def _find_visits(view: View, rows: Ints, file: Ints) -> Bools:
    """Return which calls are the first of a thread on a file, in a step if it is known."""
    return find_starts(lanes_of(view, rows), file, view.events.epoch[rows], view.events.step[rows])


def _number_parts(many: Ints) -> tuple[Ints, Ints]:
    """Return for each part of some calls, of `many` parts each, the number of its call, and its own in the call."""
    call = np.repeat(np.arange(len(many)), many)
    return call, number_within(call)


def _count_samples(view: View, calls: FileCalls, contents: Contents | None) -> DataFiles | None:
    """Return the data set by the samples whose first bytes calls have read; None if reads begin elsewhere."""
    if contents is None or len(contents.file) <= len(calls.paths):
        return None
    rows, table, columns = calls.rows, contents.table, None
    if table is not None:
        file = calls.place[view.events.file[rows]]
        rows = rows[~table.is_footer(file, view.events.offset[rows], view.sizes[rows])]
    file, offset, size = calls.place[view.events.file[rows]], view.events.offset[rows], view.sizes[rows]
    known, begin = number_places(contents.file, contents.offset), number_places(file, offset)
    if table is not None:
        chunks = table.count_read(begin, begin + size)
        columns = (chunks > 0) & (chunks >= chunks.max() / 2)
        known = table.place_samples(int(chunks.argmax()))  # the column that is read most counts samples
    first, last = np.searchsorted(known, begin), np.searchsorted(known, begin + size)
    visit = _find_visits(view, rows, file)
    begins = visit | np.append(True, offset[1:] != (offset + size)[:-1])
    header = known[np.minimum(first, len(known) - 1)] - begin
    is_near = (header >= 0) & (header <= min(_FRAME, contents.size.mean() / 4)) | (offset == 0)
    if table is not None:
        is_near |= np.isin(begin, table.begin)
    if int((last - first).sum()) > _MOST_SAMPLES:
        return None
    call, within = _number_parts(last - first)
    if not len(call) or is_near[begins].mean() < _SURE:
        return None
    sample = first[call] + within
    sizes = contents.size[sample]
    is_sized = float(size.sum()) >= _WHOLE * float(sizes.sum())
    if not is_sized:  # such as some columns
        sizes = np.full(len(sample), max(round(size.sum() / len(sample)), 1))
    reads = list_reads(view, rows[call], rows[call], within, sample, file[call], sizes)
    piece = _usual_piece(visit, size)
    data = _make_data(view, calls, reads, contents.samples, contents, piece=piece, is_sized=is_sized)
    return replace(data, columns=columns)


def _find_tokens(view: View, calls: FileCalls, contents: Contents | None) -> DataFiles | None:
    """Return the data set whose samples share a token with the next one, as Megatron's do; None if they do not.

    They begin at multiples of their bytes but those of a token. A call may copy several from different places.
    """
    rows, events = calls.rows, view.events
    contents = contents if contents is not None and contents.dataset.format == "indexed" else None
    file, offset, size = calls.place[events.file[rows]], events.offset[rows], view.sizes[rows]
    stride, least = int(np.gcd.reduce(offset)), int(size.min())
    many = least // (stride + 1)
    each = least // many if many else 0
    if stride < _LEAST or each - stride not in _TOKENS or (size % each).any():
        return None
    parts, rest = np.divmod((calls.ends if contents is None else contents.ends) - (each - stride), stride)
    if contents is None and rest.any():  # a copy of several samples is recorded as one beyond the end
        parts = np.zeros(len(parts), np.int64)
        np.maximum.at(parts, file, offset // stride + 1)
    call, within = _number_parts(size // each)
    are_placed = len(call) == len(rows)
    epoch = events.epoch[rows[call]].astype(np.int64)
    sample = (np.cumsum(parts) - parts)[file] + offset // stride if are_placed else number_within(epoch)
    reads = list_reads(view, rows[call], rows[call], within, sample, file[call], np.full(len(call), each))
    samples = int(parts.sum())
    contents = replace(contents, samples=samples) if contents is not None else None
    doubt = calls.doubt if contents is not None else f"they overlap by {each - stride} B, as Megatron's do"
    return _make_data(view, calls, reads, samples, contents, are_placed=are_placed, doubt=doubt)


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


def _usual_piece(visit: Bools, size: Ints) -> int:
    """Return the bytes of the calls that cut whole files: as most calls, with most bytes; 0 if one reads a file."""
    if visit.mean() > 0.5:
        return 0
    number, times = np.unique(size, return_counts=True)
    usual, many = int(number[times.argmax()]), int(times.max())
    is_piece = usual >= _PIECE and usual % _PIECE == 0 and many * 2 > len(size) - visit.sum()
    return usual if is_piece and many * usual * 2 > size.sum() else 0
