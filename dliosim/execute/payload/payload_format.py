"""The contents of a data set's samples: random bytes of `sample_bytes`, partly zeroed to compress, or made text.

Both are functions of a byte and its place in the sample, so that any part of a sample can be made and checked alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.payload.sample_bytes import (
    CHUNK,
    chunk_words,
    edge_words,
    fill_batch,
    fill_range,
    first_bad_sample,
    first_mismatch,
    pool_bytes,
)
from dliosim.formats.protocols import Dressed, Format
from dliosim.model import Checkpoint, Part
from dliosim.model.counter_rng import key
from dliosim.model.dataset import CONTENT_PERIOD
from dliosim.plan.checkpoints.layout import Segment

Bytes: TypeAlias = NDArray[np.uint8]
#: Makes contents from random bytes and their place in the sample: of each byte, or of the first
Dress: TypeAlias = Callable[[Bytes, NDArray[np.int64] | int], Bytes]

_AT_ONCE = 1 << 17  # bytes that are made again together to be compared
_DRESSED = 1 << 20  # bytes that are made into contents together


def dress_function(form: Format) -> Dress | None:
    """Return the function that makes a data set's contents from random bytes; None if they are only random."""
    random = round(CONTENT_PERIOD / form.dataset.compressible)
    if isinstance(form, Dressed):
        dress = form.dress
        return lambda data, place: dress(_thin_bytes(data, place, random), place)
    return None if random >= CONTENT_PERIOD else lambda data, place: _thin_bytes(data, place, random)


def _thin_bytes(data: Bytes, place: NDArray[np.int64] | int, random: int) -> Bytes:
    """Zero all but the first `random` of every CONTENT_PERIOD bytes, in place."""
    if random >= CONTENT_PERIOD:
        return data
    if not isinstance(place, int):
        data[place % CONTENT_PERIOD >= random] = 0
        return data
    head = min(-place % CONTENT_PERIOD, len(data))
    data[:head][np.arange(place, place + head) % CONTENT_PERIOD >= random] = 0
    whole = (len(data) - head) // CONTENT_PERIOD * CONTENT_PERIOD
    data[head : head + whole].reshape(-1, CONTENT_PERIOD)[:, random:] = 0
    data[head + whole :][random:] = 0
    return data


def fill_samples(
    dress: Dress | None,
    keys: NDArray[np.uint64],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    out: memoryview,
) -> None:
    """Write whole contents, those of sample i to `out[starts[i]:starts[i] + lengths[i]]`; in order, not overlapping."""
    fill_batch(keys, lengths, starts, out)
    dress_samples(dress, lengths, starts, out)


def dress_samples(dress: Dress | None, lengths: NDArray[np.int64], starts: NDArray[np.int64], out: memoryview) -> None:
    """Make contents of the random bytes of whole samples that are in `out` already."""
    if dress is None:
        return
    data = np.frombuffer(out, np.uint8)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        _dress_in_place(dress, data[start : start + length], 0)


def fill_part(dress: Dress | None, key: int, begin: int, out: memoryview) -> None:
    """Write bytes [begin, begin + len(out)) of a sample's contents."""
    fill_range(key, begin, out)
    if dress is not None:
        _dress_in_place(dress, np.frombuffer(out, np.uint8), begin)


def _dress_in_place(dress: Dress, data: NDArray[np.uint8], place: int) -> None:
    """Make contents of random bytes that begin at `place` of their sample, some at a time: it takes copies of them."""
    for at in range(0, len(data), _DRESSED):
        part = data[at : at + _DRESSED]
        part[:] = dress(part, place + at)


