"""The layout of a checkpoint's shards: the file and offset of each, the rank that writes it, and its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Checkpoint, Split
from dliosim.plan.checkpoints.shards import ShardSizes, StoredBlock, TensorBlock, blocks_of_rank, is_part_owner

#: The file with the file and offset of every shard, where a checkpoint has one
METADATA = "metadata.json"

# Ranks whose shard offsets are kept in memory.
_KEPT = 4096


def partner_file(rank: int) -> str:
    """Return the name of the file in which a partner keeps what `rank` saves, call after call."""
    return f"partner_of_{rank:06d}.ckpt"


class StateFiles:
    """The files of one checkpoint, as the ranks of one split write them. Made by `state_files`.

    It caches 8 bytes a part for each rank that was asked for last, and the names of the files that were asked for.
    """

    def __init__(self, checkpoint: Checkpoint, split: Split) -> None:
        self.checkpoint = checkpoint
        self.split = split
        self.parts = checkpoint.parts_for(split)
        self.regions = checkpoint.writers.kind in ("shared file", "rank")
        self._copies = checkpoint.copies(split)
        self.shares = ShardSizes(self.parts, split, self._copies)
        # Parts of each label in file names, if ranks write files of their own.
        labels: dict[str, list[int]] = {}
        for number, part in enumerate(self.parts):
            labels.setdefault(part.file, []).append(number)
        self._labels = {label: np.array(numbers) for label, numbers in labels.items()}
        self._offsets: dict[int, NDArray[np.int64]] = {}
        self._sizes: dict[int, dict[str, int]] = {}
        self._lost: frozenset[str] = frozenset()

    def redirect_to_partners(self, lost: Collection[str]) -> StateFiles:
        """Return the same files, with the shards of lost files at their partners; for files that ranks do not share."""
        if not lost:
            return self
        mended = copy(self)
        mended._lost = frozenset(lost)
        access = self.checkpoint.access
        if access.collective:
            mended.checkpoint = replace(self.checkpoint, access=replace(access, api="mpi-independent"))
        return mended

    @property
    def is_one_file(self) -> bool:
        """Return whether all reads are in one file."""
        return self.regions and not self._lost

    def shards(self, owner: int) -> tuple[StoredBlock, ...]:
        """Return the shards that a rank saves, in the order of the parts.

        In files of its own this is the order of offsets, too.
        """
        return tuple(shard for number in self.owner_parts(owner) for shard in self.part_shards(owner, number))

    def owner_parts(self, owner: int) -> list[int]:
        """Return the numbers of the parts that a rank saves bytes of."""
        found: list[int] = np.flatnonzero(self.shares.bytes_of_rank(owner)).tolist()
        return found

    def part_shards(self, owner: int, number: int) -> Iterator[StoredBlock]:
        """Yield the shards that a rank saves of one part."""
        part = self.parts[number]
        if not is_part_owner(part, number, self.split, self._copies, owner):
            return
        alone = self.checkpoint.writers.kind == "file per rank"
        name = self._name(part.file if alone else "", self.writer(owner))
        offset = int(self._part_offsets(owner)[number])
        if name in self._lost:
            name, offset = partner_file(owner), int(_exclusive_sum(self.shares.bytes_of_rank(owner))[number])
        for block in blocks_of_rank(part, self.split, owner):
            yield StoredBlock(number, block, name, offset, block.width)
            offset += block.length

    def owner_bytes(self, owner: int) -> int:
        """Return the bytes that a rank saves."""
        return int(self.shares.bytes_of_rank(owner).sum())

    def bytes_per_owner(self) -> NDArray[np.int64]:
        """Return the bytes that each rank saves, int64 (ranks that take part,)."""
        return self.shares.sum_by_rank()

    def files_per_rank(self) -> tuple[NDArray[np.int64], Counter[str]]:
        """Return the number of files of each rank, int64 (ranks that take part,), and the number of each label."""
        writers, present = self.checkpoint.writers, self.split.present_ranks
        made = np.zeros(present, np.int64)
        if writers.kind != "file per rank":
            every = writers.number if writers.kind == "one per" else present
            made[writers.number % every if writers.kind == "rank" else 0 :: every] = 1
            return made, Counter({"": int(made.sum())})
        if self.checkpoint.model is None:  # each rank has a file, even if it owns no byte of it
            return made + 1, Counter({"": present})
        labels: Counter[str] = Counter()
        # Layers of one stage have equal parts, so their labels have the same number of files: counted once.
        known: dict[bytes, NDArray[np.bool_]] = {}
        for label, numbers in self._labels.items():
            key = self.shares.kind_key(numbers)
            if key not in known:
                known[key] = self.shares.sum_by_rank(numbers) > 0
            made += known[key]
            labels[label] += int(known[key].sum())
        return made, labels

    def writer(self, owner: int) -> int:
        """Return the rank that writes what `owner` saves."""
        writers = self.checkpoint.writers
        if writers.kind == "rank":
            return writers.number
        return owner // writers.number * writers.number if writers.kind == "one per" else owner

    def writers(self) -> NDArray[np.int64]:
        """Return for each rank the rank that writes what it saves, int64 (ranks that take part,)."""
        ranks, writers = np.arange(self.split.present_ranks), self.checkpoint.writers
        if writers.kind == "rank":
            return np.full_like(ranks, writers.number)
        return ranks // writers.number * writers.number if writers.kind == "one per" else ranks

    def turns(self) -> list[int]:
        """Return the ranks that make files, in their order, if they take turns; none if all write at once."""
        most, makers = self.checkpoint.at_most, np.flatnonzero(self.files_per_rank()[0]).tolist()
        return makers if most is not None and most < len(makers) else []

    def waves(self) -> int:
        """Return how often `at most` writers begin one after the other, 0 if all write at once."""
        return -(-len(self.turns()) // (self.checkpoint.at_most or 1))

    def senders(self, writer: int) -> Iterator[int]:
        """Yield the ranks whose shards a writer receives, in the order in which it receives them."""
        writers, present = self.checkpoint.writers, self.split.present_ranks
        if writers.kind == "rank" and writer == writers.number:
            yield from (rank for rank in range(present) if rank != writer)
        elif writers.kind == "one per" and writer % writers.number == 0:
            yield from range(writer + 1, min(writer + writers.number, present))

    def file_names(self, rank: int) -> tuple[str, ...]:
        """Return the names of the files that a rank makes, in the order of writing; rank 0 makes the shared file."""
        return tuple(self.sizes(rank))

    def sizes(self, rank: int) -> dict[str, int]:
        """Return {name: bytes} of the files that a rank makes.

        They are kept in memory, as those of all ranks of a large model take seconds.
        """
        found = self._sizes.get(rank)
        if found is None:
            found = self._sizes[rank] = self._sizes_of(rank)
        return found

    def _sizes_of(self, rank: int) -> dict[str, int]:
        writers = self.checkpoint.writers
        if self.regions:
            maker = writers.number if writers.kind == "rank" else 0
            return {self.shared_file_name(): self.total()} if rank == maker else {}
        if self.writer(rank) != rank:
            return {}
        if writers.kind == "one per":
            end = min(rank + writers.number, self.split.present_ranks)
            return {self._name("", rank): self._bytes_before(end) - self._bytes_before(rank)}
        own = self.shares.bytes_of_rank(rank)
        found = {self._name(label, rank): int(own[numbers].sum()) for label, numbers in self._labels.items()}
        found = {name: size for name, size in found.items() if size}
        if self.checkpoint.model is None:
            found.setdefault(self._name("", rank), 0)  # even if the rank owns no byte of it
        return found

    def shared_file_name(self) -> str:
        """Return the name of the only file, if there is one."""
        return self._name("", 0)

    def files(self) -> Iterator[tuple[str, int]]:
        """Return the name of each file and the rank that makes it, over all ranks."""
        return ((name, rank) for rank in range(self.split.present_ranks) for name in self.file_names(rank))

    def partner_files(self) -> Iterator[tuple[str, int]]:
        """Yield the name of each file that a partner keeps, and the rank that saved its bytes.

        There are none without partners.
        """
        if self.checkpoint.partner is not None:
            for rank in range(self.split.present_ranks):
                yield partner_file(rank), rank

    def size(self, name: str, maker: int) -> int:
        """Return the bytes of a file that `maker` makes."""
        return self.total() if self.regions else self.sizes(maker)[name]

    def total(self) -> int:
        """Return the bytes of all files."""
        return self._bytes_before(self.split.present_ranks)

    def _bytes_before(self, rank: int) -> int:
        return int(self.shares.bytes_below(rank).sum())

    def _part_offsets(self, owner: int) -> NDArray[np.int64]:
        """Return the offset in its file at which the shards of an owner begin, for each part."""
        found = self._offsets.get(owner)
        if found is None:
            if len(self._offsets) >= _KEPT:
                self._offsets.clear()
            found = self._offsets[owner] = self._offsets_of(owner)
        return found

    def _offsets_of(self, owner: int) -> NDArray[np.int64]:
        """Return the offset of each part, int64 (parts,).

        In one file part follows part, and in each part the shards are in the order of their owners. File per rank: each
        `Part.file` has a file of its own. One per N: the shards of its ranks follow one another.
        """
        if self.regions:
            return self._part_starts + self.shares.bytes_below(owner)
        own = self.shares.bytes_of_rank(owner)
        if self.checkpoint.writers.kind == "one per":
            return _exclusive_sum(own) + self._bytes_before(owner) - self._bytes_before(self.writer(owner))
        offsets = np.zeros(len(own), np.int64)
        for numbers in self._labels.values():
            offsets[numbers] = _exclusive_sum(own[numbers])
        return offsets

    @cached_property
    def _part_starts(self) -> NDArray[np.int64]:
        """The offset in one shared file at which each part begins, int64 (parts,)."""
        return _exclusive_sum(self.shares.bytes_below(self.split.present_ranks))

    def _name(self, label: str, maker: int) -> str:
        checkpoint = self.checkpoint
        if self.regions:
            return "000000.ckpt"
        if not label:
            number = maker // checkpoint.writers.number if checkpoint.writers.kind == "one per" else maker
            name = f"{number:06d}.ckpt"
        else:
            name = f"{label}-{maker:06d}.ckpt"
        return f"folder_{maker // checkpoint.folder:06d}/{name}" if checkpoint.folder else name


def _exclusive_sum(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(sizes) - sizes


@lru_cache(maxsize=16)
def state_files(checkpoint: Checkpoint, split: Split) -> StateFiles:
    """Return the files of a checkpoint, as the ranks of a split write them; kept for the last 16."""
    return StateFiles(checkpoint, split)


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

    Each tensor begins a new call. If the state is written as a `whole`, a new call begins only if a shard is in
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
