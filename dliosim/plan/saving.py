"""What a rank writes or sends when it saves, call by call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dliosim.plan.shards import Block
from dliosim.plan.statefiles import Shard


class Segment(NamedTuple):
    """Bytes [begin, begin + length) of a block, counted in the order in which it is stored."""

    part: int
    block: Block
    begin: int
    length: int


class Piece(NamedTuple):
    """One call's worth: `length` bytes at `offset` of a file, and what they are, segment after segment."""

    file: str
    offset: int
    length: int
    segments: tuple[Segment, ...]


def pieces(shards: Iterable[Shard], transfer: int | None, whole: bool) -> Iterator[Piece]:
    """Shards cut into calls of at most `transfer` bytes (None: of any length).

    Each tensor begins a new call, unless the state is written as a `whole`: then only where the file or the offset
    does not go on.
    """
    run: list[Segment] = []
    file, offset, length = "", 0, 0
    for shard in shards:
        if run and (not whole or shard.file != file or shard.offset != offset + length):
            yield Piece(file, offset, length, tuple(run))
            run, length = [], 0
        if not run:
            file, offset = shard.file, shard.offset
        begin, end = 0, shard.block.length
        while begin < end:
            most = end - begin if transfer is None else min(end - begin, transfer - length)
            run.append(Segment(shard.part, shard.block, begin, most))
            begin += most
            length += most
            if length == transfer:
                yield Piece(file, offset, length, tuple(run))
                run, offset, length = [], offset + length, 0
    if run:
        yield Piece(file, offset, length, tuple(run))


def largest_piece(shards: Iterable[Shard], transfer: int | None, whole: bool) -> int:
    """Bytes of the largest call."""
    return max((piece.length for piece in pieces(shards, transfer, whole)), default=0)
