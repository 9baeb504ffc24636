"""The places of samples in files whose own indexes give them: one index of all files, searched by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.formats.protocols import Column, FileIndex, Filter, Ints
from dliosim.plan.samples.sample_to_file import prefix_sum


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A `protocols.Column` of all files: one entry a file, except where a field says otherwise."""

    samples: Ints  #: samples of a unit
    pieces: Ints  #: units of a sample, if a sample takes several
    row_bytes: Ints  #: bytes of a sample in the column; 0 in an encoded unit
    unit_bytes: Ints  #: decoded bytes of a unit
    pipeline: Ints  #: row of `DataIndex.pipelines`
    first_unit: Ints  #: first unit of each file
    offset: Ints  #: first byte of each unit
    length: Ints  #: bytes of each unit
    #: first sample of each unit, counted over all files, if units hold different numbers of samples; else None
    first: Ints | None = None
    step: Ints | None = None  #: as in `protocols.Column`

    def locate_units(self, file: Ints, within: Ints, samples: Ints) -> tuple[Ints, Ints, Ints]:
        """Return for each sample its (first) unit, its number in the unit, and the bytes from the unit's offset to add.

        `within` is the number of each sample in its file.
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
    """The places of the samples of F files. All int64."""

    first_sample: Ints  #: first sample of each file, and the number of samples, (F + 1,)
    size: Ints  #: bytes of each file, (F,)
    columns: tuple[IndexColumn, ...]  #: columns of a sample
    pipelines: tuple[tuple[Filter, ...], ...]  #: filters that units are encoded with
    sample_bytes: Ints  #: bytes that the format's library gives for a sample of each file, 0 if sizes differ, (F,)

    @property
    def has_disjoint_samples(self) -> bool:
        """Return whether each sample is one range of bytes that no other sample shares."""
        return len(self.columns) == 1 and all(
            bool(((one.pieces == 1) & ((one.row_bytes > 0) | (one.samples == 1))).all()) for one in self.columns
        )

    @property
    def has_common_units(self) -> bool:
        """Return whether units are read whole and those of all columns hold the same samples, as row groups do."""
        one = self.columns[0]
        return all(
            bool((other.pieces == 1).all() and (other.row_bytes == 0).all())
            and np.array_equal(other.samples, one.samples)
            and (other.first is one.first or np.array_equal(other.first, one.first))  # type: ignore[arg-type]
            and (other.step is None) == (one.step is None)
            for other in self.columns
        )

    def files_of(self, samples: Ints) -> Ints:
        """Return the file of each sample."""
        return np.searchsorted(self.first_sample, samples, side="right") - 1

    def find_first_of_units(self, samples: Ints, step: Ints) -> NDArray[np.bool_]:
        """Return for each sample whether it is the first in its step of those that share its unit of column 0."""
        file = self.files_of(samples)
        unit, _, behind = self.columns[0].locate_units(file, samples - self.first_sample[file], samples)
        keys = (behind, unit, file, step)
        order = np.lexsort(keys)
        first = np.ones(len(samples), np.bool_)
        first[order[1:]] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
        return first


@dataclass(frozen=True, slots=True)
class SampleRanges:
    """Ranges of files that hold samples; those of a sample follow one another. int64 (ranges,)."""

    row: Ints  #: index in the samples that were asked for
    column: Ints  #: number of the column
    piece: Ints  #: number of an encoded unit among those of its sample
    offset: Ints  #: first byte in the file
    length: Ints  #: bytes
    begin: Ints  #: first byte of the sample's contents in the range; -1 for a whole encoded unit


def locate_ranges(index: DataIndex, samples: Ints) -> SampleRanges:
    """Return all ranges of samples; units that take no bytes in their file are left out."""
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
    """Return the ranges of one column; it begins at byte `before` of a sample's contents."""
    pieces = column.pieces[file]
    row = np.repeat(np.arange(len(file)), pieces)
    ends = np.cumsum(pieces)
    head = np.repeat(ends - pieces, pieces)
    piece = np.arange(len(row)) - head
    file, unit, inside, behind = file[row], units[0][row] + piece, units[1][row], units[2][row]
    whole, row_bytes = column.length[unit], column.row_bytes[file]
    # A piece begins where the one before it ends: pieces differ in length where an inner dimension is cut.
    cut = np.cumsum(whole) - whole
    cut -= cut[head]
    offset = column.offset[unit] + behind + np.where(row_bytes > 0, inside * row_bytes, 0)
    several = column.pieces[file] > 1
    length = np.where(several, np.minimum(row_bytes - cut, whole), np.where(whole > 0, row_bytes, 0))
    length = np.where(row_bytes == 0, whole, length)
    begin = np.where(row_bytes > 0, before[row] + cut, -1)
    return SampleRanges(row, np.full(len(row), number), piece, offset, length, begin)


