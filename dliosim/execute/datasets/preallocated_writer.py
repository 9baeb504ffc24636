"""The bytes of files that a library has laid out: contents of samples, at the places that the file's index has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.execute.datasets.raw_writer import Chunks, PlacedPart
from dliosim.execute.payload.payload_format import Dress, dress_function, fill_part, fill_samples
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.formats.registry import bind
from dliosim.model import Dataset
from dliosim.plan.samples.prepare_partition import FilePart
from dliosim.plan.samples.sample_index import DataIndex, Places, locate_ranges

Ints: TypeAlias = NDArray[np.int64]
Keys: TypeAlias = NDArray[np.uint64]

#: Samples that are placed together.
_AT_ONCE = 4096


def place_parts(dataset: Dataset, places: Places, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
    """Yield the parts with the function that makes their chunks; see `raw_writer.place_parts`."""
    for part in parts:
        yield PlacedPart(part, partial(_part_chunks, dataset, places, part))


def chunk_count(dataset: Dataset, places: Places, part: FilePart, transfer: int | None) -> int:
    """Return the number of chunks of a part."""
    return sum(
        len(run) for rows in _sample_ranges(dataset, places, part) for run in [_call_bounds(*rows[2:], transfer)]
    )


def largest_chunk(dataset: Dataset, places: Places, part: FilePart, transfer: int | None) -> int:
    """Return the bytes of the largest chunk of a part, or a little more."""
    return transfer or dataset.constant_size or 0


def _part_chunks(dataset: Dataset, places: Places, part: FilePart, transfer: int | None, buffer: memoryview) -> Chunks:
    dress = dress_function(bind(dataset))
    for key, begin, offset, length in _sample_ranges(dataset, places, part):
        ends = np.cumsum(length)
        starts = ends - length
        for first, last in _call_bounds(offset, length, transfer):
            out = buffer[: last - first]
            row, until = np.searchsorted(ends, [first, last - 1], side="right").tolist()
            rows = slice(row, until + 1)
            _fill_ranges(dress, key[rows], begin[rows], starts[rows] - first, ends[rows] - first, out)
            yield int(offset[row]) + first - int(starts[row]), out


def _fill_ranges(dress: Dress | None, key: Keys, begin: Ints, starts: Ints, ends: Ints, out: memoryview) -> None:
    """Make ranges that are at [start, end) of `out`; of the first and the last only what is inside of `out`."""
    whole = (begin == 0) & (starts >= 0) & (ends <= len(out))
    fill_samples(dress, key[whole], (ends - starts)[whole], starts[whole], out)
    for row in np.flatnonzero(~whole).tolist():
        start, end = max(int(starts[row]), 0), min(int(ends[row]), len(out))
        fill_part(dress, int(key[row]), int(begin[row]) + start - int(starts[row]), out[start:end])


def _sample_ranges(dataset: Dataset, places: Places, part: FilePart) -> Iterator[tuple[Keys, Ints, Ints, Ints]]:
    """Yield key, first byte of the contents, offset and length of ranges in the order of the file; (ranges,) each.

    `_AT_ONCE` samples at a time. Raises PlanError where the file was not laid out.
    """
    if not isinstance(places, DataIndex):
        raise PlanError(f"data set `{dataset.name}` was not laid out")
    for first in range(part.first_sample, part.last_sample, _AT_ONCE):
        samples = np.arange(first, min(first + _AT_ONCE, part.last_sample))
        found = locate_ranges(places, samples)
        order = np.argsort(found.offset, kind="stable")
        key = sample_keys(dataset, samples)[found.row[order]]
        yield key, found.begin[order], found.offset[order], found.length[order]


def _call_bounds(offset: Ints, length: Ints, transfer: int | None) -> list[tuple[int, int]]:
    """Return calls as [first, last) of the concatenated bytes of all ranges; a call crosses no gap in the file.

    No call is longer than `transfer`; with None each range is a call.
    """
    ends = np.cumsum(length)
    starts = ends - length
    if transfer is None:
        return list(zip(starts.tolist(), ends.tolist(), strict=True))
    head = np.ones(len(offset), np.bool_)
    head[1:] = offset[1:] != offset[:-1] + length[:-1]
    first = starts[head].tolist()
    last = [*first[1:], int(ends[-1])] if first else []
    return [
        (at, min(at + transfer, end))
        for begin, end in zip(first, last, strict=True)
        for at in range(begin, end, transfer)
    ]
