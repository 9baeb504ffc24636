"""The bytes that preparing writes: header, samples and padding of a range of a file, made chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.content import fill, fill_batch, sample_keys
from dliosim.model import Dataset
from dliosim.plan.extents import locate
from dliosim.plan.writing import SAMPLES_AT_ONCE, FilePart

#: Parts that are placed together, those that have no more samples than this.
PARTS_AT_ONCE = 1024
SMALL = 64


@dataclass(frozen=True, slots=True)
class _Rows:
    """Consecutive samples of one file, and the region of the file that they and their padding fill."""

    key: NDArray[np.uint64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part, and its samples with their places in the file: groups of them, between which no call goes across."""

    part: FilePart
    groups: Iterable[_Rows]


def place(dataset: Dataset, prefix: NDArray[np.int64] | None, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
    """The parts with their samples placed, small ones many at a time: to place one sample takes as long as hundreds."""
    left = iter(parts)
    while some := list(islice(left, PARTS_AT_ONCE)):
        small = [part for part in some if part.last_sample - part.first_sample <= SMALL]
        rows = _small_ones(dataset, prefix, small)
        for part in some:
            large = part.last_sample - part.first_sample > SMALL
            yield PlacedPart(part, _groups(dataset, prefix, part) if large else next(rows))


def chunks(placed: PlacedPart, transfer: int | None, buffer: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(offset in the file, data) of calls that together write a part, in order and without holes.

    At most `transfer` bytes a call; None is a call a sample, its padding included. The data lie in `buffer`, which each
    chunk overwrites, and which must hold the largest of them.
    """
    part = placed.part
    if part.first_sample == part.last_sample and part.length:
        yield from _empty(part, transfer or part.length, buffer)
    for rows in placed.groups:
        bounds = _bounds(rows, transfer)
        for start, stop in pairwise(bounds):
            out = buffer[: stop - start]
            _produce(rows, start, stop, out)
            yield start, out


def chunk_count(dataset: Dataset, prefix: NDArray[np.int64] | None, part: FilePart, transfer: int | None) -> int:
    """How many chunks `chunks` makes of a part."""
    if part.first_sample == part.last_sample:
        return -(-part.length // (transfer or max(part.length, 1)))
    if transfer is None:
        return part.last_sample - part.first_sample
    heads = np.arange(part.first_sample + SAMPLES_AT_ONCE, part.last_sample, SAMPLES_AT_ONCE)
    edges = np.concatenate([[part.offset], locate(dataset, prefix, heads)[1], [part.offset + part.length]])
    return int((-(-np.diff(edges) // transfer)).sum())


def largest_chunk(dataset: Dataset, prefix: NDArray[np.int64] | None, part: FilePart, transfer: int | None) -> int:
    """Bytes of the largest chunk of a part, or a little more: what its buffer must hold."""
    if transfer is not None or part.first_sample == part.last_sample:
        return min(transfer or part.length, part.length)
    if dataset.fixed_size is not None:
        return min(dataset.fixed_size + dataset.header + 2 * dataset.align, part.length)
    groups = (_bounds(rows, None) for rows in _groups(dataset, prefix, part))
    return max(int(np.diff(bounds).max()) for bounds in groups)


def _empty(part: FilePart, limit: int, buffer: memoryview) -> Iterator[tuple[int, memoryview]]:
    """A file without samples holds its header alone."""
    np.frombuffer(buffer, np.uint8)[:] = 0
    for start in range(part.offset, part.offset + part.length, limit):
        yield start, buffer[: min(limit, part.offset + part.length - start)]


def _small_ones(dataset: Dataset, prefix: NDArray[np.int64] | None, parts: list[FilePart]) -> Iterator[list[_Rows]]:
    """The samples of each part, in one group, or none."""
    counts = np.array([part.last_sample - part.first_sample for part in parts], np.int64)
    ends = np.cumsum(counts)
    first = np.array([part.first_sample for part in parts], np.int64)
    samples = np.repeat(first - ends + counts, counts) + np.arange(counts.sum())
    key, (_, offset, length) = sample_keys(dataset, samples), locate(dataset, prefix, samples)
    begin = 0
    for part, end in zip(parts, ends.tolist(), strict=True):
        until = part.offset + part.length
        yield [_Rows(key[begin:end], offset[begin:end], length[begin:end], part.offset, until)] if end > begin else []
        begin = end


def _groups(dataset: Dataset, prefix: NDArray[np.int64] | None, part: FilePart) -> Iterator[_Rows]:
    begin = part.offset
    for first in range(part.first_sample, part.last_sample, SAMPLES_AT_ONCE):
        last = min(first + SAMPLES_AT_ONCE, part.last_sample)
        # One sample more than the group has, since padding reaches up to the next one's offset.
        samples = np.arange(first, min(last + 1, part.last_sample))
        _, offset, length = locate(dataset, prefix, samples)
        end = part.offset + part.length if last == part.last_sample else int(offset[-1])
        count = last - first
        yield _Rows(sample_keys(dataset, samples[:count]), offset[:count], length[:count], begin, end)
        begin = end


def _bounds(rows: _Rows, transfer: int | None) -> list[int]:
    """Where calls begin, and where the last one ends."""
    if transfer is None:
        return [rows.first, *rows.offset[1:].tolist(), rows.last]
    return [*range(rows.first, rows.last, transfer), rows.last]


def _produce(rows: _Rows, start: int, stop: int, out: memoryview) -> None:
    """Make bytes [start, stop) of the file."""
    if len(rows.key) == 1:
        offset, length = int(rows.offset[0]), int(rows.length[0])
        if offset > start or offset + length < stop:
            np.frombuffer(out, np.uint8)[:] = 0
        _fill_one(int(rows.key[0]), offset, offset + length, start, stop, out)
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
        fill_batch(rows.key[first:last][whole], lengths[whole], offsets[whole] - start, out)
    for row in np.flatnonzero(~whole & (ends > start)).tolist():
        _fill_one(int(rows.key[first + row]), int(offsets[row]), int(ends[row]), start, stop, out)


def _fill_one(key: int, begin: int, end: int, start: int, stop: int, out: memoryview) -> None:
    """Make what lies in bytes [start, stop) of the file of a sample at [begin, end)."""
    low, high = max(begin, start), min(end, stop)
    if low < high:
        fill(key, low - begin, out[low - start : high - start])
