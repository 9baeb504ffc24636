"""The calls of a save: what a rank writes, or sends to its writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dliosim.plan.checkpoints.shards import StoredBlock, TensorBlock


class Segment(NamedTuple):
    """Bytes [begin, begin + length) of a block, in the order in which it is stored."""

    part: int  #: number of the part
    block: TensorBlock  #: rows and columns
    begin: int  #: first byte in the block
    length: int  #: bytes


class Piece(NamedTuple):
    """The bytes of one call."""

    file: str  #: name of the file
    offset: int  #: first byte
    length: int  #: bytes
    segments: tuple[Segment, ...]  #: the state's bytes that they are, in order


def cut_pieces(shards: Iterable[StoredBlock], transfer: int | None, whole: bool) -> Iterator[Piece]:
    """Yield the calls of some shards, each of at most `transfer` bytes (None: of any length).

    Each tensor begins a new call. Where the state is written as a `whole`, a new call begins only where a shard is in
    another file, or does not follow the shard before it.
    """
    run: list[Segment] = []
    file, offset, length, last = "", 0, 0, None
    for shard in shards:
        if last is None or not _can_merge(last, shard, whole):
            if run:
                yield Piece(file, offset, length, tuple(run))
            run, length = [], 0
            file, offset = shard.file, shard.offset
        last = shard
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


def count_pieces(shards: Iterable[StoredBlock], transfer: int | None, whole: bool) -> tuple[int, int]:
    """Return the number of calls that `cut_pieces` would cut, and the bytes of the largest one, without cutting."""
    calls = largest = length = 0
    last = None

    def end_run() -> None:
        nonlocal calls, largest
        most = transfer or length
        calls += -(-length // most) if length else 0
        largest = max(largest, min(length, most))

    for shard in shards:
        if last is not None and not _can_merge(last, shard, whole):
            end_run()
            length = 0
        length += shard.block.length
        last = shard
    end_run()
    return calls, largest


def _can_merge(last: StoredBlock, shard: StoredBlock, whole: bool) -> bool:
    """Return whether one call may hold the end of `last` and the beginning of `shard`."""
    follows = shard.file == last.file and shard.offset == last.offset + last.block.length
    return follows and (whole or shard.part == last.part)
