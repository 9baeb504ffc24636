"""The places of the samples of a data set in its files: computed for framed formats, else by the files' indexes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from dliosim.errors import PlanError
from dliosim.formats.protocols import Column, Format, Framed, Ints
from dliosim.model.dataset import Dataset
from dliosim.plan.samples import sample_to_file
from dliosim.plan.samples.io_requests import Extents, ReadRanges
from dliosim.plan.samples.sample_index import DataIndex, locate_ranges, sample_places
from dliosim.plan.samples.sample_to_file import BLOCK, BLOCKS_AT_ONCE, sample_sizes, sample_strides

#: Samples of a part that are made at a time while preparing; a call never spans two such groups.
SAMPLES_AT_ONCE = 65_536

_FILES_AT_ONCE = 1 << 18
_PARTS_AT_ONCE = 16_384
_NO_UNITS = np.empty(0, np.int64)


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
        touched = sample_to_file.files_of(np.array([begin, end - 1]), total, files).tolist()
        some = range(touched[0], touched[1] + 1)
    for file in some:
        start, stop = sample_to_file.first_samples(np.array([file, file + 1]), total, files).tolist()
        first, last = max(begin, start), min(end, stop)
        if first < last:
            size = int(sample_sizes(dataset, np.array([first]))[0])
            yield FilePart(file, 0, (last - first) * size, first, last, first == start, last == stop)


class Member(NamedTuple):
    """A data set among those that a loop reads as one."""

    places: Places  #: the places of its samples
    first_sample: int  #: number of its first sample
    first_file: int  #: number of its first file


@dataclass(frozen=True, eq=False)
class Places(ABC):
    """The places of the samples of a data set in its files."""

    #: the format, bound to the data set
    form: Format
    #: true if `read_ranges` has ranges that several samples of a step share only once
    plans_shared_bytes: ClassVar[bool] = False

    @property
    def dataset(self) -> Dataset:
        """The data set."""
        return self.form.dataset

    @property
    def members(self) -> tuple[Member, ...]:
        """The data sets of several that are read as one; else this one."""
        return (Member(self, 0, 0),)

    def member_of_files(self, files: Ints) -> Ints:
        """Return the number of the member that has each file."""
        return np.searchsorted([one.first_file for one in self.members], files, side="right") - 1

    def member_of(self, file: int) -> Member:
        """Return the member that has a file."""
        return self.members[int(self.member_of_files(np.array([file]))[0])]

    def split_rows(self, samples: Ints) -> Iterator[tuple[Member, Ints | slice]]:
        """Yield the rows of `samples` that belong to each member."""
        yield self.members[0], slice(None)

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        files, step = self.dataset.layout.files, _FILES_AT_ONCE
        blocks = (np.arange(first, min(first + step, files), dtype=np.int64) for first in range(0, files, step))
        return sum(int(self.file_sizes(block).sum()) for block in blocks)

    @property
    @abstractmethod
    def has_disjoint_samples(self) -> bool:
        """True if each sample is one range of bytes that no other sample shares."""

    @property
    def has_single_ranges(self) -> bool:
        """True if each sample is one range of bytes that is read for this sample alone."""
        return self.has_disjoint_samples

    @property
    def has_plain_samples(self) -> bool:
        """True if each sample is one range of bytes of a file, not encoded together with others."""
        return True

    @property
    @abstractmethod
    def read_bytes(self) -> int | None:
        """Bytes that reading a plain sample takes; None if samples differ, and if they are not plain."""

    def files_of(self, samples: Ints) -> Ints:
        """Return the file of each sample."""
        return sample_to_file.files_of(samples, self.dataset.samples, self.dataset.layout.files)

    def first_samples(self, files: Ints) -> Ints:
        """Return the first sample of each file, `files` in [0, F]; for file F the number of samples."""
        return sample_to_file.first_samples(files, self.dataset.samples, self.dataset.layout.files)

    def samples_of(self, file: int) -> tuple[int, int]:
        """Return the first sample of a file, and that of the next file."""
        first, last = self.first_samples(np.array([file, file + 1])).tolist()
        return first, last

    @abstractmethod
    def locate(self, samples: Ints) -> tuple[Ints, Ints, Ints]:
        """Return file, offset and length (bytes) of what reading each sample takes; of the shape of `samples`.

        For a sample in several ranges, the offset is that of the first range, and the length is that of all.
        """

    @abstractmethod
    def file_sizes(self, files: Ints) -> Ints:
        """Return the bytes of each file."""

    def file_size(self, file: int) -> int:
        """Return the bytes of a file."""
        return int(self.file_sizes(np.array([file]))[0])

    def drop_units(self) -> Places:
        """Return places that have only what readers and decoders need: no places of single units."""
        return self

    def parts(self, ranks: int, rank: int) -> Iterator[FilePart]:
        """Return the parts of files that `rank` writes; those of all ranks cover every sample once."""
        return sample_parts(self.dataset, ranks, rank)

    @abstractmethod
    def read_ranges(self, extents: Extents) -> ReadRanges:
        """Return the ranges of files that hold the samples of `extents`, in their steps."""

    def library_bytes(self, samples: Ints) -> Ints:
        """Return the bytes that the format's library gives for each sample; 0 if that is not fixed."""
        return sample_sizes(self.dataset, samples)

    def decoder_column(self, number: int, file: int) -> Column | None:
        """Return column `number` of a file without its units, as decoders take it; None for a file without an index."""
        return None


