"""The partition of a data set's files over the ranks that prepare it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dliosim.model.dataset import Dataset
from dliosim.plan.samples.sample_to_file import files_of, first_samples
from dliosim.plan.samples.sizes import sample_sizes

#: Samples of a part that are made at a time while preparing; a call never spans two such groups.
SAMPLES_AT_ONCE = 65_536


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


def sample_parts(dataset: Dataset, ranks: int, rank: int) -> Iterator[FilePart]:
    """Return the samples that `rank` writes, by file, to files that a library makes; offsets have no meaning.

    Rank f % R writes file f. With fewer files than ranks, each rank writes a contiguous 1/R of the samples.
    """
    total, files = dataset.samples, dataset.layout.files
    begin, end, some = 0, total, range(rank, files, ranks)
    if files < ranks:
        begin, end = rank * total // ranks, (rank + 1) * total // ranks
        touched = files_of(np.array([begin, end - 1]), total, files).tolist()
        some = range(touched[0], touched[1] + 1)
    for file in some:
        start, stop = first_samples(np.array([file, file + 1]), total, files).tolist()
        first, last = max(begin, start), min(end, stop)
        if first < last:
            size = int(sample_sizes(dataset, np.array([first]))[0])
            yield FilePart(file, 0, (last - first) * size, first, last, first == start, last == stop)
