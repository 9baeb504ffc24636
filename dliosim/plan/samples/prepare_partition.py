"""The partition of a data set's files over the ranks that prepare it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dliosim.model.dataset import Dataset
from dliosim.plan.samples.places import FramedPlaces, Places
from dliosim.plan.samples.sample_to_file import files_of, first_samples

#: Samples of a part that are made at a time while preparing; a call never spans two such groups.
SAMPLES_AT_ONCE = 65_536

# Files whose places are computed at a time.
_FILES_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes [offset, offset + length) of a file: samples with the bytes around each."""

    file: int  #: number of the file
    offset: int  #: first byte
    length: int  #: bytes
    first_sample: int  #: first sample
    last_sample: int  #: last sample, exclusive
    first: bool  #: true: the part also holds the header, and its rank makes the file
    last: bool = True  #: true: the part also holds the trailer


def file_parts(places: Places, ranks: int, rank: int) -> Iterator[FilePart]:
    """Return the parts that `rank` writes; those of all ranks cover every file once.

    Rank f % R writes file f. With fewer files than ranks, each rank writes a contiguous 1/R of the samples, unless a
    checksum covers the whole file.
    """
    if not isinstance(places, FramedPlaces):
        return sample_parts(places.dataset, ranks, rank)
    files = places.dataset.layout.files
    if files >= ranks or places.form.checksum is not None:
        return _whole_file_parts(places, range(rank, files, ranks))
    return _share_parts(places, ranks, rank)


def sample_parts(dataset: Dataset, ranks: int, rank: int) -> Iterator[FilePart]:
    """Return the samples that `rank` writes, by file, to files that a library lays out; offsets have no meaning.

    The ranks share files as in `file_parts`.
    """
    total, files, size = dataset.samples, dataset.layout.files, dataset.constant_size or 0
    begin, end, some = 0, total, range(rank, files, ranks)
    if files < ranks:
        begin, end = rank * total // ranks, (rank + 1) * total // ranks
        touched = files_of(np.array([begin, end - 1]), total, files).tolist()
        some = range(touched[0], touched[1] + 1)
    for file in some:
        start, stop = first_samples(np.array([file, file + 1]), total, files).tolist()
        first, last = max(begin, start), min(end, stop)
        if first < last:
            yield FilePart(file, 0, (last - first) * size, first, last, first == start, last == stop)


def _whole_file_parts(places: FramedPlaces, owned: range) -> Iterator[FilePart]:
    for begin in range(0, len(owned), _FILES_AT_ONCE):
        piece = owned[begin : begin + _FILES_AT_ONCE]
        files = np.arange(piece.start, piece.stop, piece.step)
        sizes = places.file_sizes(files).tolist()
        first = places.first_samples(files).tolist()
        last = places.first_samples(files + 1).tolist()
        for row, file in enumerate(piece):
            yield FilePart(file, 0, sizes[row], first[row], last[row], True)


def _share_parts(places: FramedPlaces, ranks: int, rank: int) -> Iterator[FilePart]:
    def offset_of(sample: int) -> int:
        return int(places.locate(np.array([sample]))[1][0])

    def size_of(file: int) -> int:
        return int(places.file_sizes(np.array([file]))[0])

    for part in sample_parts(places.dataset, ranks, rank):
        offset = 0 if part.first else offset_of(part.first_sample)
        until = size_of(part.file) if part.last else offset_of(part.last_sample)
        yield replace(part, offset=offset, length=until - offset)
    # Files without samples (more files than samples) have only a header and a trailer.
    for file in range(rank, places.dataset.layout.files, ranks):
        start, stop = places.samples_of(file)
        if start == stop:
            yield FilePart(file, 0, size_of(file), start, stop, True)
