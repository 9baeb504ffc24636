"""The bytes of prepared data: they do not compress, differ from sample to sample, and can be made on any rank.

The bytes of a key are words of 64 bits, little-endian: word w is pool[w % POOL_WORDS] ^ mix(key, w // POOL_WORDS). The
pool is random and fits the second-level cache, so filling and checking run at the speed of memory. The word mixed in is
different for each chunk of each sample, so that no two chunks have the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Dataset
from dliosim.model.counter_rng import key as stream_key
from dliosim.model.counter_rng import mix, random_words

POOL_WORDS = 1 << 15
CHUNK = 8 * POOL_WORDS

# Bytes of samples that are made again together to check those read; above 128 KiB malloc would map fresh pages.
_COPIED = 120_000

# The least number of samples with the same distance from a word's address, and the words of each, for which shifting
# the pool is faster.
_WORTH_ALIGNING = 16
_ALIGNED_FROM, _ALIGNED_TO = 128, 4096

_SMALLEST_BUFFER = 16  # elements; numpy takes no less

_WORD = np.dtype("<u8")
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _64 = np.uint64(1), np.uint64(64)


def sample_keys(dataset: Dataset, samples: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the key of each sample's bytes, a function of (seed, data set, sample)."""
    return random_words(stream_key(dataset.seed, "content", dataset.name), samples)


def fill_range(key: int, start: int, out: memoryview) -> None:
    """Write bytes [start, start + len(out)) of the key's bytes to `out`, which may be at any address."""
    pool = _pool()
    for position, first, count, word in _word_runs(key, start, len(out)):
        np.bitwise_xor(pool[first : first + count], word, out=np.frombuffer(out, _WORD, count, position))
    for position, expected in _partial_words(key, start, len(out)):
        out[position : position + len(expected)] = expected


