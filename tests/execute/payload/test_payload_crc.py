"""The CRC of contents that is made without them is zlib's CRC of them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.execute.payload.payload_format import crc32_combine, crc32_of_samples
from dliosim.execute.payload.sample_bytes import CHUNK, fill_range
from tests.examples import examples


def contents(keys: np.ndarray, length: int) -> bytes:
    out = bytearray(length * len(keys))
    for row, key in enumerate(keys.tolist()):
        fill_range(key, 0, memoryview(out)[row * length : (row + 1) * length])
    return bytes(out)


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_it_is_zlibs_whatever_came_before(keys: list[int], length: int, value: int) -> None:
    some = np.array(keys, np.uint64)
    assert crc32_of_samples(some, length, value) == zlib.crc32(contents(some, length), value)


@pytest.mark.parametrize("length", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 12_345])
def test_samples_of_several_chunks_are_summed_chunk_by_chunk(length: int) -> None:
    keys = np.array([3, 2**63 + 11], np.uint64)
    assert crc32_of_samples(keys, length, 7) == zlib.crc32(contents(keys, length), 7)


def test_no_samples_leave_the_value_as_it_is() -> None:
    assert crc32_of_samples(np.empty(0, np.uint64), 100, 12345) == 12345


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_sums_of_two_pieces_give_that_of_both(first: bytes, second: bytes) -> None:
    found = crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert found == zlib.crc32(first + second)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**62), st.integers(0, 2**62))
def test_pieces_beyond_any_memory_are_combined_in_any_order(first: int, second: int, one: int, other: int) -> None:
    third = zlib.crc32(b"third")
    left = crc32_combine(crc32_combine(first, second, one), third, other)
    assert left == crc32_combine(first, crc32_combine(second, third, other), one + other)
