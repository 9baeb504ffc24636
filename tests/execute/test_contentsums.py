"""The CRC of contents that is made without them is zlib's CRC of them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.execute.content import CHUNK, fill
from dliosim.execute.contentsums import crc32_of_samples


def contents(keys: np.ndarray, length: int) -> bytes:
    out = bytearray(length * len(keys))
    for row, key in enumerate(keys.tolist()):
        fill(key, 0, memoryview(out)[row * length : (row + 1) * length])
    return bytes(out)


@settings(deadline=None, max_examples=40)
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
