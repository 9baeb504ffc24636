"""Where the samples of files lie whose own indexes say it: those of all files together, asked for by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.formats.protocols import Column, FileIndex, Filter

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """Existing files: their paths, in order, and what their own indexes say."""

    #: path of each file below the root
    names: list[str]
    #: whether that path leads to its file by symbolic links; one a file
    linked: list[bool]
    #: the index of each file
    indexes: list[FileIndex]


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A `contract.Column` of all files: one entry a file, and of `offset` and `length` one a unit.

    The units of file f begin at first_unit[f]. `pipeline` is a row of `DataIndex.pipelines`. `first` has the first
    sample of each unit (of all, not of its file) where units hold different numbers of them. `step` is as in `Column`.
    """

    samples: Ints
    pieces: Ints
    row_bytes: Ints
    unit_bytes: Ints
    pipeline: Ints
    first_unit: Ints
    offset: Ints
    length: Ints
    first: Ints | None = None
    step: Ints | None = None

    def locate_units(self, file: Ints, within: Ints, samples: Ints) -> tuple[Ints, Ints, Ints]:
        """The (first) unit of each sample, which of its samples that is, and the bytes that it lies behind its offset.

        `within` counts samples in their file.
        """
        if self.first is not None:
            unit = np.searchsorted(self.first, samples, side="right") - self.pieces[file]
            return unit, samples - self.first[unit], np.zeros_like(unit)
        each = self.samples[file]
        group, inside = within // each, within % each
        if self.step is None:
            return self.first_unit[file] + group * self.pieces[file], inside, np.zeros_like(group)
        step = self.step[file]
        listed: Ints = np.where(step > 0, 0, group)
        return self.first_unit[file] + listed * self.pieces[file], inside, group * step


@dataclass(frozen=True, slots=True)
class DataIndex:
    """Of F files the first sample of each (F + 1 entries), their bytes, and where samples lie. All int64.

    `sample_bytes` is what the format's library gives for a sample of each file, 0 where that is not one size.
    """

    first_sample: Ints
    size: Ints
    columns: tuple[IndexColumn, ...]
    pipelines: tuple[tuple[Filter, ...], ...]
    sample_bytes: Ints

    @property
    def has_disjoint_samples(self) -> bool:
        """Whether each sample is one range of bytes, and no other sample has any of it."""
        return len(self.columns) == 1 and all(
            bool(((one.pieces == 1) & ((one.row_bytes > 0) | (one.samples == 1))).all()) for one in self.columns
        )

    def files_of(self, samples: Ints) -> Ints:
        """The file of each sample."""
        return np.searchsorted(self.first_sample, samples, side="right") - 1


Places: TypeAlias = DataIndex | Ints | None
"""What it takes to place the samples of a data set: its files' indexes, the sums of `plan.sizes`, or nothing."""


@dataclass(frozen=True, slots=True)
class SampleRanges:
    """Ranges of files that hold samples, those of a sample one after the other. int64.

    Range i belongs to row `row[i]` of what was asked for. It holds the sample's contents from byte `begin[i]` on, or
    (-1) a whole encoded unit: of `column[i]`, and where a sample takes several of these, its piece `piece[i]`.
    """

    row: Ints
    column: Ints
    piece: Ints
    offset: Ints
    length: Ints
    begin: Ints


def locate_ranges(index: DataIndex, samples: Ints) -> SampleRanges:
    """All ranges of samples; units that take no room in their file are left out."""
    file = index.files_of(samples)
    within = samples - index.first_sample[file]
    made, before = [], np.zeros(len(samples), np.int64)
    for number, column in enumerate(index.columns):
        made.append(_column_ranges(column, number, file, column.locate_units(file, within, samples), before))
        before = before + column.row_bytes[file]
    row = np.concatenate([one.row for one in made])
    order = np.argsort(row, kind="stable")
    order = order[np.concatenate([one.length for one in made])[order] > 0]
    return SampleRanges(
        *(np.concatenate([getattr(one, name) for one in made])[order] for name in SampleRanges.__slots__)
    )


