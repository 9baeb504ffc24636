"""Prepared data are incompressible, different everywhere, and the same from wherever they are made."""

from __future__ import annotations

import lzma
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dliosim.execute.payload.sample_bytes import (
    CHUNK,
    edge_words,
    edges_match,
    fill_batch,
    fill_range,
    first_bad_sample,
    first_mismatch,
    sample_keys,
)
from dliosim.model import Dataset, Layout, constant
from tests.examples import examples


def stream(key: int, start: int, length: int) -> bytearray:
    out = bytearray(length)
    fill_range(key, start, memoryview(out))
    return out


def edges_are_right(
    keys: NDArray[np.uint64], lengths: NDArray[np.int64], starts: NDArray[np.int64], data: memoryview
) -> NDArray[np.bool_]:
    """Return for each sample in `data` whether its first and last eight bytes are right, as a run checks them."""
    return edges_match(*edge_words(keys, np.zeros_like(lengths), lengths), lengths, starts, data)


def dataset(**changes: object) -> Dataset:
    fields = {"name": "d", "seed": 1, "samples": 100, "size": constant(4096), "path": "d"}
    return Dataset(layout=Layout("shared file", 1), **{**fields, **changes})  # type: ignore[arg-type]


@settings(max_examples=examples(200))
@given(
    key=st.integers(0, 2**64 - 1),
    start=st.one_of(st.integers(0, 100), st.integers(CHUNK - 20, CHUNK + 20), st.integers(0, 2**50)),
    length=st.one_of(st.integers(0, 40), st.integers(CHUNK - 20, CHUNK + 40)),
    before=st.integers(0, 50),
    shift=st.integers(0, 9),
)
def test_bytes_depend_on_key_and_position_only(key: int, start: int, length: int, before: int, shift: int) -> None:
    before = min(before, start)
    longer = stream(key, start - before, before + length)
    room = memoryview(bytearray(shift + length))
    fill_range(key, start, room[shift:])
    assert room[shift:] == longer[before:]
    assert first_mismatch(key, start, room[shift:]) is None


@pytest.mark.parametrize("length", [4096, 100_000, 3 * CHUNK + 5])
def test_no_compressor_finds_anything(length: int) -> None:
    one = bytes(stream(7, 0, length))
    assert len(zlib.compress(one, 9)) > 0.99 * length
    assert len(lzma.compress(one, preset=6)) > 0.99 * length


def test_many_small_samples_do_not_compress_together() -> None:
    keys = sample_keys(dataset(), np.arange(512))
    out = bytearray(512 * 4096)
    fill_batch(keys, np.full(512, 4096), np.arange(512) * 4096, memoryview(out))
    assert len(zlib.compress(bytes(out), 6)) > 0.99 * len(out)
    assert len(lzma.compress(bytes(out), preset=6)) > 0.99 * len(out)


def test_no_two_pages_of_chunks_or_samples_are_the_same() -> None:
    big = bytes(stream(3, 0, 4 * CHUNK))
    keys = sample_keys(dataset(), np.arange(1000)).tolist()
    pages = [big[at : at + 512] for at in range(0, len(big), 512)] + [bytes(stream(key, 0, 512)) for key in keys]
    assert len(set(pages)) == len(pages)


def test_keys_depend_on_seed_data_set_and_sample() -> None:
    sets = [dataset(), dataset(seed=2), dataset(name="e")]
    keys = {key for one in sets for key in sample_keys(one, np.arange(50)).tolist()}
    assert len(keys) == 150
    assert sample_keys(dataset(), np.array([5])) == sample_keys(dataset(), np.arange(50))[5]


batches = st.lists(
    st.tuples(st.one_of(st.integers(1, 30), st.integers(4000, 5000), st.just(CHUNK + 3)), st.integers(0, 20)),
    max_size=6,
).map(lambda rows: [(length, gap) for length, gap in rows])
even = st.tuples(st.integers(1, 600), st.integers(0, 10), st.integers(1, 20)).map(
    lambda shape: [(8 * shape[0], shape[1])] * shape[2]
)


@settings(max_examples=examples(150))
@given(rows=st.one_of(batches, even), seed=st.integers(0, 1000), where=st.integers(0), data=st.data())
def test_batches_are_filled_and_checked_as_their_samples_are(
    rows: list[tuple[int, int]], seed: int, where: int, data: st.DataObject
) -> None:
    length = np.array([length for length, _ in rows], np.int64)
    ends = np.cumsum([length + gap for length, gap in rows]).astype(np.int64)
    start = ends - length
    key = sample_keys(dataset(seed=seed), np.arange(len(rows)))
    expected = bytearray(b"\xaa" * int(ends[-1] if rows else 0))
    for one, at, size in zip(key.tolist(), start.tolist(), length.tolist(), strict=True):
        expected[at : at + size] = stream(one, 0, size)
    out = bytearray(b"\xaa" * len(expected))
    fill_batch(key, length, start, memoryview(out))
    assert out == expected
    assert edges_are_right(key, length, start, memoryview(out)).all()
    assert first_bad_sample(key, length, start, memoryview(out)) is None
    if rows:
        bad = where % len(rows)
        position = data.draw(st.sampled_from([0, int(length[bad]) - 1, int(length[bad]) // 2]))
        out[int(start[bad]) + position] ^= 1
        sample = memoryview(out)[int(start[bad]) : int(ends[bad])]
        assert first_bad_sample(key, length, start, memoryview(out)) == bad
        assert first_mismatch(int(key[bad]), 0, sample) == position
        good = edges_are_right(key, length, start, memoryview(out))
        assert good[np.arange(len(rows)) != bad].all()
        seen = position < 8 or position >= length[bad] - 8
        assert good[bad] != seen


def test_a_large_sample_is_checked_at_both_ends() -> None:
    size = 2 * CHUNK + 4
    data = stream(9, 0, size)
    one = np.array([9], np.uint64), np.array([size]), np.array([0])
    assert edges_are_right(*one, memoryview(data)).all()
    data[-1] ^= 128
    assert not edges_are_right(*one, memoryview(data)).any()
    assert first_mismatch(9, 0, memoryview(data)) == size - 1


def test_zeros_never_pass_for_data() -> None:
    key = sample_keys(dataset(), np.arange(64))
    assert not edges_are_right(key, np.full(64, 64), np.arange(64) * 64, memoryview(bytearray(4096))).any()
