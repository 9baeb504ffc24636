"""What a rank reads when it restores: of whatever the ranks that saved have stored, the bytes that it will hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Split
from dliosim.plan.saving import Segment
from dliosim.plan.shards import Block, held_blocks, range_blocks, saved_blocks, sources, stream_bytes
from dliosim.plan.statefiles import StateFiles


class Fetch(NamedTuple):
    """A block of a part, in a file that `maker` made: its first byte at `offset`, its rows `stride` bytes apart."""

    part: int
    block: Block
    file: str
    maker: int
    offset: int
    stride: int

    @property
    def contiguous(self) -> bool:
        """Whether its rows follow each other without gaps."""
        return self.stride == self.block.width or self.block.row1 - self.block.row0 == 1


def needs(stored: StateFiles, holder: Split, rank: int, everything: bool) -> Iterator[tuple[int, Block]]:
    """The blocks of each part that a rank needs whose job holds the state as `holder`."""
    written = stored.split
    held = stored.checkpoint.parts_for(holder)
    for number, part in enumerate(stored.parts):
        if everything:
            blocks = saved_blocks(part, written)
        elif part.scope == "per rank" and holder != written:
            # Of what each rank kept for itself there is no other way to deal it out than anew.
            size, ranks = stream_bytes(part, written), holder.ranks
            blocks = range_blocks(rank * size // ranks, (rank + 1) * size // ranks, part.row_bytes)
        else:
            blocks = held_blocks(held[number], holder, rank)
        for block in blocks:
            yield number, block


def fetches(stored: StateFiles, holder: Split, rank: int, everything: bool = False) -> Iterator[Fetch]:
    """Where a rank finds what it needs, in the order of the parts; together they are what `needs` says, once."""
    data = holder.place(rank)[2]
    replicas = stored.checkpoint.replicas
    for number, needed in needs(stored, holder, rank, everything):
        part = stored.parts[number]
        for owner in sources(part, number, stored.split, replicas, needed, data):
            for shard in stored.shards_of(owner, number):
                if common := shard.block.overlap(needed):
                    width = shard.block.width
                    skipped = (common.row0 - shard.block.row0) * width + common.col0 - shard.block.col0
                    yield Fetch(number, common, shard.file, stored.writer(owner), shard.offset + skipped, width)


class Step(NamedTuple):
    """The calls of one step: where each begins, what it reads, and what all of it is, in that order."""

    file: str
    maker: int
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    segment: Segment


def steps(found: Iterable[Fetch], transfer: int | None) -> Iterator[Step]:
    """Fetches cut into steps of at most `transfer` bytes (None: of any size), a call for each stretch of the file."""
    for fetch in found:
        block, width, total = fetch.block, fetch.block.width, fetch.block.length
        most = transfer or total
        begin = 0
        while begin < total:
            if fetch.contiguous:
                size = min(most, total - begin)
                offset, length = np.array([fetch.offset + begin]), np.array([size])
            else:
                # Whole rows if one fits, else part of one.
                row, column = divmod(begin, width)
                rows = 1 if column or most < width else min(most // width, (total - begin) // width)
                size = min(most, width - column) if rows == 1 else rows * width
                offset = fetch.offset + column + fetch.stride * np.arange(row, row + rows)
                length = np.full(rows, size // rows)
            yield Step(fetch.file, fetch.maker, offset, length, Segment(fetch.part, block, begin, size))
            begin += size


def count_steps(found: Iterable[Fetch], transfer: int | None) -> int:
    """How many steps there are."""
    count = 0
    for fetch in found:
        total, width = fetch.block.length, fetch.block.width
        most = transfer or total
        if fetch.contiguous:
            count += -(-total // most)
        elif most < width:
            count += total // width * -(-width // most)
        else:
            count += -(-(total // width) // (most // width))
    return count
