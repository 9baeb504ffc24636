"""What a rank writes or sends when it saves, call by call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from dliosim.plan.checkpoints.shards import TensorBlock


class Segment(NamedTuple):
    """Bytes [begin, begin + length) of a block, counted in the order in which it is stored."""

    part: int
    block: TensorBlock
    begin: int
    length: int


class Piece(NamedTuple):
    """One call's worth: `length` bytes at `offset` of a file, and what they are, segment after segment."""

    file: str
    offset: int
    length: int
    segments: tuple[Segment, ...]


class StoredBlock(Protocol):
    """A block of a part that lies row after row at an offset of a file."""

    @property
    def part(self) -> int:
        """Its number."""
        ...

    @property
    def block(self) -> TensorBlock:
        """What of it."""
        ...

    @property
    def file(self) -> str:
        """The file's name."""
        ...

    @property
    def offset(self) -> int:
        """Where in the file, in bytes."""
        ...


class PieceCount(NamedTuple):
    """How many calls there are, and the bytes of the largest."""

    calls: int
    largest: int


def cut_pieces(shards: Iterable[StoredBlock], transfer: int | None, whole: bool) -> Iterator[Piece]:
    """Shards cut into calls of at most `transfer` bytes (None: of any length).

    Each tensor begins a new call, unless the state is written as a `whole`: then only where the file or the offset
    does not go on.
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


def count_pieces(shards: Iterable[StoredBlock], transfer: int | None, whole: bool) -> PieceCount:
    """Count what `pieces` would cut, without doing so."""
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
    return PieceCount(calls, largest)


def largest_piece(shards: Iterable[StoredBlock], transfer: int | None, whole: bool) -> int:
    """Bytes of the largest call."""
    return count_pieces(shards, transfer, whole).largest


def _can_merge(last: StoredBlock, shard: StoredBlock, whole: bool) -> bool:
    """Whether a call may go on from one shard to the next."""
    follows = shard.file == last.file and shard.offset == last.offset + last.block.length
    return follows and (whole or shard.part == last.part)
