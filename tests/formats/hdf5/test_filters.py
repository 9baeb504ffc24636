"""HDF5's filters undone here give what HDF5 itself gives, and damage is found."""

from __future__ import annotations

import threading
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.hdf5.filters import decode, encode, filter_name, fletcher32
from dliosim.formats.protocols import Filter

SHUFFLE, DEFLATE, SUM, LZF = Filter("shuffle", (3,)), Filter("deflate", (4,)), Filter("fletcher32"), Filter("lzf")


def stepwise(data: bytes) -> int:
    """Fletcher's checksum as its definition says, word by word."""
    data += b"\0" * (len(data) % 2)
    one = two = 0
    for place in range(0, len(data), 2):
        one += data[place] << 8 | data[place + 1]
        one = (one & 0xFFFF) + (one >> 16)
        two += one
        two = (two & 0xFFFF) + (two >> 16)
    return two << 16 | one


@given(st.binary(max_size=300) | st.integers(0, 400).map(lambda length: b"\xff" * length))
def test_the_checksum_is_that_of_its_definition(data: bytes) -> None:
    assert fletcher32(np.frombuffer(data, np.uint8)) == stepwise(data)


def test_the_checksum_of_many_blocks_is_that_of_its_definition() -> None:
    data = np.random.default_rng(0).integers(0, 256, 300_001, np.uint8)
    assert fletcher32(data) == stepwise(data.tobytes())


@given(
    data=st.binary(min_size=1, max_size=200),
    steps=st.permutations([SHUFFLE, DEFLATE, SUM]).flatmap(
        lambda steps: st.integers(0, 3).map(lambda some: tuple(steps[:some]))
    ),
)
def test_what_hdf5_encodes_is_decoded_in_any_order_of_filters(data: bytes, steps: tuple[Filter, ...]) -> None:
    mask, stored = encode(steps, np.frombuffer(data, np.uint8))
    of_bytes = [Filter("shuffle", (1,)) if step is SHUFFLE else step for step in steps]  # HDF5 knows the type
    skipped = [Filter("skipped", (mask,))] if mask else []
    assert decode((*of_bytes, *skipped), len(data), memoryview(stored)).tobytes() == data


def test_a_chunk_that_was_deflated_twice_is_inflated_twice() -> None:
    data = np.random.default_rng(0).integers(0, 256, 10_000, np.uint8).tobytes()
    stored = zlib.compress(zlib.compress(data))
    assert decode((DEFLATE, DEFLATE), len(data), memoryview(stored)).tobytes() == data


@given(data=st.binary(max_size=100), width=st.integers(1, 8))
def test_shuffled_elements_come_back_and_a_rest_stays(data: bytes, width: int) -> None:
    whole = len(data) // width * width
    shuffled = np.frombuffer(data[:whole], np.uint8).reshape(-1, width).T.tobytes() + data[whole:]
    assert decode((Filter("shuffle", (width,)),), len(data), memoryview(shuffled)).tobytes() == data


def test_a_checksum_with_swapped_bytes_of_old_files_is_taken() -> None:
    data = b"some bytes"
    swapped = fletcher32(np.frombuffer(data, np.uint8)).to_bytes(4, "little")
    old = bytes([swapped[1], swapped[0], swapped[3], swapped[2]])
    assert decode((SUM,), len(data), memoryview(data + old)).tobytes() == data


@pytest.mark.parametrize(
    ("steps", "data", "reason"),
    [
        ((SUM,), b"1234abcd", "checksum"),
        ((SUM,), b"123", "too short"),
        ((DEFLATE,), b"no stream of zlib", "does not inflate"),
        ((DEFLATE,), zlib.compress(bytes(100))[:-3], "ends before"),
        ((DEFLATE,), zlib.compress(bytes(1 << 24)), "more than"),
        ((DEFLATE,), zlib.compress(bytes(99)), "99 bytes instead of 100"),
        ((SHUFFLE,), bytes(99), "99 bytes instead of 100"),
        ((LZF,), b"\xff\xff\xff\xff", "HDF5 cannot decode"),
    ],
)
def test_damage_is_found(steps: tuple[Filter, ...], data: bytes, reason: str) -> None:
    with pytest.raises(ExecutionError, match=reason) as found:
        decode(steps, 100, memoryview(data))
    assert found.value.code == "R401"


@pytest.mark.parametrize("parameters", [(), (4,), (4, 0), (4, 1 << 31)])
def test_szip_without_a_block_is_refused_before_hdf5_divides_by_it(parameters: tuple[int, ...]) -> None:
    with pytest.raises(ExecutionError, match="szip"):
        decode((Filter("szip", parameters),), 100, memoryview(bytes(100)))


def test_every_flipped_bit_of_a_checked_chunk_is_found() -> None:
    _, stored = encode((SUM,), np.arange(20, dtype=np.uint8))
    for bit in range(8 * len(stored)):
        bad = bytearray(stored)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ExecutionError):
            decode((SUM,), 20, memoryview(bad))


def test_a_filter_that_is_not_here_is_named() -> None:
    name = filter_name(32099, b"some#thing\x00\xff")
    assert name == "something\N{REPLACEMENT CHARACTER}#32099"
    with pytest.raises(ExecutionError, match="#32099: a package") as found:
        decode((Filter(name, (1, 2)),), 10, memoryview(b"abc"))
    assert found.value.code == "R403"


def test_lzf_stores_what_does_not_compress_as_it_is() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 1000, np.uint8)
    mask, stored = encode((LZF,), noise)
    assert (mask, stored) == (1, noise.tobytes())
    found = decode((LZF, Filter("skipped", (1,))), 1000, memoryview(stored))
    assert found.tobytes() == noise.tobytes()


@given(st.binary(min_size=1, max_size=60))
def test_the_length_of_a_chunk_tells_whether_it_was_compressed(data: bytes) -> None:
    mask, stored = encode((LZF,), np.frombuffer(data, np.uint8))
    assert (mask == 1) == (len(stored) == len(data))
    found = decode((LZF, Filter("skipped", (1,))), len(data), memoryview(stored))
    assert found.tobytes() == data


def test_threads_decode_side_by_side() -> None:
    chunks = [np.full(5000, value, np.uint8) for value in range(8)]
    stored = [encode((LZF,), chunk)[1] for chunk in chunks]
    wrong: list[int] = []

    def work(value: int) -> None:
        for _ in range(50):
            if (decode((LZF,), 5000, memoryview(stored[value])) != value).any():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