def _column_ranges(
    column: IndexColumn, number: int, file: Ints, units: tuple[Ints, Ints, Ints], before: Ints
) -> SampleRanges:
    """The ranges of one column; `before` is where in a sample's contents it begins."""
    pieces = column.pieces[file]
    row = np.repeat(np.arange(len(file)), pieces)
    ends = np.cumsum(pieces)
    head = np.repeat(ends - pieces, pieces)
    piece = np.arange(len(row)) - head
    file, unit, inside, behind = file[row], units[0][row] + piece, units[1][row], units[2][row]
    whole, row_bytes = column.length[unit], column.row_bytes[file]
    # A piece begins where the one before it ends: where an inner dimension is cut, some are shorter than the others.
    cut = np.cumsum(whole) - whole
    cut -= cut[head]
    offset = column.offset[unit] + behind + np.where(row_bytes > 0, inside * row_bytes, 0)
    several = column.pieces[file] > 1
    length = np.where(several, np.minimum(row_bytes - cut, whole), np.where(whole > 0, row_bytes, 0))
    length = np.where(row_bytes == 0, whole, length)
    begin = np.where(row_bytes > 0, before[row] + cut, -1)
    return SampleRanges(row, np.full(len(row), number), piece, offset, length, begin)


def sample_places(index: DataIndex, samples: Ints) -> tuple[Ints, Ints, Ints]:
    """File, first offset and bytes of each sample; of an encoded unit that several share, each has an even part."""
    file = index.files_of(samples)
    within = samples - index.first_sample[file]
    offset, total = np.zeros(len(samples), np.int64), np.zeros(len(samples), np.int64)
    for number, column in enumerate(index.columns):
        unit, row, behind = column.locate_units(file, within, samples)
        row_bytes = column.row_bytes[file]
        if number == 0:
            offset = column.offset[unit] + behind + row * row_bytes
        running = np.zeros(len(column.length) + 1, np.int64)
        np.cumsum(column.length, out=running[1:])
        stored = running[unit + column.pieces[file]] - running[unit]
        share = stored // _samples_per_unit(index, column, file, unit, within - row)
        total += np.where(row_bytes > 0, np.minimum(row_bytes, stored), share)
    return file, offset, total


def _samples_per_unit(index: DataIndex, column: IndexColumn, file: Ints, unit: Ints, begin: Ints) -> Ints:
    """How many samples share each unit, the first of which is the one `begin` of its file."""
    left = index.first_sample[file + 1] - index.first_sample[file] - begin
    if column.first is None:
        most = column.samples[file]
    else:
        most = np.append(column.first, index.first_sample[-1])[unit + column.pieces[file]] - column.first[unit]
    held: Ints = np.minimum(most, left)
    return held


def concat_indexes(files: Sequence[FileIndex]) -> DataIndex:
    """The indexes of files as one, in their order; all have as many columns."""
    pipelines: dict[tuple[Filter, ...], int] = {}
    columns = []
    first = _starts(np.array([file.samples for file in files], np.int64))
    for number in range(len(files[0].columns)):
        own = [file.columns[number] for file in files]
        columns.append(
            IndexColumn(
                np.array([one.samples for one in own], np.int64),
                np.array([one.pieces for one in own], np.int64),
                np.array([one.row_bytes for one in own], np.int64),
                np.array([one.unit_bytes for one in own], np.int64),
                np.array([pipelines.setdefault(one.filters, len(pipelines)) for one in own], np.int64),
                _starts(np.array([len(one.offset) for one in own], np.int64)),
                np.concatenate([one.offset for one in own]).astype(np.int64),
                np.concatenate([one.length for one in own]).astype(np.int64),
                _first_of_units(own, first),
                np.array([one.step for one in own], np.int64) if any(one.step for one in own) else None,
            )
        )
    sizes, sample_bytes = (
        np.array([getattr(file, name) for file in files], np.int64) for name in ("size", "sample_bytes")
    )
    return DataIndex(first, sizes, tuple(columns), tuple(pipelines), sample_bytes)


def repeat_index(index: DataIndex, kind: Ints) -> DataIndex:
    """The index of files of which file f is as number kind[f] of `index`; files of a kind share its units."""
    samples = np.diff(index.first_sample)[kind]
    columns = tuple(
        IndexColumn(
            one.samples[kind],
            one.pieces[kind],
            one.row_bytes[kind],
            one.unit_bytes[kind],
            one.pipeline[kind],
            one.first_unit[kind],
            one.offset,
            one.length,
            step=None if one.step is None else one.step[kind],
        )
        for one in index.columns
    )
    return DataIndex(_starts(samples), index.size[kind], columns, index.pipelines, index.sample_bytes[kind])


def _first_of_units(own: Sequence[Column], first_sample: Ints) -> Ints | None:
    if all(one.first is None for one in own):
        return None
    return np.concatenate([first_of_units(one) + first for one, first in zip(own, first_sample[:-1], strict=True)])


def first_of_units(column: Column) -> Ints:
    """The first sample, in its file, of each unit of a column."""
    if column.first is not None:
        return column.first
    return np.arange(len(column.offset)) // column.pieces * column.samples


def _starts(counts: Ints) -> Ints:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts
