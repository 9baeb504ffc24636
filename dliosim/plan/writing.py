"""Who writes what: the parts of a data set's files, and the slices of a checkpoint, for writing and for restoring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Checkpoint, Part
from dliosim.model.dataset import Dataset
from dliosim.model.job import Job
from dliosim.plan.extents import file_sizes, locate
from dliosim.plan.framing import framed, is_framed
from dliosim.plan.layout import files_of, first_samples
from dliosim.plan.places import Places

#: Samples of a part that are made at a time while preparing; no call goes across.
SAMPLES_AT_ONCE = 65_536

# Files placed at a time.
_FILES_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes [offset, offset + length) of a file: samples [first_sample, last_sample), with what lies around each.

    The part that is `first` holds the header, too, and makes the file; the one that is `last` holds the trailer.
    """

    file: int
    offset: int
    length: int
    first_sample: int
    last_sample: int
    first: bool
    last: bool = True


def prepare_parts(dataset: Dataset, places: Places, job: Job, rank: int) -> Iterator[FilePart]:
    """The parts that `rank` writes; those of all ranks cover every file once.

    File f falls to rank f % R. With fewer files than ranks, each rank writes a contiguous 1/R of the samples, unless
    a checksum runs through the file. Of files that a library lays out, parts are samples: their offset says nothing.
    """
    if not is_framed(dataset):
        return _samples_of_files(dataset, job.ranks, rank)
    if dataset.layout.files >= job.ranks or framed(dataset).checksum is not None:
        return _whole_files(dataset, places, range(rank, dataset.layout.files, job.ranks))
    return _shares(dataset, places, job.ranks, rank)


