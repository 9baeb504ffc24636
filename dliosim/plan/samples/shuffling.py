"""Orders without a stored permutation: a keyed bijection, and the shuffle buffer of tf.data."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dliosim.formats.protocols import Ints
from dliosim.model.counter_rng import map_chunks, random_words

# Up to this n a permutation is a table, made by sorting random words: uniform, and cheaper than the bijection.
TABLE_LIMIT = 4096
_ROUNDS = 6
_FIRST = np.uint64(0xD6E8FEB86659FD93)
_SECOND = np.uint64(0xA0761D6478BD642F)
_32 = np.uint64(32)


class Permutation:
    """A permutation of [0, n) that is a function of (n, key), computed only at the positions asked for.

    An additive Feistel network over the smallest rectangle a x b >= n with a = ceil(sqrt(n)). A value outside [0, n),
    fewer than one in sqrt(n), is mapped again until it is inside. Time and memory grow with the positions asked for.
    """

    __slots__ = ("_columns", "_keys", "_rows", "_table", "n")

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self._table: Ints | None = None
        if n <= TABLE_LIMIT:
            self._table = np.argsort(random_words(key, np.arange(n)), kind="stable").astype(np.int64)
            return
        rows = math.isqrt(n - 1) + 1
        self._rows = np.uint64(rows)
        self._columns = np.uint64(-(-n // rows))
        self._keys = random_words(key, np.arange(_ROUNDS))

    def __call__(self, positions: Ints) -> Ints:
        """Return the image of each position; positions must be in [0, n)."""
        if self._table is not None:
            return self._table[positions]
        return map_chunks(self._images, positions, np.int64)

    def _images(self, positions: Ints) -> Ints:
        values = self._network(positions.astype(np.uint64))
        limit = np.uint64(self.n)
        outside = np.flatnonzero(values >= limit)
        while len(outside):
            values[outside] = self._network(values[outside])
            outside = outside[values[outside] >= limit]
        return values.view(np.int64)

    def _network(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        row: NDArray[np.uint64] = values // self._columns
        column = values - row * self._columns
        for i in range(0, _ROUNDS, 2):
            _add_random(row, column, self._keys[i], self._rows)
            _add_random(column, row, self._keys[i + 1], self._columns)
        row *= self._columns
        row += column
        return row


def _add_random(target: NDArray[np.uint64], source: NDArray[np.uint64], key: np.uint64, size: np.uint64) -> None:
    """Add a random function of `source` to `target`, modulo `size` (at most 2**32), in place."""
    word = source ^ key
    word *= _FIRST
    word ^= word >> _32
    word *= _SECOND
    word >>= _32
    word *= size
    word >>= _32
    target += word
    # If `target` is below `size`, the difference wraps to a huge number: the smaller of both is the remainder.
    np.subtract(target, size, out=word)
    np.minimum(target, word, out=target)


def shuffle_buffer_order(n: int, buffer: int, key: int, outputs: int) -> Ints:
    """Return the first `outputs` inputs that a shuffle buffer of `buffer` samples returns from a stream of n.

    As in tf.data: the buffer is filled with the first inputs. Each output picks a slot at random, and the next input
    refills it. When the stream has ended, the rest is returned in random order. So output j is an input below j +
    buffer. Time and memory grow with the outputs, not with the buffer.
    """
    buffer = max(1, min(buffer, n))
    picks = max(0, min(outputs, n - buffer))
    words = random_words(key, np.arange(picks))
    slot = ((words >> _32) * np.uint64(buffer)) >> _32
    # Sorted by slot, picks of one slot are neighbours in order of time: each returns the input of the pick before it.
    by_slot = np.argsort(slot, kind="stable")
    chains = slot[by_slot].astype(np.int64)
    head = np.diff(chains, prepend=-1) > 0
    content = np.empty(picks, np.int64)
    content[1:] = by_slot[:-1] + buffer
    content[head] = chains[head]
    result = np.empty(outputs, np.int64)
    result[by_slot] = content
    if outputs > picks:
        left = Permutation(buffer, key ^ 0x2545F4914F6CDD1D)(np.arange(outputs - picks))
        if picks:  # a slot still holds the input of its last pick
            tail = np.append(head[1:], True)
            slots, last = chains[tail], by_slot[tail] + buffer
            place = np.minimum(np.searchsorted(slots, left), len(slots) - 1)
            left = np.where(slots[place] == left, last[place], left)
        result[picks:] = left
    return result
