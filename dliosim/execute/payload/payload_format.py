"""The contents of a data set's samples: random bytes of `sample_bytes`, partly zeroed to compress, or made text.

Both are functions of a byte and its place in the sample, so that any part of a sample can be made and checked alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.payload.sample_bytes import edge_words, fill_batch, fill_range, first_bad_sample
from dliosim.formats.protocols import Format

Bytes: TypeAlias = NDArray[np.uint8]
Dress: TypeAlias = Callable[[Bytes, NDArray[np.int64] | int], Bytes]
"""Makes contents from random bytes and their place in the sample: of each byte, or of the first."""

#: Contents compress because in every period of this many bytes only the first are random, and the rest are zero. A run
#: of zeros costs Deflate some 3 bytes: longer periods come closer to the ratio asked for, but need larger samples.
PERIOD = 256

_AT_ONCE = 1 << 17  # bytes that are made again together to be compared
_DRESSED = 1 << 20  # bytes that are made into contents together


def dress_function(form: Format) -> Dress | None:
    """Return the function that makes a data set's contents from random bytes; None if they are only random."""
    random = round(PERIOD / form.dataset.compressible)
    dress = form.dressing()
    if dress is not None:
        return lambda data, place: dress(_thin_bytes(data, place, random), place)
    return None if random >= PERIOD else lambda data, place: _thin_bytes(data, place, random)


def _thin_bytes(data: Bytes, place: NDArray[np.int64] | int, random: int) -> Bytes:
    """Zero all but the first `random` of every PERIOD bytes, in place."""
    if random >= PERIOD:
        return data
    if not isinstance(place, int):
        data[place % PERIOD >= random] = 0
        return data
    head = min(-place % PERIOD, len(data))
    data[:head][np.arange(place, place + head) % PERIOD >= random] = 0
    whole = (len(data) - head) // PERIOD * PERIOD
    data[head : head + whole].reshape(-1, PERIOD)[:, random:] = 0
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

    Every byte is compared; None where all are right.
    """
    if dress is None and not begins.any():
        return first_bad_sample(keys, lengths, starts, data)
    found = np.frombuffer(data, np.uint8)
    scratch = np.empty(min(_AT_ONCE, int(lengths.max(initial=0))), np.uint8)
    rows = zip(keys.tolist(), begins.tolist(), lengths.tolist(), starts.tolist(), strict=True)
    for row, (key, begin, length, start) in enumerate(rows):
        for done in range(0, length, _AT_ONCE):
            expected = scratch[: min(_AT_ONCE, length - done)]
            fill_part(dress, key, begin + done, expected.data)
            if not np.array_equal(expected, found[start + done : start + done + len(expected)]):
                return row
    return None