def _samples_of_files(dataset: Dataset, ranks: int, rank: int) -> Iterator[FilePart]:
    total, files, size = dataset.samples, dataset.layout.files, dataset.fixed_size or 0
    shared = files < ranks
    begin, end = (rank * total // ranks, (rank + 1) * total // ranks) if shared else (0, total)
    for file in range(files) if shared else range(rank, files, ranks):
        start, stop = first_samples(np.array([file, file + 1]), total, files).tolist()
        first, last = max(begin, start), min(end, stop)
        if first < last:
            yield FilePart(file, 0, (last - first) * size, first, last, first == start, last == stop)


def _whole_files(dataset: Dataset, places: Places, owned: range) -> Iterator[FilePart]:
    for begin in range(0, len(owned), _FILES_AT_ONCE):
        piece = owned[begin : begin + _FILES_AT_ONCE]
        files = np.arange(piece.start, piece.stop, piece.step)
        sizes = file_sizes(dataset, places, files).tolist()
        first = first_samples(files, dataset.samples, dataset.layout.files).tolist()
        last = first_samples(files + 1, dataset.samples, dataset.layout.files).tolist()
        for row, file in enumerate(piece):
            yield FilePart(file, 0, sizes[row], first[row], last[row], True)


def _shares(dataset: Dataset, places: Places, ranks: int, rank: int) -> Iterator[FilePart]:
    total, files = dataset.samples, dataset.layout.files
    begin, end = rank * total // ranks, (rank + 1) * total // ranks
    if begin < end:
        touched = files_of(np.array([begin, end - 1]), total, files)
        for file in range(int(touched[0]), int(touched[1]) + 1):
            start, stop = first_samples(np.array([file, file + 1]), total, files).tolist()
            if start == stop:
                continue
            first, last = max(begin, start), min(end, stop)
            size = int(file_sizes(dataset, places, np.array([file]))[0])
            offset = 0 if first == start else _offset(dataset, places, first)
            until = size if last == stop else _offset(dataset, places, last)
            yield FilePart(file, offset, until - offset, first, last, first == start, last == stop)
    # Files without samples (more files than samples) are but a header and a trailer.
    for file in range(rank, files, ranks):
        start, stop = first_samples(np.array([file, file + 1]), total, files).tolist()
        if start == stop:
            size = int(file_sizes(dataset, places, np.array([file]))[0])
            yield FilePart(file, 0, size, start, stop, True)


def _offset(dataset: Dataset, places: Places, sample: int) -> int:
    return int(locate(dataset, places, np.array([sample]))[1][0])


@dataclass(frozen=True, slots=True)
class CheckpointSlice:
    """Bytes [offset, offset + length) of a file, which are [part_offset, ...) of the stream of a part's bytes.

    The stream of a `total` part is its bytes; that of a `per rank` part is those of rank 0, rank 1, and so on. `writer`
    is the rank that writes the slice; other ranks send theirs to it.
    """

    part: int
    file: int
    offset: int
    length: int
    part_offset: int
    writer: int


def checkpoint_slices(checkpoint: Checkpoint, ranks: int, rank: int) -> tuple[CheckpointSlice, ...]:
    """What `rank` of `ranks` owns of each part, and where it lies; slices of no bytes are left out."""
    return tuple(
        found
        for part, described in enumerate(checkpoint.parts)
        if (found := _slice_of(checkpoint, part, ranks, rank, *_owned(described, ranks, rank))).length
    )


def checkpoint_files(checkpoint: Checkpoint, ranks: int) -> NDArray[np.int64]:
    """Bytes of each file of a checkpoint that `ranks` ranks write."""
    files = -(-ranks // _group(checkpoint, ranks))
    return np.array([checkpoint_file_size(checkpoint, ranks, file) for file in range(files)], np.int64)


def checkpoint_file_size(checkpoint: Checkpoint, ranks: int, file: int) -> int:
    """Bytes of one file of a checkpoint that `ranks` ranks write: where one is asked for, cheaper than all."""
    group = _group(checkpoint, ranks)
    first, last = file * group, min((file + 1) * group, ranks)
    # Python's integers: rank * size may pass 2**63.
    return sum(_owned(part, ranks, last)[0] - _owned(part, ranks, first)[0] for part in checkpoint.parts)


def checkpoint_file_count(checkpoint: Checkpoint, ranks: int) -> int:
    """Files of a checkpoint that `ranks` ranks write."""
    return -(-ranks // _group(checkpoint, ranks))


def checkpoint_writers(checkpoint: Checkpoint, ranks: int) -> NDArray[np.int64]:
    """The rank that makes each file, in the order of the files."""
    if checkpoint.writers.kind == "rank":
        return np.array([checkpoint.writers.number])
    return np.arange(0, ranks, _group(checkpoint, ranks))


def restore_slices(checkpoint: Checkpoint, written_by: int, ranks: int, rank: int) -> tuple[CheckpointSlice, ...]:
    """What `rank` of `ranks` reads of a checkpoint of `written_by` ranks; all ranks together read every byte once.

    The stream of each part is dealt anew in contiguous ranges, so a range may lie in the files of several writers.
    """
    result = []
    for part, described in enumerate(checkpoint.parts):
        size = _stream_size(described, written_by)
        begin, end = rank * size // ranks, (rank + 1) * size // ranks
        while begin < end:
            owner = ((begin + 1) * written_by - 1) // size  # the last rank whose share starts at or before `begin`
            until = min(end, (owner + 1) * size // written_by)
            if _regions(checkpoint):  # the part lies in one piece, whoever owned what
                until = end
            result.append(_slice_of(checkpoint, part, written_by, owner, begin, until))
            begin = until
    return tuple(result)


def _stream_size(part: Part, ranks: int) -> int:
    return part.size if part.scope == "total" else part.size * ranks


def _owned(part: Part, ranks: int, rank: int) -> tuple[int, int]:
    """The range of a part's stream that a rank owns; that of rank `ranks` is empty, at the end."""
    size = _stream_size(part, ranks)
    return rank * size // ranks, min((rank + 1) * size // ranks, size)


def _regions(checkpoint: Checkpoint) -> bool:
    """Whether all is one file, part after part, each in the order of its stream."""
    return checkpoint.writers.kind in ("shared file", "rank")


def _group(checkpoint: Checkpoint, ranks: int) -> int:
    """Ranks to a file."""
    if _regions(checkpoint):
        return ranks
    return checkpoint.writers.number if checkpoint.writers.kind == "one per" else 1


def _slice_of(checkpoint: Checkpoint, part: int, ranks: int, owner: int, begin: int, end: int) -> CheckpointSlice:
    """Where bytes [begin, end) of a part's stream lie, `owner` being the rank that owns the first of them."""
    before = checkpoint.parts[:part]
    if _regions(checkpoint):
        base = sum(_stream_size(other, ranks) for other in before)
        writer = checkpoint.writers.number if checkpoint.writers.kind == "rank" else owner
        return CheckpointSlice(part, 0, base + begin, end - begin, begin, writer)
    # Each file holds its ranks one after the other, and of each rank the parts one after the other.
    group = _group(checkpoint, ranks)
    first = owner // group * group
    offset = begin - _owned(checkpoint.parts[part], ranks, owner)[0]
    for other in checkpoint.parts:
        offset += _owned(other, ranks, owner)[0] - _owned(other, ranks, first)[0]
    for other in before:
        start, stop = _owned(other, ranks, owner)
        offset += stop - start
    return CheckpointSlice(part, owner // group, offset, end - begin, begin, first)