def sample_places(index: DataIndex, samples: Ints) -> tuple[Ints, Ints, Ints]:
    """Return file, first offset and bytes of each sample.

    The samples of an encoded unit share its bytes evenly, in whole bytes whose sum is that of the unit. So a sample has
    0 bytes if a unit has more samples than bytes, as masks and labels have once they are compressed.
    """
    file = index.files_of(samples)
    within = samples - index.first_sample[file]
    offset, total = np.zeros(len(samples), np.int64), np.zeros(len(samples), np.int64)
    for number, column in enumerate(index.columns):
        unit, row, behind = column.locate_units(file, within, samples)
        row_bytes = column.row_bytes[file]
        if number == 0:
            offset = column.offset[unit] + behind + row * row_bytes
        running = prefix_sum(column.length)
        stored = running[unit + column.pieces[file]] - running[unit]
        each, rest = np.divmod(stored, held := _samples_per_unit(index, column, file, unit, within - row))
        share = each + (row + 1) * rest // held - row * rest // held
        total += np.where(row_bytes > 0, np.minimum(row_bytes, stored), share)
    return file, offset, total


def _samples_per_unit(index: DataIndex, column: IndexColumn, file: Ints, unit: Ints, begin: Ints) -> Ints:
    """Return the number of samples that share each unit; `begin` is the unit's first sample in its file."""
    left = index.first_sample[file + 1] - index.first_sample[file] - begin
    if column.first is None:
        most = column.samples[file]
    else:
        most = np.append(column.first, index.first_sample[-1])[unit + column.pieces[file]] - column.first[unit]
    held: Ints = np.minimum(most, left)
    return held


def concat_indexes(files: Sequence[FileIndex]) -> DataIndex:
    """Return the indexes of files as one, in their order; all have the same number of columns."""
    pipelines: dict[tuple[Filter, ...], int] = {}
    columns = []
    first = prefix_sum(_gather(files, "samples"))
    for number in range(len(files[0].columns)):
        own = [file.columns[number] for file in files]
        columns.append(
            IndexColumn(
                _gather(own, "samples"),
                _gather(own, "pieces"),
                _gather(own, "row_bytes"),
                _gather(own, "unit_bytes"),
                np.array([pipelines.setdefault(one.filters, len(pipelines)) for one in own], np.int64),
                prefix_sum(np.array([len(one.offset) for one in own], np.int64)),
                np.concatenate([one.offset for one in own]).astype(np.int64),
                np.concatenate([one.length for one in own]).astype(np.int64),
                np.concatenate([first_of_units(one) + start for one, start in zip(own, first[:-1], strict=True)])
                if any(one.first is not None for one in own)
                else None,
                _gather(own, "step") if any(one.step for one in own) else None,
            )
        )
    return DataIndex(first, _gather(files, "size"), tuple(columns), tuple(pipelines), _gather(files, "sample_bytes"))


def _gather(items: Sequence[object], name: str) -> Ints:
    """Return an attribute of each item."""
    return np.array([getattr(item, name) for item in items], np.int64)


def repeat_index(index: DataIndex, kind: Ints) -> DataIndex:
    """Return the index of files where file f is like file kind[f] of `index`; files of a kind share its units."""
    samples = np.diff(index.first_sample)[kind]
    of_files = ("samples", "pieces", "row_bytes", "unit_bytes", "pipeline", "first_unit")
    columns = []
    for one in index.columns:
        repeated: dict[str, Any] = {name: getattr(one, name)[kind] for name in of_files}
        step = None if one.step is None else one.step[kind]
        columns.append(replace(one, first=None, step=step, **repeated))
    return DataIndex(prefix_sum(samples), index.size[kind], tuple(columns), index.pipelines, index.sample_bytes[kind])


def first_of_units(column: Column) -> Ints:
    """Return the first sample, counted in its file, of each unit of a column."""
    if column.first is not None:
        return column.first
    return np.arange(len(column.offset)) // column.pieces * column.samples
