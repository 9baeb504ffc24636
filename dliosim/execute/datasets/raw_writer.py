"""The bytes of raw files: header, samples and padding of any range of a file, made chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.payload.payload_format import Dress, dress_function, fill_part, fill_samples
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.formats.registry import bind
from dliosim.model import Dataset
from dliosim.plan.samples.io_requests import locate
from dliosim.plan.samples.prepare_partition import SAMPLES_AT_ONCE, FilePart
from dliosim.plan.samples.sample_index import Places

#: Parts of at most SMALL samples are placed together, from PARTS_AT_ONCE parts at a time.
PARTS_AT_ONCE = 1024
SMALL = 64


@dataclass(frozen=True, slots=True)
class _SampleRun:
    """Consecutive samples of one file, and the region of the file that they and their padding fill."""

    #: key of the contents of each sample; (samples,)
    key: NDArray[np.uint64]
    #: offset of each in the file; (samples,)
    offset: NDArray[np.int64]
    #: bytes of each; (samples,)
    length: NDArray[np.int64]
    #: offset at which the region begins
    first: int
    #: offset at which it ends
    last: int


Chunks: TypeAlias = Iterator[tuple[int, memoryview]]
"""(offset in the file, data) of calls that together write a part without holes."""


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part whose samples have their places in the file."""

    #: the part
    part: FilePart
    #: makes its chunks, from the most bytes of a call (None: a call a sample, with what is around it) and a buffer that
    #: each chunk overwrites and that must hold the largest
    chunks: Callable[[int | None, memoryview], Chunks]


def place_parts(dataset: Dataset, places: Places, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
    """Yield the parts with their samples placed, small ones many at a time: placing one takes as long as hundreds."""
    left, dress = iter(parts), dress_function(bind(dataset))
    while some := list(islice(left, PARTS_AT_ONCE)):
        small = [part for part in some if part.last_sample - part.first_sample <= SMALL]
        rows = _place_small_parts(dataset, places, small)
        for part in some:
            large = part.last_sample - part.first_sample > SMALL
            groups = _group_samples(dataset, places, part) if large else next(rows)
            yield PlacedPart(part, partial(_part_chunks, part, groups, dress))


def _part_chunks(
    part: FilePart, groups: Iterable[_SampleRun], dress: Dress | None, transfer: int | None, buffer: memoryview
) -> Chunks:
    if part.first_sample == part.last_sample and part.length:
        yield from _empty_file_chunks(part, transfer or part.length, buffer)
    for rows in groups:
        bounds = _call_bounds(rows, transfer)
        for start, stop in pairwise(bounds):
            out = buffer[: stop - start]
            _fill_range(rows, dress, start, stop, out)
            yield start, out


def chunk_count(dataset: Dataset, places: Places, part: FilePart, transfer: int | None) -> int:
    """Return the number of chunks of a part."""
    if part.first_sample == part.last_sample:
        return -(-part.length // (transfer or max(part.length, 1)))
    if transfer is None:
        return part.last_sample - part.first_sample
    heads = np.arange(part.first_sample + SAMPLES_AT_ONCE, part.last_sample, SAMPLES_AT_ONCE)
    edges = np.concatenate([[part.offset], locate(dataset, places, heads)[1], [part.offset + part.length]])
    return int((-(-np.diff(edges) // transfer)).sum())


def largest_chunk(dataset: Dataset, places: Places, part: FilePart, transfer: int | None) -> int:
    """Return the bytes of the largest chunk of a part, or a little more: the size that its buffer must have."""
    if transfer is not None or part.first_sample == part.last_sample:
        return min(transfer or part.length, part.length)
    if dataset.constant_size is not None:
        return min(dataset.constant_size + dataset.header + 2 * dataset.align, part.length)
    groups = (_call_bounds(rows, None) for rows in _group_samples(dataset, places, part))
    return max(int(np.diff(bounds).max()) for bounds in groups)


def _empty_file_chunks(part: FilePart, limit: int, buffer: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the chunks of a file without samples: it holds its header alone, as zeros."""
    np.frombuffer(buffer, np.uint8)[:] = 0
    for start in range(part.offset, part.offset + part.length, limit):
        yield start, buffer[: min(limit, part.offset + part.length - start)]


def _place_small_parts(dataset: Dataset, places: Places, parts: list[FilePart]) -> Iterator[list[_SampleRun]]:
    """Yield the samples of each part, as one run or none."""
    counts = np.array([part.last_sample - part.first_sample for part in parts], np.int64)
    ends = np.cumsum(counts)
    first = np.array([part.first_sample for part in parts], np.int64)
    samples = np.repeat(first - ends + counts, counts) + np.arange(counts.sum())
    key, (_, offset, length) = sample_keys(dataset, samples), locate(dataset, places, samples)
    begin = 0
    for part, end in zip(parts, ends.tolist(), strict=True):
        until = part.offset + part.length
        yield (
            [_SampleRun(key[begin:end], offset[begin:end], length[begin:end], part.offset, until)]
            if end > begin
            else []
        )
        begin = end


def _group_samples(dataset: Dataset, places: Places, part: FilePart) -> Iterator[_SampleRun]:
    begin = part.offset
    for first in range(part.first_sample, part.last_sample, SAMPLES_AT_ONCE):
        last = min(first + SAMPLES_AT_ONCE, part.last_sample)
        # One sample more than the run has, since padding reaches up to the offset of the next sample.
        samples = np.arange(first, min(last + 1, part.last_sample))
        _, offset, length = locate(dataset, places, samples)
        end = part.offset + part.length if last == part.last_sample else int(offset[-1])
        count = last - first
        yield _SampleRun(sample_keys(dataset, samples[:count]), offset[:count], length[:count], begin, end)
        begin = end


def _call_bounds(rows: _SampleRun, transfer: int | None) -> list[int]:
    """Return the offsets at which calls begin, and the end of the last one."""
    if transfer is None:
        return [rows.first, *rows.offset[1:].tolist(), rows.last]
    return [*range(rows.first, rows.last, transfer), rows.last]


def _fill_range(rows: _SampleRun, dress: Dress | None, start: int, stop: int, out: memoryview) -> None:
    """Make bytes [start, stop) of the file."""
    if len(rows.key) == 1:
        offset, length = int(rows.offset[0]), int(rows.length[0])
        if offset > start or offset + length < stop:
            np.frombuffer(out, np.uint8)[:] = 0
        _fill_sample(dress, int(rows.key[0]), offset, offset + length, start, stop, out)
        return
    first = int(np.searchsorted(rows.offset, start, side="right")) - 1
    last = int(np.searchsorted(rows.offset, stop, side="left"))
    first = max(first, 0)
    offsets, lengths = rows.offset[first:last], rows.length[first:last]
    ends = offsets + lengths
    if int(np.sum(np.minimum(ends, stop) - np.maximum(offsets, start), where=ends > start)) < stop - start:
        np.frombuffer(out, np.uint8)[:] = 0
    whole = (offsets >= start) & (ends <= stop)
    if whole.any():
        fill_samples(dress, rows.key[first:last][whole], lengths[whole], offsets[whole] - start, out)
    for row in np.flatnonzero(~whole & (ends > start)).tolist():
        _fill_sample(dress, int(rows.key[first + row]), int(offsets[row]), int(ends[row]), start, stop, out)


def _fill_sample(dress: Dress | None, key: int, begin: int, end: int, start: int, stop: int, out: memoryview) -> None:
    """Make the bytes of a sample at [begin, end) that are inside of bytes [start, stop) of the file."""
    low, high = max(begin, start), min(end, stop)
    if low < high:
        fill_part(dress, key, low - begin, out[low - start : high - start])