@dataclass(frozen=True, eq=False)
class FramedPlaces(Places):
    """The places of the samples of a framed format."""

    #: the format
    form: Framed
    #: sums of `sizes`, of blocks or of samples, if `needs_totals` is true; else None
    prefix: Ints | None = None

    @property
    def has_disjoint_samples(self) -> bool:
        """True unless reading a sample reads bytes of the next one too: neighbours in `indexed` share a token."""
        sizes = np.array([self.dataset.constant_size or 1])
        return not (self.form.length(sizes) > sample_strides(self.form, sizes)).any()

    @property
    def has_single_ranges(self) -> bool:
        """True: one range for each sample."""
        return True

    @property
    def read_bytes(self) -> int | None:
        """Bytes of a sample with its frame, if all have one size."""
        size = self.dataset.constant_size
        return None if size is None else int(self.form.length(np.array([size]))[0])

    def locate(self, samples: Ints) -> tuple[Ints, Ints, Ints]:
        """Return file, offset and length of each sample, by closed forms or by `prefix`."""
        files, header = self.dataset.layout.files, self.form.header
        file = self.files_of(samples)
        if files >= self.dataset.samples:  # at most one sample in a file
            offset = np.full(len(samples), header, np.int64)
        else:
            offset = self.bytes_before(samples)
            offset += header
            if files > 1:
                offset -= self._bytes_before_files(file)
        return file, offset, self.form.length(sample_sizes(self.dataset, samples))

    def file_sizes(self, files: Ints) -> Ints:
        """Return the bytes of each file: its header, its samples with the bytes around each, and its trailer."""
        dataset = self.dataset
        first, last = self.first_samples(files), self.first_samples(files + 1)
        if dataset.layout.files < dataset.samples:
            sizes = self._bytes_before_files(files + 1)
            sizes -= self._bytes_before_files(files)
        else:
            holds = first < last
            sizes = np.zeros(len(files), np.int64)
            sizes[holds] = sample_strides(self.form, sample_sizes(dataset, first[holds]))
        sizes += self.form.header
        return sizes + self.form.trailer(last - first, sizes)

    def samples_end(self, file: int) -> int:
        """Return the offset at which the last sample of a file ends, or its header if it has none."""
        first, last = self.samples_of(file)
        if first == last:
            return self.form.header
        final = np.array([last - 1])
        return int((self.locate(final)[1] + sample_strides(self.form, sample_sizes(self.dataset, final)))[0])

    def parts(self, ranks: int, rank: int) -> Iterator[FilePart]:
        """Return the parts of files that `rank` writes; those of all ranks cover every byte of every file once.

        Ranks share files as in `sample_parts`, unless a checksum covers the whole file.
        """
        files = self.dataset.layout.files
        if files >= ranks or self.form.checksum is not None:
            return self._whole_file_parts(range(rank, files, ranks))
        return self._share_parts(ranks, rank)

    def read_ranges(self, extents: Extents) -> ReadRanges:
        """Return samples as they are planned: one range each."""
        zeros = np.zeros(len(extents.sample), np.int64)
        if self.form.bare:  # without drawing sizes again
            return ReadRanges(extents, zeros, zeros, extents.length, zeros, zeros)
        at, held = self.form.content(sample_sizes(self.dataset, extents.sample))
        return ReadRanges(extents, at, zeros, held, zeros, zeros)

    def bytes_before(self, samples: Ints) -> Ints:
        """Return the bytes that all samples before each of `samples` take in their files; a sample may be N, for all.

        Raises PlanError if sizes vary and there is no `prefix`.
        """
        dataset, prefix = self.dataset, self.prefix
        if dataset.constant_size is not None:
            return samples * int(sample_strides(self.form, np.array([dataset.constant_size]))[0])
        if prefix is None:
            raise PlanError(f"data set {dataset.name}: block totals are needed to place samples of varying size")
        if len(prefix) > dataset.samples:
            return prefix[samples]
        result = np.empty(len(samples), np.int64)
        for first in range(0, len(samples), BLOCKS_AT_ONCE):
            piece = samples[first : first + BLOCKS_AT_ONCE]
            result[first : first + len(piece)] = prefix[piece // BLOCK] + self._bytes_before_in_block(piece)
        return result

    def _whole_file_parts(self, owned: range) -> Iterator[FilePart]:
        for begin in range(0, len(owned), _PARTS_AT_ONCE):
            piece = owned[begin : begin + _PARTS_AT_ONCE]
            files = np.arange(piece.start, piece.stop, piece.step)
            columns = files, self.file_sizes(files), self.first_samples(files), self.first_samples(files + 1)
            for file, size, first, last in zip(*(column.tolist() for column in columns), strict=True):
                yield FilePart(file, 0, size, first, last, True)

    def _share_parts(self, ranks: int, rank: int) -> Iterator[FilePart]:
        def offset_of(sample: int) -> int:
            return int(self.locate(np.array([sample]))[1][0])

        for part in sample_parts(self.dataset, ranks, rank):
            offset = 0 if part.first else offset_of(part.first_sample)
            until = self.file_size(part.file) if part.last else offset_of(part.last_sample)
            yield replace(part, offset=offset, length=until - offset)
        # Files without samples (more files than samples) have only a header and a trailer.
        for file in range(rank, self.dataset.layout.files, ranks):
            start, stop = self.samples_of(file)
            if start == stop:
                yield FilePart(file, 0, self.file_size(file), start, stop, True)

    def _bytes_before_in_block(self, samples: Ints) -> Ints:
        blocks, row = np.unique(samples // BLOCK, return_inverse=True)
        members = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        sizes = sample_strides(self.form, sample_sizes(self.dataset, members)).reshape(-1, BLOCK)
        before = np.zeros((len(blocks), BLOCK), np.int64)
        np.cumsum(sizes[:, :-1], axis=1, out=before[:, 1:])
        return before[row, samples % BLOCK]

    def _bytes_before_files(self, file: Ints) -> Ints:
        if self.dataset.constant_size is not None:
            return self.bytes_before(self.first_samples(file))
        distinct, row = np.unique(file, return_inverse=True)
        return self.bytes_before(self.first_samples(distinct))[row]


@dataclass(frozen=True, eq=False)
class IndexedPlaces(Places):
    """The places of samples by the indexes of the files that hold them."""

    #: the indexes of all files
    index: DataIndex
    plans_shared_bytes = True

    @property
    def has_disjoint_samples(self) -> bool:
        """True if the index says so."""
        return self.index.has_disjoint_samples

    @property
    def has_plain_samples(self) -> bool:
        """True if they are rows of one column, and all of these are in the files."""
        column = self.index.columns[0]
        whole = (column.pieces <= 1).all() and column.row_bytes.all() and column.length.all()
        return len(self.index.columns) == 1 and bool(whole)

    @property
    def read_bytes(self) -> int | None:
        """Bytes of a row, if the rows of all files have one size."""
        rows = self.index.columns[0].row_bytes
        length = int(rows.max(initial=0))
        return length if self.has_plain_samples and (rows == length).all() else None

    def files_of(self, samples: Ints) -> Ints:
        """Return the file of each sample, by the index."""
        return self.index.files_of(samples)

    def first_samples(self, files: Ints) -> Ints:
        """Return the first sample of each file, by the index."""
        return self.index.first_sample[files]

    def locate(self, samples: Ints) -> tuple[Ints, Ints, Ints]:
        """Return file, first offset and bytes of each sample; samples that share an encoded unit share its bytes."""
        return sample_places(self.index, samples)

    def file_sizes(self, files: Ints) -> Ints:
        """Return the bytes of each file, by the index."""
        return self.index.size[files]

    def read_ranges(self, extents: Extents) -> ReadRanges:
        """Return the ranges that the index gives for samples; a range that samples of a step share appears once."""
        if self.index.has_common_units:  # one of the samples of a unit has all ranges of the others
            extents = extents.select(self.index.find_first_of_units(extents.sample, extents.row_steps()))
        found = locate_ranges(self.index, extents.sample)
        starts = np.searchsorted(found.row, extents.step_start)
        rows = Extents(extents.sample[found.row], extents.file[found.row], found.offset, found.length, starts)
        held = np.where((found.begin >= 0) & (not self.dataset.source), found.length, 0)
        zeros = np.zeros(len(held), np.int64)
        stored = ReadRanges(rows, zeros, np.maximum(found.begin, 0), held, found.column, found.piece)
        return stored.drop_duplicates() if (found.begin < 0).any() else stored

    def first_columns(self, count: int) -> IndexedPlaces:
        """Return the places of the same samples where only the first columns of their table are read."""
        form = replace(self.form, dataset=self.dataset.first_columns(count))
        return replace(self, form=form, index=replace(self.index, columns=self.index.columns[:count]))

    def drop_units(self) -> IndexedPlaces:
        """Return the same places without the offsets and lengths of units, which may be many."""
        columns = tuple(replace(one, offset=_NO_UNITS, length=_NO_UNITS, first=None) for one in self.index.columns)
        return replace(self, index=replace(self.index, columns=columns))

    def library_bytes(self, samples: Ints) -> Ints:
        """Return the bytes of each sample, of existing files by their indexes."""
        if not self.dataset.source:
            return super().library_bytes(samples)
        return self.index.sample_bytes[self.files_of(samples)]

    def decoder_column(self, number: int, file: int) -> Column:
        """Return column `number` of a file without its units."""
        one = self.index.columns[number]
        return Column(
            int(one.samples[file]),
            int(one.pieces[file]),
            int(one.row_bytes[file]),
            int(one.unit_bytes[file]),
            _NO_UNITS,
            _NO_UNITS,
            self.index.pipelines[int(one.pipeline[file])],
        )
