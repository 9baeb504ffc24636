"""The shards of a checkpoint's parts: what each rank holds, and which replica is saved.

A part is rows of bytes. A rank holds blocks of it: rows [row0, row1), and bytes [col0, col1) of each row. A tensor that
is split by rows or by columns is one block for each rank; a range of its bytes is up to three.
"""

from __future__ import annotations

from typing import NamedTuple

from dliosim.model import Copies, Part, Split


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
