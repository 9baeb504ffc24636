"""Contents that compress, or are text: any part of a sample can be made and checked by itself."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.execute.payload.payload_format import (
    content_edge_words,
    dress_function,
    fill_part,
    fill_samples,
    find_bad_content,
)
from dliosim.execute.payload.sample_bytes import edges_match
from dliosim.formats.registry import bind
from dliosim.model import Dataset, Layout, constant
from tests.examples import examples

DATASET = Dataset("d", 3, 10, constant(5000), Layout("shared file", 1), "d")
THIN = replace(DATASET, compressible=2.0)
KINDS = [DATASET, THIN, replace(DATASET, compressible=3.7), replace(DATASET, format="csv")]


def whole(dataset: Dataset, key: int, size: int) -> bytes:
    out = bytearray(size)
    fill_part(dress_function(bind(dataset)), key, 0, memoryview(out))
    return bytes(out)


@pytest.mark.parametrize("dataset", KINDS)
@settings(max_examples=examples(40))
@given(st.integers(0, 2**64 - 1), st.integers(0, 6000), st.integers(0, 3000))
def test_a_part_is_what_the_whole_has_there(dataset: Dataset, key: int, begin: int, length: int) -> None:
    part = bytearray(length)
    fill_part(dress_function(bind(dataset)), key, begin, memoryview(part))
    assert bytes(part) == whole(dataset, key, 9000)[begin : begin + length]


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_contents_compress_by_about_the_ratio_asked(ratio: float) -> None:
    data = whole(replace(DATASET, compressible=ratio), 77, 1 << 20)
    assert len(data) / len(zlib.compress(data, 4)) == pytest.approx(ratio, rel=0.08)


@pytest.mark.parametrize("dataset", KINDS)
@settings(max_examples=examples(40))
@given(st.data())
def test_edges_are_those_of_the_parts_and_a_changed_byte_is_found(dataset: Dataset, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 700)), min_size=1, max_size=6))
    begin, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    key = np.arange(1, len(rows) + 1).astype(np.uint64) * np.uint64(12345)
    start = np.cumsum(length) - length
    out = bytearray(int(length.sum()))
    dress = dress_function(bind(dataset))
    for k, b, n, at in zip(key.tolist(), begin.tolist(), length.tolist(), start.tolist(), strict=True):
        fill_part(dress, k, b, memoryview(out)[at : at + n])
    edges = content_edge_words(dress, key, begin, length)
    assert edges_match(*edges, length, start, memoryview(out)).all()
    assert find_bad_content(dress, key, begin, length, start, memoryview(out)) is None
    bad = data.draw(st.integers(0, len(out) - 1))
    out[bad] ^= 0xFF
    row = int(np.searchsorted(start, bad, side="right")) - 1
    assert find_bad_content(dress, key, begin, length, start, memoryview(out)) == row
    inside = bad - int(start[row])
    if inside < 8 or inside >= int(length[row]) - 8:
        assert edges_match(*edges, length, start, memoryview(out)).tolist() == [i != row for i in range(len(rows))]


@pytest.mark.parametrize("dataset", KINDS)
def test_samples_filled_together_are_those_filled_alone(dataset: Dataset) -> None:
    length = np.array([300, 1, 8, 1000], np.int64)
    start = np.array([5, 310, 311, 400], np.int64)
    out = bytearray(1500)
    fill_samples(dress_function(bind(dataset)), np.array([1, 2, 3, 4], np.uint64), length, start, memoryview(out))
    for key, n, at in zip([1, 2, 3, 4], length.tolist(), start.tolist(), strict=True):
        assert bytes(out[at : at + n]) == whole(dataset, key, n)