def first_mismatch(key: int, start: int, data: memoryview) -> int | None:
    """Return the position in `data` of the first byte that is not byte start + position of the key's bytes, or None."""
    pool = _pool()
    found = []
    for position, expected in _partial_words(key, start, len(data)):
        read = int.from_bytes(data[position : position + len(expected)], "little")
        if difference := read ^ int.from_bytes(expected, "little"):
            found.append(position + _first_bad_byte(difference))
    scratch = np.empty(min(POOL_WORDS, len(data) // 8), _WORD)
    for position, first, count, word in _word_runs(key, start, len(data)):
        words = np.frombuffer(data, _WORD, count, position)
        differs = np.bitwise_xor(words, pool[first : first + count], out=scratch[:count]) != word
        if differs.any():
            index = int(differs.argmax())
            found.append(position + 8 * index + _first_bad_byte(int(scratch[index] ^ word)))
            break
    return min(found, default=None)


def fill_batch(
    keys: NDArray[np.uint64], lengths: NDArray[np.int64], starts: NDArray[np.int64], out: memoryview
) -> None:
    """Write whole samples, sample i to `out[starts[i]:starts[i] + lengths[i]]`; other bytes stay as they are.

    Samples are in order and do not overlap.
    """
    if len(lengths) == 0:
        return
    if lengths.max() > CHUNK:
        for key, length, start in zip(keys.tolist(), lengths.tolist(), starts.tolist(), strict=True):
            fill_range(key, 0, out[start : start + length])
        return
    length, stride = int(lengths[0]), _stride(lengths, starts)
    if stride:
        _fill_strided(chunk_words(keys, _zero), length, int(starts[0]), stride, out)
    else:
        _fill_each(chunk_words(keys, _zero), lengths, starts, out)


def first_bad_sample(
    keys: NDArray[np.uint64], lengths: NDArray[np.int64], starts: NDArray[np.int64], data: memoryview
) -> int | None:
    """Return the first i for which `data[starts[i]:starts[i] + lengths[i]]` is not sample i; None if all are right.

    Every byte is compared.
    """
    ends = starts + lengths
    found, scratch = np.frombuffer(data, np.uint8), np.empty(min(_COPIED, len(data)), np.uint8)
    first = 0
    while first < len(lengths):
        last = int(np.searchsorted(ends, starts[first] + _COPIED, side="right"))
        if last <= first:  # a large sample is checked in place
            if first_mismatch(int(keys[first]), 0, data[int(starts[first]) : int(ends[first])]) is not None:
                return first
            first += 1
            continue
        begin, end = int(starts[first]), int(ends[last - 1])
        expected = scratch[: end - begin]
        expected[:] = found[begin:end]
        fill_batch(keys[first:last], lengths[first:last], starts[first:last] - begin, expected.data)
        differs = expected != found[begin:end]
        if differs.any():
            return int(np.searchsorted(ends, begin + int(differs.argmax()), side="right"))
        first = last
    return None


def edge_words(
    keys: NDArray[np.uint64], begins: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first and the last eight bytes of [begin, begin + length) of each key, as little-endian words.

    If there are fewer than eight bytes, both words have all of them.
    """
    first, last = _words_at(keys, begins), _words_at(keys, begins + np.maximum(lengths - 8, 0))
    if len(lengths) and lengths.min() < 8:
        mask = (_ONE << (8 * np.minimum(lengths, 7)).astype(np.uint64)) - _ONE
        short = lengths < 8
        first = np.where(short, first & mask, first)
        last = np.where(short, first, last)
    return first, last


def _words_at(keys: NDArray[np.uint64], begin: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return eight bytes of each key from `begin` on, as a word."""
    pool, word = _pool(), begin >> 3
    one_chunk = len(begin) == 0 or int(begin.max()) < CHUNK - 16
    chunk_0 = chunk_words(keys, _zero)
    words: NDArray[np.uint64] = pool[word % POOL_WORDS] ^ (
        chunk_0 if one_chunk else chunk_words(keys, word // POOL_WORDS)
    )
    shift = ((begin & 7) << 3).astype(np.uint64)
    if shift.any():
        # Unaligned bytes are in two words. A shift by 64 is undefined, so aligned ones, in one word, stay unchanged.
        word = word + 1
        high = pool[word % POOL_WORDS] ^ (chunk_0 if one_chunk else chunk_words(keys, word // POOL_WORDS))
        words = np.where(shift > 0, (words >> shift) | (high << ((_64 - shift) % _64)), words)
    return words


def edges_match(
    first: NDArray[np.uint64],
    last: NDArray[np.uint64],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    data: memoryview,
) -> NDArray[np.bool_]:
    """Return for each sample in `data` whether its first and last eight bytes are those of `edge_words`."""
    short = np.flatnonzero(lengths < 8)
    if len(short) == 0:
        windows = word_windows(data)
        good: NDArray[np.bool_] = windows[starts] == first
        good &= windows[starts + lengths - 8] == last
        return good
    good = np.empty(len(lengths), np.bool_)
    for i in short.tolist():
        start = int(starts[i])
        good[i] = int.from_bytes(data[start : start + int(lengths[i])], "little") == int(first[i])
    longer = np.flatnonzero(lengths >= 8)
    good[longer] = edges_match(first[longer], last[longer], lengths[longer], starts[longer], data)
    return good


def word_windows(data: memoryview) -> NDArray[np.uint64]:
    """Return a view with a word at every byte of a buffer, aligned or not: one gather fetches one word a sample."""
    windows: NDArray[np.uint64] = np.ndarray((max(0, len(data) - 7),), _WORD, data, 0, (1,))
    return windows


_zero = np.zeros(1, np.int64)


@cache
def _pool() -> NDArray[np.uint64]:
    words = mix(np.arange(1, POOL_WORDS + 1, dtype=np.uint64) * _GOLDEN).astype(_WORD)
    words.setflags(write=False)
    return words


def pool_bytes(length: int) -> memoryview:
    """Return the first bytes of the pool, at most `CHUNK` of them."""
    return _pool().view(np.uint8)[:length].data


def chunk_words(keys: NDArray[np.uint64], chunks: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the word that is mixed into each chunk of each key."""
    words = (chunks + 1).astype(np.uint64)
    words = words * _GOLDEN + keys
    return mix(words)


def _word_runs(key: int, start: int, length: int) -> Iterator[tuple[int, int, int, np.uint64]]:
    """Yield the whole words in [start, start + length) by chunk: position, first in the pool, count, word mixed in."""
    first, last = -(-start // 8), (start + length) // 8
    if first >= last:
        return
    chunks = np.arange(first // POOL_WORDS, (last - 1) // POOL_WORDS + 1)
    for chunk, word in zip(chunks.tolist(), chunk_words(np.array([key], np.uint64), chunks), strict=True):
        begin = max(first, chunk * POOL_WORDS)
        end = min(last, (chunk + 1) * POOL_WORDS)
        yield 8 * begin - start, begin - chunk * POOL_WORDS, end - begin, word


def _partial_words(key: int, start: int, length: int) -> Iterator[tuple[int, bytes]]:
    """Yield the words that are only partly in [start, start + length): (position, their bytes in it)."""
    end = start + length
    partial = {start // 8} if start % 8 else set()
    if end % 8:
        partial.add(end // 8)
    for index in sorted(partial) if length else ():
        chunk, place = divmod(index, POOL_WORDS)
        word = _pool()[place] ^ chunk_words(np.array([key], np.uint64), np.array([chunk]))[0]
        begin, stop = max(start, 8 * index), min(end, 8 * index + 8)
        yield begin - start, word.tobytes()[begin - 8 * index : stop - 8 * index]


def _first_bad_byte(difference: int) -> int:
    """Return the first byte in which two little-endian words differ, from their exclusive or."""
    return ((difference & -difference).bit_length() - 1) // 8


def _stride(lengths: NDArray[np.int64], starts: NDArray[np.int64]) -> int:
    """Return the distance from each sample to the next, if all have one length and one distance; else 0."""
    if len(lengths) == 1:
        return int(lengths[0])
    stride = int(starts[1] - starts[0])
    even = stride >= lengths[0] and (lengths == lengths[0]).all() and (np.diff(starts) == stride).all()
    return stride if even else 0


def _fill_strided(words: NDArray[np.uint64], length: int, start: int, stride: int, out: memoryview) -> None:
    pool, (whole, rest) = _pool(), divmod(length, 8)
    if whole:
        rows: NDArray[np.uint64] = np.ndarray((len(words), whole), _WORD, out, start, (stride, 8))
        period = 8 // gcd(8, stride)  # every `period`-th sample has the same distance from a word's address
        if rows.flags.aligned:
            _xor_rows(pool[:whole], words, rows)
        elif len(words) >= period * _WORTH_ALIGNING and _ALIGNED_FROM <= whole < _ALIGNED_TO:
            for lane in range(period):
                _fill_aligned(words[lane::period], whole, start + lane * stride, period * stride, out)
        else:
            np.bitwise_xor(pool[:whole], words[:, None], out=rows)
    if rest:
        _fill_edge(words, whole, 0, rest, start, stride, out)


def _xor_rows(pool: NDArray[np.uint64], words: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
    """Write `pool` XOR a word to each row; `rows` are aligned."""
    # With numpy's default buffer of 8192 words every row is copied through it, at a third of the speed.
    before = np.setbufsize(_SMALLEST_BUFFER)
    try:
        np.bitwise_xor(pool, words[:, None], out=rows)
    finally:
        np.setbufsize(before)


def _fill_aligned(words: NDArray[np.uint64], count: int, start: int, stride: int, out: memoryview) -> None:
    """Write pool[:count] ^ words[i] to `out[start + i * stride:]`; all have the same distance from a word's address.

    numpy writes words that are not aligned through a buffer, row by row: a third of the speed if rows are short. So
    the pool is shifted instead, by the number of bytes before the first aligned word.
    """
    address: int = np.frombuffer(out, np.uint8, 1).__array_interface__["data"][0]
    skip = -(address + start) % 8
    if skip == 0:
        rows: NDArray[np.uint64] = np.ndarray((len(words), count), _WORD, out, start, (stride, 8))
        _xor_rows(_pool()[:count], words, rows)
        return
    rows = np.ndarray((len(words), count - 1), _WORD, out, start + skip, (stride, 8))
    turned = (words >> np.uint64(8 * skip)) | (words << np.uint64(64 - 8 * skip))
    _xor_rows(_shift_pool(skip)[: count - 1], turned, rows)
    for begin, end, word in (0, skip, 0), (skip, 8, count - 1):
        _fill_edge(words, word, begin, end, start, stride, out)


def _fill_edge(
    words: NDArray[np.uint64], index: int, begin: int, end: int, start: int, stride: int, out: memoryview
) -> None:
    """Write bytes [begin, end) of word `index` of every sample; sample i begins at `start + i * stride`."""
    at = start + 8 * index + begin
    edge: NDArray[np.uint8] = np.ndarray((len(words), end - begin), np.uint8, out, at, (stride, 1))
    edge[:] = (_pool()[index] ^ words).astype(_WORD).view(np.uint8).reshape(-1, 8)[:, begin:end]


@cache
def _shift_pool(skip: int) -> NDArray[np.uint64]:
    """Return the words of the pool that begin `skip` bytes later, at an aligned address."""
    shifted: NDArray[np.uint64] = np.frombuffer(_pool()[: _ALIGNED_TO + 1].tobytes()[skip : skip - 8], _WORD).copy()
    return shifted


def _fill_each(
    words: NDArray[np.uint64], lengths: NDArray[np.int64], starts: NDArray[np.int64], out: memoryview
) -> None:
    pool, xor, view = _pool(), np.bitwise_xor, np.ndarray
    whole, rest = lengths >> 3, lengths & 7
    # The last word may reach into the next sample, which is written after it: most samples then need no tail.
    over = np.zeros(len(lengths), np.bool_)
    over[:-1] = (rest[:-1] > 0) & (starts[1:] == starts[:-1] + lengths[:-1]) & (lengths[1:] >= 8)
    rest[over] = 0
    whole += over
    for word, count, left, start in zip(words, whole.tolist(), rest.tolist(), starts.tolist(), strict=True):
        xor(pool[:count], word, view((count,), _WORD, out, start))
        if left:
            end = start + 8 * count
            out[end : end + left] = (pool[count] ^ word).tobytes()[:left]
