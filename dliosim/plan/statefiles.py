"""Where a checkpoint's shards lie: in which file, at which offset, and which rank writes it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from dliosim.model import Checkpoint, Part, Split
from dliosim.plan.shards import Block, held_blocks, owners, saves

METADATA = "metadata.json"
"""The file of all shards' places, where a checkpoint has one."""


def partner_file(rank: int) -> str:
    """The name of the file in which a partner keeps what `rank` saves, call after call."""
    return f"partner_of_{rank:06d}.ckpt"


class Shard(NamedTuple):
    """A block of part number `part` that `owner` saves, stored row after row at `offset` of `file`."""

    part: int
    block: Block
    owner: int
    file: str
    offset: int


class StateFiles:
    """The files of one checkpoint that ranks split in one way write. Made by `state_files`; what is asked is kept."""

    def __init__(self, checkpoint: Checkpoint, split: Split) -> None:
        self.checkpoint = checkpoint
        self.split = split
        self.parts = checkpoint.parts_for(split)
        self.regions = checkpoint.writers.kind in ("shared file", "rank")
        self._shards: dict[int, tuple[Shard, ...]] = {}
        self._by_part: dict[int, dict[int, tuple[Shard, ...]]] = {}
        self._sizes: dict[int, int] = {}
        self._bases: list[int] | None = None

    def shards(self, owner: int) -> tuple[Shard, ...]:
        """What a rank saves, in the order of the parts; in files of its own that is the order of the offsets, too."""
        found = self._shards.get(owner)
        if found is None:
            found = self._shards[owner] = tuple(self._in_regions(owner) if self.regions else self._in_files(owner))
        return found

    def shards_of(self, owner: int, part: int) -> tuple[Shard, ...]:
        """What a rank saves of one part."""
        found = self._by_part.get(owner)
        if found is None:
            found = {}
            for shard in self.shards(owner):
                found[shard.part] = (*found.get(shard.part, ()), shard)
            self._by_part[owner] = found
        return found.get(part, ())

    def owned_bytes(self, owner: int) -> int:
        """Bytes that a rank saves."""
        found = self._sizes.get(owner)
        if found is None:
            found = self._sizes[owner] = sum(block.length for _, block in self._owned(owner))
        return found

    def writer(self, owner: int) -> int:
        """The rank that writes what `owner` saves."""
        writers = self.checkpoint.writers
        if writers.kind == "rank":
            return writers.number
        return owner // writers.number * writers.number if writers.kind == "one per" else owner

    def senders(self, writer: int) -> Iterator[int]:
        """The ranks whose shares a writing rank receives, in the order in which it does."""
        writers, present = self.checkpoint.writers, self.split.present
        if writers.kind == "rank" and writer == writers.number:
            yield from (rank for rank in range(present) if rank != writer)
        elif writers.kind == "one per" and writer % writers.number == 0:
            yield from range(writer + 1, min(writer + writers.number, present))

    def made_by(self, rank: int) -> tuple[str, ...]:
        """Names of the files that a rank makes, in the order of writing; rank 0 makes the one of all ranks."""
        kind = self.checkpoint.writers.kind
        if kind == "shared file":
            return (self._name("", 0),) if rank == 0 else ()
        if self.writer(rank) != rank:
            return ()
        if kind != "file per rank":
            return (self._name("", rank),)
        names = dict.fromkeys(shard.file for shard in self.shards(rank))
        if self.checkpoint.model is None:
            names.setdefault(self._name("", rank), None)  # even if it owns no byte of it
        return tuple(names)

    def name_of_shared(self) -> str:
        """The name of the only file, where there is one."""
        return self._name("", 0)

    def files(self) -> Iterator[tuple[str, int]]:
        """Name of each file and the rank that makes it, over all ranks; with thousands of ranks that takes seconds."""
        for rank in range(self.split.present):
            for name in self.made_by(rank):
                yield name, rank

    def partner_files(self) -> Iterator[tuple[str, int]]:
        """Name of each file that a partner keeps, and the rank whose share it has; none without partners."""
        if self.checkpoint.partner is not None:
            for rank in range(self.split.present):
                yield partner_file(rank), rank

    def size(self, name: str, maker: int) -> int:
        """Bytes of a file that `maker` makes."""
        if self.regions:
            return self._region_bases()[-1]
        if self.checkpoint.writers.kind == "one per":
            return sum(self.owned_bytes(rank) for rank in chain((maker,), self.senders(maker)))
        return sum(shard.block.length for shard in self.shards(maker) if shard.file == name)

    def total(self) -> int:
        """Bytes of all files."""
        if self.regions:
            return self._region_bases()[-1]
        return sum(self.owned_bytes(rank) for rank in range(self.split.present))

    def _owned(self, owner: int) -> Iterator[tuple[int, Block]]:
        replicas = self.checkpoint.replicas
        for number, part in enumerate(self.parts):
            if saves(part, number, self.split, replicas, owner):
                for block in held_blocks(part, self.split, owner):
                    yield number, block

    def _in_files(self, owner: int) -> Iterator[Shard]:
        """File per rank: of each `Part.file` one of its own; one per N: those of its ranks one after the other."""
        ends: dict[str, int] = {}
        alone = self.checkpoint.writers.kind == "file per rank"
        writer = self.writer(owner)
        before = 0 if alone else sum(self.owned_bytes(rank) for rank in range(writer, owner))
        for number, block in self._owned(owner):
            label = self.parts[number].file if alone else ""
            offset = ends.get(label, before)
            ends[label] = offset + block.length
            yield Shard(number, block, owner, self._name(label, writer), offset)

    def _in_regions(self, owner: int) -> Iterator[Shard]:
        """One file: part after part, in each the shards in the order of their owners."""
        name, bases, last, offset = self._name("", 0), self._region_bases(), -1, 0
        for number, block in self._owned(owner):
            if number != last:
                last, offset = number, bases[number] + self._before(self.parts[number], number, owner)
            yield Shard(number, block, owner, name, offset)
            offset += block.length

    def _before(self, part: Part, number: int, owner: int) -> int:
        """Bytes of a part that the owners before one have saved."""
        if part.scope == "total":
            return owner * part.size // self.split.ranks
        if part.scope == "per rank":
            return owner * part.size
        return sum(
            block.length
            for other in owners(part, number, self.split, self.checkpoint.replicas)
            if other < owner
            for block in held_blocks(part, self.split, other)
        )

    def _region_bases(self) -> list[int]:
        """Where the region of each part begins, and where the last one ends."""
        if self._bases is None:
            bases = [0]
            for number, part in enumerate(self.parts):
                bases.append(bases[-1] + self._before(part, number, self.split.present))
            self._bases = bases
        return self._bases

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


@lru_cache(maxsize=16)
def state_files(checkpoint: Checkpoint, split: Split) -> StateFiles:
    """The files of a checkpoint that ranks split in one way write."""
    return StateFiles(checkpoint, split)
