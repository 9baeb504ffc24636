"""The ranges of files that an epoch or a conversion reads from storage, in order, and the distinct bytes of them.

A run and its forecast both use them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.model import Access, Dataset, Loop
from dliosim.plan.samples.io_requests import Extents, ReadRanges
from dliosim.plan.samples.places import Places


def plan_reads(extents: Extents, access: Access, kept: Ints, places: Places) -> ReadRanges:
    """Return the ranges that calls read for the samples of `extents`, in the same steps; a step may have none.

    `kept` are the samples, sorted, that `cache memory` holds: they are not read again. With `order by offset` a batch
    is read in the order of the files. Collective calls always read like this: offsets in a file view must not decrease.
    The batch has this order in memory too, so nothing is reordered. A unit of several samples is read once a step.

    Raises PlanError: [E211] if `cache memory` cannot keep samples, as they are several ranges or share one; [E216]
    if a library would have to read samples without a fixed size.
    """
    if access.memory and access.through == "direct" and not places.has_single_ranges:
        text = f"`cache memory` does not keep samples of `{places.dataset.name}`: in their files they are several"
        raise PlanError(f"{text} ranges each, or share what is encoded as one; use `cache page`", "E211")
    if len(kept):
        place = np.searchsorted(kept, extents.sample)
        place[place == len(kept)] = 0
        extents = extents.select(kept[place] != extents.sample)
    stored = _library_ranges(extents, places) if access.through == "library" else places.read_ranges(extents)
    return stored.sort_by_file() if access.is_file_ordered else stored


def rows_to_keep(stored: Extents, memory: int) -> NDArray[np.bool_]:
    """Return which rows of the first epoch `cache memory` keeps: each sample once, up to the first one too large."""
    keeps = np.zeros(len(stored.sample), np.bool_)
    if memory:
        rows = np.sort(np.unique(stored.sample, return_index=True)[1])
        keeps[rows[np.cumsum(stored.length[rows]) <= memory]] = True
    return keeps


def buffer_bytes(dataset: Dataset, needed: int) -> int:
    """Return the bytes that are allocated for a batch where the largest one of an epoch needs `needed`.

    Batches of varying size differ from epoch to epoch. A margin of 1/8 avoids most reopening of files for larger
    buffers.
    """
    fixed = dataset.constant_size is not None and not dataset.source and dataset.compress is None
    return needed if fixed else needed + needed // 8


def _library_ranges(extents: Extents, places: Places) -> ReadRanges:
    """Return what a library is asked for: the library finds samples itself, in the contents of a file, row after row.

    Offsets are offsets in contents, not in files: sample k of a file begins at k times a sample's bytes.
    """
    dataset, file = places.dataset, places.files_of(extents.sample)
    within, size = extents.sample - places.first_samples(file), places.library_bytes(extents.sample)
    if not size.all():
        text = f"samples of `{dataset.name}` in {dataset.format} have no fixed size: its library cannot read one"
        raise PlanError(f"{text}; name other `datasets`, or use `through direct`", "E216")
    zeros = np.zeros(len(size), np.int64)
    rows = Extents(extents.sample, file, within * size, size, extents.step_start)
    return ReadRanges(rows, zeros, zeros, zeros if dataset.source else size, zeros, zeros)


#: Bytes of the samples that are read before some of them are written; a larger sample is a step of its own.
STEP_BYTES: Final = 4 << 20


def plan_part(places: Places, first: int, last: int) -> Extents:
    """Return the extents of samples [first, last) in steps: a new one begins with the sample that passes STEP_BYTES."""
    samples = np.arange(first, last)
    file, offset, length = places.locate(samples)
    turn = (np.cumsum(length) - length) // STEP_BYTES
    heads = np.flatnonzero(turn[1:] != turn[:-1]) + 1
    return Extents(samples, file, offset, length, np.concatenate([[0], heads, [len(samples)]]).astype(np.int64))


#: Bytes of a block; files are dealt in blocks to the ranks that count them.
BLOCK = 1 << 26

#: Ranges that a rank keeps in memory to count distinct bytes: 24 bytes each, three times this while they are sorted.
MOST_RANGES = 1 << 22


class ByteRanges(NamedTuple):
    """Ranges of bytes in files, sorted by file and offset; no two ranges of a file overlap or touch. int64 (n,)."""

    file: Ints  #: number of the file
    begin: Ints  #: first byte
    end: Ints  #: last byte, exclusive

    @property
    def bytes(self) -> int:
        """Sum of the bytes."""
        return int((self.end - self.begin).sum())


def union_ranges(file: Ints, begin: Ints, end: Ints) -> ByteRanges:
    """Return the bytes that are in any of some ranges (n,), in any order; these may be empty or overlap."""
    some = end > begin
    file, begin, end = file[some], begin[some], end[some]
    order = np.lexsort((begin, file))
    file, begin, end = file[order], begin[order], end[order]
    first = np.diff(file, prepend=-1) > 0
    # Files are placed one after another, so that one running maximum gives the largest end so far in each file.
    heads = np.flatnonzero(first)
    longest = np.maximum.reduceat(end, heads) if len(heads) else end
    base = np.repeat(np.cumsum(longest) - longest, np.diff(np.append(heads, len(file))))
    reach = np.maximum.accumulate(base + end)
    first[1:] |= base[1:] + begin[1:] > reach[:-1]
    heads = np.flatnonzero(first)
    tails = np.append(heads[1:], len(file))[: len(heads)] - 1
    return ByteRanges(file[heads], begin[heads], reach[tails] - base[tails])


def cut_at_blocks(ranges: ByteRanges) -> tuple[ByteRanges, Ints]:
    """Return the same bytes, cut at multiples of `BLOCK`, and for each range the number of its file and block."""
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