def content_edge_words(
    dress: Dress | None, keys: NDArray[np.uint64], begins: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return what `sample_bytes.edge_words` returns, of contents."""
    first, last = edge_words(keys, begins, lengths)
    if dress is None:
        return first, last
    ends = np.maximum(lengths - 8, 0) + begins
    return _dress_words(dress, first, begins, lengths), _dress_words(dress, last, ends, lengths)


def _dress_words(
    dress: Dress, words: NDArray[np.uint64], begins: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    data = words.astype("<u8").view(np.uint8)
    place = np.repeat(begins, 8) + np.tile(np.arange(8), len(words))
    data = dress(data, place)
    data[place >= np.repeat(begins + lengths, 8)] = 0  # after the end of a sample of fewer than eight bytes
    return data.view("<u8").astype(np.uint64)


def find_bad_content(
    dress: Dress | None,
    keys: NDArray[np.uint64],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    data: memoryview,
) -> int | None:
    """Return the first i for which `data[starts[i]:starts[i] + lengths[i]]` is not the contents from begins[i] on.

    Every byte is compared; None if all are right.
    """
    if dress is None and not begins.any():
        return first_bad_sample(keys, lengths, starts, data)
    found = np.frombuffer(data, np.uint8)
    scratch = np.empty(min(_AT_ONCE, int(lengths.max(initial=0))), np.uint8)
    rows = zip(keys.tolist(), begins.tolist(), lengths.tolist(), starts.tolist(), strict=True)
    for row, (stream, begin, length, start) in enumerate(rows):
        for done in range(0, length, _AT_ONCE):
            expected = scratch[: min(_AT_ONCE, length - done)]
            fill_part(dress, stream, begin + done, expected.data)
            if not np.array_equal(expected, found[start + done : start + done + len(expected)]):
                return row
    return None


_FULL: Final = 0xFFFFFFFF

_LANES: Final = np.arange(8)

# The polynomial of CRC-32 without x^32; here and below, the coefficient of x^0 is the highest bit.
_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31

#: Bytes of a sample from which this is faster than zlib
WORTH_WHILE: Final = 16_384


def crc32_of_samples(keys: NDArray[np.uint64], length: int, value: int) -> int:
    """Return zlib.crc32 of whole samples of `length` bytes, one directly after the other, continued from `value`.

    `keys` are the samples' keys, (samples,).
    """
    whole, rest = divmod(length, CHUNK)
    made = []
    if whole:
        made.append(_registers(chunk_words(keys[:, None], np.arange(whole)), CHUNK))
    if rest:
        made.append(_registers(chunk_words(keys[:, None], np.array([whole])), rest))
    shifts = [_shift_tables(CHUNK)] * whole + [_shift_tables(rest)] * (rest > 0)
    register = value ^ _FULL
    for sample in np.concatenate(made, axis=1).tolist():
        for (a, b, c, d), own in zip(shifts, sample, strict=True):
            moved = a[register & 255] ^ b[register >> 8 & 255] ^ c[register >> 16 & 255] ^ d[register >> 24]
            register = moved ^ own
    return register ^ _FULL


def crc32_combine(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of two pieces, one directly after the other, from that of each; `length` is of the second."""
    return _product(_zeros_multiplier(length), first) ^ second


@lru_cache(maxsize=1024)
def _zeros_multiplier(length: int) -> int:
    """Return the factor of a register over `length` zero bytes: x^(8 length) modulo the polynomial."""
    power, square = _ONE, _ONE >> 8
    while length:
        if length & 1:
            power = _product(power, square)
        square = _product(square, square)
        length >>= 1
    return power


def _product(a: int, b: int) -> int:
    """Return the product of two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & _FULL
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


def _registers(words: NDArray[np.uint64], length: int) -> NDArray[np.uint32]:
    """Return the register, from 0, after `length` bytes of a chunk of each of these words; in the shape of `words`."""
    pool, tables = _word_tables(length)
    lanes = words.astype("<u8")[..., None].view(np.uint8)
    found: NDArray[np.uint32] = np.bitwise_xor.reduce(tables[_LANES, lanes], axis=-1) ^ pool
    return found


@lru_cache(maxsize=16)
def _word_tables(length: int) -> tuple[np.uint32, NDArray[np.uint32]]:
    """Return the register after `length` bytes of the pool, and those of words with one nonzero byte; (8, 256)."""
    zeros = zlib.crc32(bytes(length))

    def register(data: memoryview | bytes) -> int:
        return zlib.crc32(data) ^ zeros

    words = -(-length // 8)
    bits = [register(np.full(words, 1 << bit, "<u8").tobytes()[:length]) for bit in range(64)]
    return np.uint32(register(pool_bytes(length))), np.array([_xor_table(bits[at : at + 8]) for at in range(0, 64, 8)])


@lru_cache(maxsize=16)
def _shift_tables(length: int) -> tuple[list[int], ...]:
    """Return four tables, one a byte of a register from the lowest: its value after `length` zero bytes."""
    zeros = bytes(length)
    # Without zlib's inversions, the register 1 << bit becomes this.
    bits = [zlib.crc32(zeros, (1 << bit) ^ _FULL) ^ _FULL for bit in range(32)]
    return tuple(_xor_table(bits[at : at + 8]).tolist() for at in range(0, 32, 8))


def _xor_table(bits: list[int]) -> NDArray[np.uint32]:
    """Return the 256 XOR sums of eight values, one a bit."""
    table = np.zeros(1, np.uint32)
    for bit in bits:
        table = np.concatenate([table, table ^ np.uint32(bit)])
    return table


#: A block's rows are cut out of whole rows, made many at a time, if a row has at most _LONGEST_ROW bytes: one call
#: of `fill_range` for each row takes about as long as making that many bytes.
_LONGEST_ROW = 1 << 17
_ROWS_BYTES = 1 << 20


def part_keys(checkpoint: Checkpoint, parts: tuple[Part, ...], number: int) -> list[int]:
    """Return the content key of each part in the checkpoint of that number: no two saves hold the same bytes."""
    return [key(checkpoint.seed, "checkpoint", checkpoint.name, part.name, number) for part in parts]


def fill_segment(content: int, row: int, segment: Segment, out: memoryview) -> None:
    """Write the bytes of a segment to `out`; rows of its part have `row` bytes."""
    for at, begin, length in _contiguous_ranges(row, segment):
        fill_range(content, begin, out[at : at + length])
    for at, part in _cut_columns(content, row, segment):
        out[at : at + len(part)] = part


def find_segment_mismatch(content: int, row: int, segment: Segment, data: memoryview) -> int | None:
    """Return the position in `data` of the first byte that is not the segment's, or None."""
    for at, begin, length in _contiguous_ranges(row, segment):
        wrong = first_mismatch(content, begin, data[at : at + length])
        if wrong is not None:
            return at + wrong
    for at, part in _cut_columns(content, row, segment):
        differs = np.frombuffer(part, np.uint8) != np.frombuffer(data[at : at + len(part)], np.uint8)
        if differs.any():
            return at + int(differs.argmax())
    return None


def _is_column_slice(row: int, segment: Segment) -> bool:
    return segment.block.width < row <= _LONGEST_ROW and segment.block.row1 - segment.block.row0 > 1


def _contiguous_ranges(row: int, segment: Segment) -> Iterator[tuple[int, int, int]]:
    """Yield the contiguous ranges of a segment: position in the segment, offset in the part, bytes."""
    block, width = segment.block, segment.block.width
    if width == row or block.row1 - block.row0 == 1:
        yield 0, block.row0 * row + block.col0 + segment.begin, segment.length
        return
    if _is_column_slice(row, segment):
        return
    done = 0
    while done < segment.length:
        line, column = divmod(segment.begin + done, width)
        length = min(width - column, segment.length - done)
        yield done, (block.row0 + line) * row + block.col0 + column, length
        done += length


def _cut_columns(content: int, row: int, segment: Segment) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of a segment whose rows are cut out, some rows at a time: position in it, bytes."""
    if not _is_column_slice(row, segment) or segment.length == 0:
        return
    block, width = segment.block, segment.block.width
    first, end = segment.begin // width, -(-(segment.begin + segment.length) // width)
    each = max(1, _ROWS_BYTES // row)
    scratch = np.empty(min(each, end - first) * row, np.uint8)
    for line in range(first, end, each):
        rows = min(each, end - line)
        fill_range(content, (block.row0 + line) * row, scratch[: rows * row].data)
        found = np.ascontiguousarray(scratch[: rows * row].reshape(rows, row)[:, block.col0 : block.col1]).reshape(-1)
        skip = max(0, segment.begin - line * width)
        stop = min(len(found), segment.begin + segment.length - line * width)
        yield line * width + skip - segment.begin, found[skip:stop].data
