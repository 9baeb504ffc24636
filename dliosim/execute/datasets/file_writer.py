"""Writers of files by calls: they make the bytes of parts of files, cut into chunks, one a call.

Two of them know where samples are: in raw files with header and padding, and in files that a library has laid out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.payload.payload_format import Dress, dress_function, fill_part, fill_samples
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.execute.phases.context import DatasetFiles, Session
from dliosim.formats.protocols import EncodeTime, Format
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Dataset, Prepare
from dliosim.plan.samples.places import SAMPLES_AT_ONCE, FilePart, FramedPlaces, IndexedPlaces, Places
from dliosim.plan.samples.sample_index import locate_ranges
from dliosim.plan.samples.sample_to_file import first_samples, sample_sizes

#: (offset in the file, data) of calls that together write a part without holes
Chunks: TypeAlias = Iterator[tuple[int, memoryview]]


class SampleSource(Protocol):
    """The samples that a conversion reads, part by part, while it writes them."""

    def begin_part(self, first: int, last: int) -> None:
        """Begin with the samples [first, last)."""

    def read_until(self, sample: int) -> None:
        """Read all samples of the part before `sample`. Raises ExecutionError."""

    def end_part(self) -> None:
        """Read what is left of the part."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A data set that is written."""

    #: the session of the run
    session: Session
    #: how it is written
    verb: Prepare
    #: its files
    files: DatasetFiles
    #: its format
    form: Format
    #: figures of this rank
    record: VerbRecord
    #: what is read for the samples; None if they are made
    source: SampleSource | None = None

    @property
    def dataset(self) -> Dataset:
        """The data set."""
        return self.files.dataset

    @property
    def is_shared_open(self) -> bool:
        """True if all ranks open the one file together."""
        return self.verb.access.is_mpi and self.dataset.layout.files == 1 and self.source is None

    @property
    def is_precreated(self) -> bool:
        """True if one rank creates the files: then no rank truncates what another, which opens it too, has written."""
        few = self.dataset.layout.files < self.session.world.size
        return few and not self.is_shared_open and self.source is None

    def parts(self, places: Places) -> Iterator[FilePart]:
        """Return the parts of files that this rank writes: whole files where samples are read."""
        ranks, rank = self.session.world.size, self.session.world.rank
        if self.source is None:
            return places.parts(ranks, rank)
        return (part for part in places.parts(1, 0) if part.file % ranks == rank)

    def own_files(self) -> range:
        """Return the files that this rank makes if it makes whole ones."""
        return range(self.session.world.rank, self.dataset.layout.files, self.session.world.size)

    def samples_of(self, file: int) -> tuple[int, int]:
        """Return the first sample of a file, and that of the next file."""
        samples, files = self.dataset.samples, self.dataset.layout.files
        first, last = first_samples(np.array([file, file + 1]), samples, files).tolist()
        return first, last

    def count_samples(self, file: int) -> int:
        """Return the number of samples of a file."""
        first, last = self.samples_of(file)
        return last - first


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part whose samples have their places in the file."""

    #: the part
    part: FilePart
    #: makes its chunks, from the most bytes of a call (None: a call a sample, with what is around it) and a buffer that
    #: each chunk overwrites and that must hold the largest
    chunks: Callable[[int | None, memoryview], Chunks]


@dataclass(frozen=True, eq=False)
class FileWriter(ABC):
    """Base of the writers: it makes the bytes of the files of one data set."""

    #: places of the samples
    places: Places
    #: time of framing
    encoding: EncodeTime = field(default_factory=EncodeTime)

    #: True if writing makes the files; False if a library has laid them out
    makes_files: ClassVar[bool] = True

    @abstractmethod
    def place(self, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
        """Yield the parts with the function that makes their chunks; small ones are prepared many at a time."""

    @abstractmethod
    def chunk_count(self, part: FilePart, transfer: int | None) -> int:
        """Return the number of chunks of a part."""

    @abstractmethod
    def largest_chunk(self, part: FilePart, transfer: int | None) -> int:
        """Return the bytes of the largest chunk of a part, or a little more: the size that its buffer must have."""

    def count_encoding(self, record: VerbRecord) -> None:
        """Count the time of framing as encoding, not as making contents."""
        record.encode_ns += self.encoding.encode_ns
        record.content_ns -= self.encoding.encode_ns


#: Parts of at most SMALL samples are placed together, from PARTS_AT_ONCE parts at a time.
PARTS_AT_ONCE = 1024
SMALL = 64

#: Samples of a laid out file that are placed together.
_PLACED_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class _Region:
    """A region of a file, and the ranges of contents in it, in the order of the file; the rest of it is zeros."""

    #: key of the contents of each range; (ranges,)
    key: NDArray[np.uint64]
    #: first byte of the contents in each range; (ranges,)
    begin: NDArray[np.int64]
    #: offset of each range in the file; (ranges,)
    offset: NDArray[np.int64]
    #: bytes of each range; (ranges,)
    length: NDArray[np.int64]
    #: offset at which the region begins
    first: int
    #: offset at which it ends
    last: int


@dataclass(frozen=True, eq=False)
class RawWriter(FileWriter):
    """Makes files of a format without a frame around samples: bytes of any range of a file, so any length of calls."""

    #: places of the samples
    places: FramedPlaces

    def place(self, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
        """Yield the parts; small ones are placed many at a time: one takes as long as hundreds."""
        left, dress = iter(parts), dress_function(self.places.form)
        while some := list(islice(left, PARTS_AT_ONCE)):
            small = self._place_small_parts([part for part in some if _sample_count(part) <= SMALL])
            for part in some:
                regions = self._regions(part) if _sample_count(part) > SMALL else next(small)
                yield PlacedPart(part, partial(_part_chunks, regions, dress))

    def chunk_count(self, part: FilePart, transfer: int | None) -> int:
        """Return the number of chunks of a part."""
        if transfer is None:
            return _sample_count(part) or part.length > 0
        heads = np.arange(part.first_sample + SAMPLES_AT_ONCE, part.last_sample, SAMPLES_AT_ONCE)
        edges = np.concatenate([[part.offset], self.places.locate(heads)[1], [part.offset + part.length]])
        return int((-(-np.diff(edges) // transfer)).sum())

    def largest_chunk(self, part: FilePart, transfer: int | None) -> int:
        """Return `transfer`, or the bytes of the largest sample with what is around it."""
        dataset = self.places.dataset
        if transfer is not None or not _sample_count(part):
            return min(transfer or part.length, part.length)
        if dataset.constant_size is not None:
            return min(dataset.constant_size + dataset.header + 2 * dataset.align, part.length)
        return max(int(np.diff(_call_bounds(region, None)).max()) for region in self._regions(part))

    def _place_small_parts(self, parts: list[FilePart]) -> Iterator[list[_Region]]:
        """Yield the samples of each part, as one region or none."""
        counts = np.array([_sample_count(part) for part in parts], np.int64)
        ends = np.cumsum(counts)
        first = np.array([part.first_sample for part in parts], np.int64)
        samples = np.repeat(first - ends + counts, counts) + np.arange(counts.sum())
        key, (_, offset, length) = sample_keys(self.places.dataset, samples), self.places.locate(samples)
        begin, zeros = 0, np.zeros_like(offset)
        for part, end in zip(parts, ends.tolist(), strict=True):
            own, until = slice(begin, end), part.offset + part.length
            yield [_Region(key[own], zeros[own], offset[own], length[own], part.offset, until)] if part.length else []
            begin = end

    def _regions(self, part: FilePart) -> Iterator[_Region]:
        begin = part.offset
        for first in range(part.first_sample, part.last_sample, SAMPLES_AT_ONCE):
            last = min(first + SAMPLES_AT_ONCE, part.last_sample)
            # One sample more than the region has, since padding reaches up to the offset of the next sample.
            samples = np.arange(first, min(last + 1, part.last_sample))
            _, offset, length = self.places.locate(samples)
            end = part.offset + part.length if last == part.last_sample else int(offset[-1])
            own = slice(last - first)
            key = sample_keys(self.places.dataset, samples[own])
            yield _Region(key, np.zeros_like(offset[own]), offset[own], length[own], begin, end)
            begin = end


@dataclass(frozen=True, eq=False)
class PreallocatedWriter(FileWriter):
    """Makes the contents of files that a library has laid out; no call crosses a gap between them."""

    #: places of the samples
    places: IndexedPlaces

    makes_files = False

    def place(self, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
        """Yield the parts, each placed when its chunks are made."""
        dress = dress_function(self.places.form)
        for part in parts:
            yield PlacedPart(part, partial(_part_chunks, self._regions(part), dress))

    def chunk_count(self, part: FilePart, transfer: int | None) -> int:
        """Return the number of chunks of a part."""
        return sum(len(_call_bounds(region, transfer)) - 1 for region in self._regions(part))

    def largest_chunk(self, part: FilePart, transfer: int | None) -> int:
        """Return `transfer`, or the bytes of a sample: all of a file have one size."""
        return transfer or int(sample_sizes(self.places.dataset, np.array([part.first_sample]))[0])

    def _regions(self, part: FilePart) -> Iterator[_Region]:
        """Yield ranges that follow each other without a gap; `_PLACED_AT_ONCE` samples are placed at a time."""
        for first in range(part.first_sample, part.last_sample, _PLACED_AT_ONCE):
            samples = np.arange(first, min(first + _PLACED_AT_ONCE, part.last_sample))
            found = locate_ranges(self.places.index, samples)
            order = np.argsort(found.offset, kind="stable")
            key = sample_keys(self.places.dataset, samples)[found.row[order]]
            begin, offset, length = found.begin[order], found.offset[order], found.length[order]
            ends = offset + length
            heads = np.flatnonzero(offset[1:] != ends[:-1]) + 1
            for row, until in pairwise([0, *heads.tolist(), len(offset)]):
                if row < until:
                    own = slice(row, until)
                    at, end = int(offset[row]), int(ends[until - 1])
                    yield _Region(key[own], begin[own], offset[own], length[own], at, end)


def _sample_count(part: FilePart) -> int:
    return part.last_sample - part.first_sample


def _part_chunks(regions: Iterable[_Region], dress: Dress | None, transfer: int | None, buffer: memoryview) -> Chunks:
    for region in regions:
        for start, stop in pairwise(_call_bounds(region, transfer)):
            out = buffer[: stop - start]
            _fill_range(region, dress, start, stop, out)
            yield start, out


def _call_bounds(region: _Region, transfer: int | None) -> list[int]:
    """Return the offsets at which calls begin, and the end of the last one."""
    if transfer is None:
        return [region.first, *region.offset[1:].tolist(), region.last]
    return [*range(region.first, region.last, transfer), region.last]


def _fill_range(region: _Region, dress: Dress | None, start: int, stop: int, out: memoryview) -> None:
    """Make bytes [start, stop) of the file."""
    if len(region.key) == 1:
        offset, length = int(region.offset[0]), int(region.length[0])
        if offset > start or offset + length < stop:
            np.frombuffer(out, np.uint8)[:] = 0
        _fill_row(region, dress, 0, start, stop, out)
        return
    first = max(int(np.searchsorted(region.offset, start, side="right")) - 1, 0)
    last = int(np.searchsorted(region.offset, stop, side="left"))
    offsets, lengths = region.offset[first:last], region.length[first:last]
    ends = offsets + lengths
    if int(np.sum(np.minimum(ends, stop) - np.maximum(offsets, start), where=ends > start)) < stop - start:
        np.frombuffer(out, np.uint8)[:] = 0
    whole = (offsets >= start) & (ends <= stop) & (region.begin[first:last] == 0)
    if whole.any():
        fill_samples(dress, region.key[first:last][whole], lengths[whole], offsets[whole] - start, out)
    for row in np.flatnonzero(~whole & (ends > start)).tolist():
        _fill_row(region, dress, first + row, start, stop, out)


def _fill_row(region: _Region, dress: Dress | None, row: int, start: int, stop: int, out: memoryview) -> None:
    """Make the bytes of a range that are inside of bytes [start, stop) of the file."""
    begin = int(region.offset[row])
    low, high = max(begin, start), min(begin + int(region.length[row]), stop)
    if low < high:
        fill_part(dress, int(region.key[row]), int(region.begin[row]) + low - begin, out[low - start : high - start])
