"""Bytes that several ranks ask for are counted once, whatever ranges they ask for them in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import constant
from dliosim.plan.samples import read_ranges
from dliosim.plan.samples.read_ranges import ByteRanges, are_reads_distinct, cut_at_blocks, union_ranges
from tests.plan.helpers import placed, plans
from tests.strategies import datasets, jobs, loops

FAR = 1 << 40
ranges = st.lists(st.tuples(st.sampled_from([0, 3, FAR]), st.integers(0, 60), st.integers(0, 20)), max_size=40)


def columns(found: list[tuple[int, int, int]]) -> ByteRanges:
    """Files, begins and ends of (file, begin, length)."""
    table = np.array(found, np.int64).reshape(-1, 3)
    return ByteRanges(table[:, 0], table[:, 1], table[:, 1] + table[:, 2])


def bytes_in(some: ByteRanges) -> list[tuple[int, int]]:
    """The file and place of each byte."""
    return [
        (file, at) for file, begin, end in zip(*map(np.ndarray.tolist, some), strict=True) for at in range(begin, end)
    ]


@given(ranges)
def test_a_union_has_every_byte_once_in_as_few_ranges_as_there_may_be(found):
    made = union_ranges(*columns(found))
    assert bytes_in(made) == sorted(set(bytes_in(columns(found))))
    assert made.bytes == len(bytes_in(made))
    assert all(
        (file, end) != (after, begin)
        for file, end, after, begin in zip(made.file[:-1], made.end[:-1], made.file[1:], made.begin[1:], strict=True)
    )


@given(ranges, st.sampled_from([1, 7, 64]))
def test_blocks_have_the_same_bytes_and_a_number_each(found, block):
    made = union_ranges(*columns(found))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ranges, "BLOCK", block)
        cut, number = cut_at_blocks(made)
    assert bytes_in(cut) == bytes_in(made)
    assert (cut.begin // block == (cut.end - 1) // block).all()
    assert (number == cut.file + cut.begin // block).all()


@given(datasets(), loops, jobs, st.booleans())
def test_loops_that_are_said_to_read_each_byte_once_do(dataset, loop, job, tokens):
    if tokens:  # a sample has the first of the next one
        dataset = replace(dataset, format="indexed", size=constant(8))
    made = plans(loop, dataset, job, 0)
    table = [np.concatenate([getattr(plan, name) for plan in made]) for name in ("file", "offset", "length")]
    asked = union_ranges(table[0], table[1], table[1] + table[2])
    if are_reads_distinct(loop, placed(dataset), job.ranks):
        assert asked.bytes == table[2].sum()
