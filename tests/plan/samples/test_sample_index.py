"""Ranges of samples in files of any layout, held against the plain walk through one file's index."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dliosim.formats.contract_tests import sample_ranges
from dliosim.formats.protocols import Column, FileIndex, Filter
from dliosim.formats.registry import bind
from dliosim.model import Dataset, Layout, constant
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.places import IndexedPlaces
from dliosim.plan.samples.sample_index import concat_indexes, locate_ranges, repeat_index, sample_places


@st.composite
def columns(draw: st.DrawFn, count: int) -> Column:
    """A column of `count` samples: rows in units, units of several samples that are encoded, or pieces."""
    kind = draw(st.sampled_from(["rows", "encoded", "pieces", "encoded pieces", "uneven"]))
    filters = (Filter("deflate", (4,)),) if "encoded" in kind else ()
    row = draw(st.integers(1, 50))
    if "pieces" in kind:
        # A sample is several runs, each cut in units; the last unit is shorter where they do not divide it.
        unit, runs = draw(st.integers(1, row)), draw(st.integers(1, 3))
        along = -(-row // unit)
        length = np.full(count * runs * along, unit)
        if "encoded" not in kind:
            length[along - 1 :: along] = row - (along - 1) * unit
        row_bytes = 0 if "encoded" in kind else runs * row
        return Column(1, runs * along, row_bytes, unit, places(draw, length), length, filters)
    each = draw(st.integers(1, 5))
    units = -(-count // each)
    length = np.full(units, each * row)
    if kind == "rows":
        return Column(each, 1, row, each * row, places(draw, length), length)
    length = np.array(draw(st.lists(st.integers(0, 60), min_size=units, max_size=units)), np.int64)
    if kind == "encoded":
        return Column(each, 1, 0, each * row, places(draw, length), length, filters)
    cuts = draw(st.lists(st.integers(1, max(count - 1, 1)), max_size=4))
    first = np.unique([0, *(cut for cut in cuts if cut < count)]).astype(np.int64)
    length = np.arange(1, len(first) + 1) * 10
    return Column(count, 1, 0, count * row, places(draw, length), length, filters, first)


def places(draw: st.DrawFn, length: np.ndarray) -> np.ndarray:
    """Units somewhere, in any order, none over another."""
    order = np.array(draw(st.permutations(range(len(length)))), np.int64)
    offset = np.empty(len(length), np.int64)
    offset[order] = np.cumsum(length[order]) - length[order] + 100
    return offset


@st.composite
def files(draw: st.DrawFn) -> list[FileIndex]:
    wide = draw(st.integers(1, 3))
    result = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 9))
        result.append(FileIndex(count, 10_000, tuple(draw(columns(count)) for _ in range(wide))))
    return result


@given(files())
def test_ranges_are_those_of_each_files_own_index(made: list[FileIndex]) -> None:
    index = concat_indexes(made)
    total = sum(one.samples for one in made)
    samples = np.random.default_rng(len(made)).permutation(np.repeat(np.arange(total), 2))
    found = locate_ranges(index, samples)
    file = index.files_of(samples)
    for row, sample in enumerate(samples.tolist()):
        mine = found.row == row
        inside = sample - int(index.first_sample[file[row]])
        expected = [one for one in sample_ranges(made[int(file[row])], inside) if one[1]]
        assert list(zip(found.offset[mine].tolist(), found.length[mine].tolist(), strict=True)) == expected


@given(files())
def test_parts_of_a_sample_follow_each_other_in_its_contents(made: list[FileIndex]) -> None:
    index = concat_indexes(made)
    total = int(index.first_sample[-1])
    found = locate_ranges(index, np.arange(total))
    plain = all(column.row_bytes for one in made for column in one.columns)
    if plain:
        for row in range(total):
            mine = found.row == row
            begin, length = found.begin[mine], found.length[mine]
            assert begin.tolist() == (np.cumsum(length) - length).tolist()
            assert int(sample_places(index, np.array([row]))[2][0]) == int(length.sum())
    file = index.files_of(np.arange(total))[found.row]
    for number, column in enumerate(index.columns):
        mine = found.column == number
        assert ((found.begin[mine] < 0) == (column.row_bytes[file[mine]] == 0)).all()


@given(files())
def test_samples_that_share_a_unit_have_all_of_its_bytes_together_and_each_an_even_part(made: list[FileIndex]) -> None:
    index = concat_indexes(made)
    _, _, length = sample_places(index, np.arange(index.first_sample[-1]))
    for number, one in enumerate(made):
        if all(column.row_bytes == 0 for column in one.columns):
            found = length[index.first_sample[number] : index.first_sample[number + 1]]
            assert found.sum() == sum(int(column.length.sum()) for column in one.columns)
    shared = Column(1_000, 1, 0, 100_000, np.array([50]), np.array([1_300]))
    _, _, length = sample_places(concat_indexes([FileIndex(900, 10_000, (shared,))]), np.arange(900))
    assert (length.sum(), length.min(), length.max()) == (1_300, 1, 2)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1), st.lists(st.integers(0, 1), min_size=1, max_size=4))
def test_units_that_repeat_are_where_they_would_be_if_all_were_listed(
    pieces: int, each: int, encoded: int, kinds: list[int]
) -> None:
    each = 1 if pieces > 1 else each
    length = np.arange(pieces) * 3 + 6 * each
    row_bytes = 0 if encoded else int(length.sum()) // each
    step = int(length.sum()) + 5

    def file(groups: int, listed: bool) -> FileIndex:
        begin = 100 + np.cumsum(length) - length
        offsets = (begin + step * np.arange(groups)[:, np.newaxis]).ravel()
        units = (offsets, np.tile(length, groups)) if listed else (begin, length)
        column = Column(each, pieces, row_bytes, 99, *units, step=0 if listed else step)
        return FileIndex(groups * each, 10_000, (column,))

    short = repeat_index(concat_indexes([file(4, listed=False), file(5, listed=False)]), np.array(kinds))
    full = concat_indexes([file(4 + kind, listed=True) for kind in kinds])
    assert (short.first_sample == full.first_sample).all()
    samples = np.arange(full.first_sample[-1])[::-1]
    for found, expected in zip(sample_places(short, samples), sample_places(full, samples), strict=True):
        assert (found == expected).all()
    found, expected = locate_ranges(short, samples), locate_ranges(full, samples)
    assert all((getattr(found, name) == getattr(expected, name)).all() for name in found.__slots__)


@st.composite
def row_groups(draw: st.DrawFn) -> list[FileIndex]:
    """Files of row groups: units of all columns hold the same samples; in some of the lists they hold others."""
    wide, is_uneven, result = draw(st.integers(1, 3)), draw(st.booleans()), []
    for _ in range(draw(st.integers(1, 3))):
        count, each = draw(st.integers(1, 12)), draw(st.integers(1, 5))
        first = np.unique([0, *draw(st.lists(st.integers(0, count - 1), max_size=3))]) if is_uneven else None
        units = -(-count // each) if first is None else len(first)
        made = []
        for _ in range(wide):
            length = np.array(draw(st.lists(st.integers(0, 60), min_size=units, max_size=units)), np.int64)
            other = count if first is not None else draw(st.sampled_from([each, each, each, each + 1]))
            made.append(Column(other, 1, 0, 10, places(draw, length), length, first=first))
        result.append(FileIndex(count, 10_000, tuple(made)))
    return result


@given(st.one_of(row_groups(), files()), st.data())
def test_samples_that_share_units_read_them_once_a_step(listed: list[FileIndex], data: st.DataObject) -> None:
    shifted = [[replace(one, offset=one.offset + 9999 * n) for n, one in enumerate(file.columns)] for file in listed]
    index = concat_indexes([replace(file, columns=tuple(made)) for file, made in zip(listed, shifted, strict=True)])
    total = int(index.first_sample[-1])
    steps = data.draw(st.lists(st.lists(st.integers(0, total - 1), max_size=8), min_size=1, max_size=3))
    sample = np.array([one for step in steps for one in step], np.int64)
    zeros, starts = np.zeros_like(sample), np.cumsum([0, *map(len, steps)])
    dataset = Dataset("d", 1, total, constant(1), Layout("files", len(listed)), "d", format="parquet")
    found = IndexedPlaces(bind(dataset), index).read_ranges(
        Extents(sample, index.files_of(sample), zeros, zeros, starts)
    )
    ends = found.extents.step_start.tolist()
    for number, step in enumerate(steps):
        expected = {}
        for one in step:
            ranges = locate_ranges(index, np.array([one]))
            file = int(index.files_of(np.array([one]))[0])
            for offset, length, begin in zip(ranges.offset, ranges.length, ranges.begin, strict=True):
                known = (file, int(offset), int(length), 0 if begin < 0 else len(expected))
                expected.setdefault(known, one)
        rows = slice(ends[number], ends[number + 1])
        got = (found.extents.file[rows], found.extents.offset[rows], found.extents.length[rows])
        assert list(zip(*(column.tolist() for column in got), strict=True)) == [known[:3] for known in expected]
        assert found.extents.sample[rows].tolist() == list(expected.values())
