"""The shards of a checkpoint's parts: what each rank holds, and which replica is saved.

A part is rows of bytes. A rank holds blocks of it: rows [row0, row1), and bytes [col0, col1) of each row. A tensor that
is split by rows or by columns is one block for each rank; a range of its bytes is up to three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Copies, Part, Split

#: A number for each part, in the order of the parts; int64 (parts,)
Column = NDArray[np.int64]


class ShardSizes:
    """Closed forms of what `shards.blocks_of_rank` and `shards.is_part_owner` give for one part and rank."""

    def __init__(self, parts: Sequence[Part], split: Split, copies: Copies) -> None:
        self._split = split
        self.size, self.row, self.rows, self.element, self.stage = (
            np.array([getattr(part, name) for part in parts], np.int64)
            for name in ("size", "row_bytes", "rows", "element", "stage")
        )
        self.scope = np.array([part.scope for part in parts], np.str_)
        # A tensor is `pieces` of `piece` bytes that tensor-parallel ranks share evenly; 0 if each rank has it whole.
        is_split = [self.scope == "rows", self.scope == "columns"]
        self._pieces: Column = np.select(is_split, [self.rows, self.row // self.element], 0)
        self._piece: Column = np.select(is_split, [self.row, self.rows * self.element], 0)
        others: list[Column] = [self.size * (self.scope == scope) for scope in ("whole", "total", "per rank")]
        self._whole, self._total, self._each = others
        # The data-parallel rank that saves; -1 if all do.
        number = np.arange(len(parts))
        replica = -1 if copies == "all" else copies
        self.copy: Column = number % split.data if copies == "dealt" else np.full_like(number, replica)

        # Parts that are held and saved in the same way are one kind, as those of many layers are: work is done once a
        # kind. `_kinds` has a row for each kind, `_kind` the kind of each part.
        table = (self.stage, self.copy, self._pieces, self._piece, self._whole, self._total, self._each)
        self._kinds, kind = np.unique(np.stack(table, axis=1), axis=0, return_inverse=True)
        self._kind = kind.reshape(-1)

    def kind_key(self, numbers: Column) -> bytes:
        """Return a key; two sets of parts with the same key have bytes from the same ranks."""
        return np.unique(self._kind[numbers]).tobytes()

    def sum_by_rank(self, numbers: Column | slice = slice(None)) -> Column:
        """Return the bytes of some parts, or of all, that each rank saves; int64 (ranks that take part,)."""
        split = self._split
        saved = np.zeros(split.present_ranks, np.int64)
        counts = np.bincount(self._kind[numbers], minlength=len(self._kinds))
        for kind in np.flatnonzero(counts):
            count = int(counts[kind])
            stage, copy, pieces, piece, whole, total, each = self._kinds[kind].tolist()
            saved += count * each
            if total:
                saved += count * np.diff(share_start(total, np.arange(split.present_ranks + 1), split.ranks))
            if not pieces and not whole:
                continue
            tensor = np.arange(split.tensor + 1)
            held = np.diff(share_start(pieces, tensor, split.tensor) * piece + whole * tensor)
            for data in range(split.data) if copy < 0 else (copy,):
                begin = split.rank(0, stage, data)
                some = saved[begin : begin + split.tensor]
                some += count * held[: len(some)]
        return saved

    def bytes_of_rank(self, rank: int) -> Column:
        """Return the bytes that a rank saves of each part."""
        split = self._split
        tensor, stage, data = split.coordinates(rank)
        here = (self.stage == stage) & ((self.copy == data) | (self.copy < 0))
        saved = (
            self._each + share_start(self._total, rank + 1, split.ranks) - share_start(self._total, rank, split.ranks)
        )
        saved[here] += (self._tensor_bytes_below(tensor + 1) - self._tensor_bytes_below(tensor))[here]
        return saved

    def bytes_below(self, rank: int) -> Column:
        """Return the bytes that all ranks below `rank` save of each part."""
        split, group = self._split, self._split.tensor
        # Data ranks of the part's stage that begin below `rank`: all but the last of them end there, too.
        begun: Column = np.clip(-(-(rank - split.stage_stride * self.stage) // split.data_stride), 0, split.data)
        last = np.where(self.copy < 0, np.maximum(begun - 1, 0), self.copy)
        once = self._tensor_bytes_below(
            np.clip(rank - split.stage_stride * self.stage - split.data_stride * last, 0, group)
        )
        every: Column = self._tensor_bytes_below(group) * np.maximum(begun - 1, 0) + once
        saved = share_start(self._total, rank, split.ranks)
        saved += self._each * rank
        saved += np.where(self.copy < 0, every, once).astype(np.int64)
        return saved

    def _tensor_bytes_below(self, tensor: int | Column) -> Column:
        """Return the bytes of each tensor that the tensor-parallel ranks below `tensor` hold."""
        held = share_start(self._pieces, tensor, self._split.tensor) * self._piece
        held += self._whole * tensor
        return held


def share_start(size: int | Column, rank: int | Column, ranks: int | Column) -> Column:
    """Return `size * rank // ranks` where the product may be too large for 64 bits."""
    each, more = size // ranks, size % ranks
    return np.asarray(each * rank + more * rank // ranks, np.int64)


class TensorBlock(NamedTuple):
    """Bytes [col0, col1) of each of the rows [row0, row1) of a part, in the order of the rows."""

    row0: int  #: first row
    row1: int  #: last row, exclusive
    col0: int  #: first byte of a row
    col1: int  #: last byte of a row, exclusive

    @property
    def length(self) -> int:
        """Bytes of the block."""
        return (self.row1 - self.row0) * (self.col1 - self.col0)

    @property
    def width(self) -> int:
        """Bytes of each row."""
        return self.col1 - self.col0

    def overlap(self, other: TensorBlock) -> TensorBlock | None:
        """Return the block that two blocks of one part have in common, or None."""
        found = TensorBlock(
            max(self.row0, other.row0),
            min(self.row1, other.row1),
            max(self.col0, other.col0),
            min(self.col1, other.col1),
        )
        return found if found.row0 < found.row1 and found.col0 < found.col1 else None


class StoredBlock(NamedTuple):
    """A block of a part in a file, row after row."""

    part: int  #: number of the part
    block: TensorBlock  #: rows and columns
    file: str  #: name of the file
    offset: int  #: first byte
    stride: int  #: bytes from one row to the next; more than those of a row where a wider block is stored

    @property
    def is_contiguous(self) -> bool:
        """Return whether the rows follow one another without gaps."""
        return self.stride == self.block.width or self.block.row1 - self.block.row0 == 1


def part_bytes(part: Part, split: Split) -> int:
    """Return the bytes of a part on all ranks that take part; replicas count once."""
    if part.scope == "per rank":
        return part.size * split.present_ranks
    return part.size * split.present_ranks // split.ranks if part.scope == "total" else part.size


def blocks_of_rank(part: Part, split: Split, rank: int) -> list[TensorBlock]:
    """Return the blocks of a part that a rank holds, in the order of their bytes; empty blocks are left out."""
    if part.scope == "total":
        ranks = split.ranks
        return range_blocks(rank * part.size // ranks, (rank + 1) * part.size // ranks, part.row_bytes)
    if part.scope == "per rank":
        return [TensorBlock(rank, rank + 1, 0, part.size)] if part.size else []
    tensor, stage, _ = split.coordinates(rank)
    if stage != part.stage:
        return []
    row, rows = part.row_bytes, part.rows
    if part.scope == "rows":
        held = TensorBlock(tensor * rows // split.tensor, (tensor + 1) * rows // split.tensor, 0, row)
    elif part.scope == "columns":
        columns, element = row // part.element, part.element
        first, last = tensor * columns // split.tensor, (tensor + 1) * columns // split.tensor
        held = TensorBlock(0, rows, first * element, last * element)
    else:
        held = TensorBlock(0, rows, 0, row)
    return [held] if held.length else []


def range_blocks(begin: int, end: int, row: int) -> list[TensorBlock]:
    """Return bytes [begin, end) of a part as blocks: part of a row, whole rows, part of a row; a row is `row` bytes."""
    blocks = []
    while begin < end:
        first, column = divmod(begin, row)
        whole = (end - begin) // row
        if column or not whole:
            until = min(end, (first + 1) * row)
            blocks.append(TensorBlock(first, first + 1, column, column + until - begin))
        else:
            until = begin + whole * row
            blocks.append(TensorBlock(first, first + whole, 0, row))
        begin = until
    return blocks


def is_part_owner(part: Part, number: int, split: Split, copies: Copies, rank: int) -> bool:
    """Return whether a rank saves what it holds of part `number`, and not another rank that holds a replica."""
    if part.scope in ("total", "per rank") or copies == "all":
        return True
    data = split.coordinates(rank)[2]
    return data == _replica_rank(number, split, copies, data)


def part_owners(part: Part, number: int, split: Split, copies: Copies) -> range:
    """Return the ranks that together have saved all that was saved of part `number`, each byte once."""
    if part.scope in ("total", "per rank"):
        return range(split.present_ranks)
    return _tensor_owners(part, number, split, copies, range(1 if part.scope == "whole" else split.tensor), 0)


def block_owners(
    part: Part, number: int, split: Split, copies: Copies, block: TensorBlock, near: tuple[int, int]
) -> range:
    """Return the ranks, of those that take part, that together have saved `block` of part `number`, each byte once.

    `near` is (tensor rank, data rank); of replicas those of these ranks are taken.
    """
    if part.scope == "per rank":
        return range(block.row0, min(block.row1, split.present_ranks))
    if part.scope == "total":
        row = part.row_bytes
        begin, end = block.row0 * row + block.col0, (block.row1 - 1) * row + block.col1
        found = _ranks_of_range(begin, end, part.size, split.ranks)
        return range(found.start, min(found.stop, split.present_ranks))
    if part.scope == "rows":
        tensors = _ranks_of_range(block.row0, block.row1, part.rows, split.tensor)
    elif part.scope == "columns":
        element = part.element
        tensors = _ranks_of_range(block.col0 // element, block.col1 // element, part.row_bytes // element, split.tensor)
    else:
        tensors = range(near[0], near[0] + 1)
        if not _tensor_owners(part, number, split, copies, tensors, near[1]):
            tensors = range(1)
    return _tensor_owners(part, number, split, copies, tensors, near[1])


def _tensor_owners(part: Part, number: int, split: Split, copies: Copies, tensors: range, data: int) -> range:
    """Return the ranks with tensor ranks `tensors` that have saved a tensor for data rank `data`."""
    copy = _replica_rank(number, split, copies, data)
    first, last = (split.rank(tensor, part.stage, copy) for tensor in (tensors.start, tensors.stop - 1))
    return range(first, min(last + 1, split.present_ranks))


def _ranks_of_range(begin: int, end: int, size: int, ranks: int) -> range:
    """Return the ranks that have items [begin, end) of `size` items (at least 1) that `ranks` ranks share evenly."""
    # The owner of an item is the last rank whose share starts at or before it: earlier ranks with that start are empty.
    return range(((begin + 1) * ranks - 1) // size, (end * ranks - 1) // size + 1)


def _replica_rank(number: int, split: Split, copies: Copies, data: int) -> int:
    """Return the data rank whose replica of part `number` is saved for data rank `data`."""
    if copies == "all":
        return data
    return number % split.data if copies == "dealt" else copies
