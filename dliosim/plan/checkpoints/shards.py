"""What each rank holds of a checkpoint's parts, and which of the ranks that hold the same save it.

A part is rows of bytes; what a rank holds of it is blocks: rows [row0, row1) by bytes [col0, col1) of each. That is
one for a tensor that is split by rows or by columns, and up to three for a range of its bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from dliosim.model import Copies, Part, Split


class TensorBlock(NamedTuple):
    """Bytes [col0, col1) of each of the rows [row0, row1) of a part, in the order of the rows."""

    row0: int
    row1: int
    col0: int
    col1: int

    @property
    def length(self) -> int:
        """Bytes."""
        return (self.row1 - self.row0) * (self.col1 - self.col0)

    @property
    def width(self) -> int:
        """Bytes of each row."""
        return self.col1 - self.col0

    def overlap(self, other: TensorBlock) -> TensorBlock | None:
        """What two blocks of one part have in common, or None."""
        found = TensorBlock(
            max(self.row0, other.row0),
            min(self.row1, other.row1),
            max(self.col0, other.col0),
            min(self.col1, other.col1),
        )
        return found if found.row0 < found.row1 and found.col0 < found.col1 else None


def part_bytes(part: Part, split: Split) -> int:
    """Bytes of a part on all ranks that take part, one of each that several hold."""
    if part.scope == "per rank":
        return part.size * split.present_ranks
    return part.size * split.present_ranks // split.ranks if part.scope == "total" else part.size


def blocks_of_rank(part: Part, split: Split, rank: int) -> list[TensorBlock]:
    """What a rank holds of a part, in the order of its bytes; blocks of no bytes are left out."""
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
    """Bytes [begin, end) of a part whose rows have `row` bytes: part of a row, whole rows, part of a row."""
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
    """Whether a rank saves what it holds of part `number`, rather than another one that holds the same."""
    if part.scope in ("total", "per rank") or copies == "all":
        return True
    data = split.coordinates(rank)[2]
    return data == _replica_rank(number, split, copies, data)


def part_owners(part: Part, number: int, split: Split, copies: Copies) -> range:
    """The ranks that together have saved all that was saved of part `number`, each byte of it once."""
    if part.scope in ("total", "per rank"):
        return range(split.present_ranks)
    return _tensor_owners(part, number, split, copies, range(1 if part.scope == "whole" else split.tensor), 0)


def block_owners(
    part: Part, number: int, split: Split, copies: Copies, block: TensorBlock, near: tuple[int, int]
) -> range:
    """The ranks that together have saved `block` of part `number`, those that take part, each byte once.

    `near` is the tensor and the data rank from which is taken what several have.
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
    """Of the ranks that hold a tensor those of these tensor ranks that have saved it for data rank `data`."""
    copy = _replica_rank(number, split, copies, data)
    first, last = (split.rank(tensor, part.stage, copy) for tensor in (tensors.start, tensors.stop - 1))
    return range(first, min(last + 1, split.present_ranks))


def _ranks_of_range(begin: int, end: int, size: int, ranks: int) -> range:
    """Which of the ranks that share `size` things evenly have those of [begin, end); there is at least one thing."""
    # The last rank whose share starts at or before a thing: those before it that start there have nothing.
    return range(((begin + 1) * ranks - 1) // size, (end * ranks - 1) // size + 1)


def _replica_rank(number: int, split: Split, copies: Copies, data: int) -> int:
    """The data rank whose copy of part `number` counts for those of data rank `data`."""
    if copies == "all":
        return data
    return number % split.data if copies == "dealt" else copies
