"""The distinct bytes of files that are asked for: each byte counts once, however often it is read, by any rank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.model.verbs import Loop
from dliosim.plan.samples.places import Places

#: Bytes of a block; files are dealt in blocks to the ranks that count them.
BLOCK = 1 << 26

#: Ranges that a rank keeps in memory to count distinct bytes: 24 bytes each, three times this while they are sorted.
MOST_RANGES = 1 << 22


class ByteRanges(NamedTuple):
    """Ranges of bytes in files, sorted by file and offset; no two ranges of a file overlap or touch. int64 (n,)."""

    file: NDArray[np.int64]  #: number of the file
    begin: NDArray[np.int64]  #: first byte
    end: NDArray[np.int64]  #: last byte, exclusive

    @property
    def bytes(self) -> int:
        """Sum of the bytes."""
        return int((self.end - self.begin).sum())


def union_ranges(file: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]) -> ByteRanges:
    """Return the bytes that are in any of some ranges (n,), in any order; these may be empty or overlap."""
    some = end > begin
    file, begin, end = file[some], begin[some], end[some]
    order = np.lexsort((begin, file))
    file, begin, end = file[order], begin[order], end[order]
    first = np.ones(len(file), np.bool_)
    first[1:] = file[1:] != file[:-1]
    # Files are placed one after another, so that one running maximum gives the largest end so far in each file.
    heads = np.flatnonzero(first)
    longest = np.maximum.reduceat(end, heads) if len(heads) else end
    base = np.repeat(np.cumsum(longest) - longest, np.diff(np.append(heads, len(file))))
    reach = np.maximum.accumulate(base + end)
    first[1:] |= base[1:] + begin[1:] > reach[:-1]
    heads = np.flatnonzero(first)
    tails = np.append(heads[1:], len(file))[: len(heads)] - 1
    return ByteRanges(file[heads], begin[heads], reach[tails] - base[tails])


def cut_at_blocks(ranges: ByteRanges) -> tuple[ByteRanges, NDArray[np.int64]]:
    """Return the same bytes, cut at multiples of `BLOCK`, and for each range a number given by its file and block."""
    first = ranges.begin // BLOCK
    pieces = (ranges.end - 1) // BLOCK + 1 - first
    row = np.repeat(np.arange(len(pieces)), pieces)
    block = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin, end = np.maximum(ranges.begin[row], block * BLOCK), np.minimum(ranges.end[row], (block + 1) * BLOCK)
    return ByteRanges(ranges.file[row], begin, end), ranges.file[row] + block


def are_reads_distinct(loop: Loop, places: Places, ranks: int) -> bool:
    """Return whether it is certain that no byte of the data set is asked for twice in an epoch, by any rank."""
    dealt = loop.shard != "off" or ranks == 1
    once = loop.last_batch != "pad" and loop.arrivals is None
    return dealt and once and places.has_disjoint_samples
