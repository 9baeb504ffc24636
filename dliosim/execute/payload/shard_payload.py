"""The bytes of a checkpoint's parts: a function of (save, part, place), with any split and in any file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dliosim.execute.payload.sample_bytes import fill_range, first_mismatch
from dliosim.model import Checkpoint, Part
from dliosim.model.counter_rng import key
from dliosim.plan.checkpoints.layout import Segment

#: A block's rows are cut out of whole rows, made many at a time, where a row has at most _LONGEST_ROW bytes: one call
#: of `fill_range` for each row takes about as long as making that many bytes.
_LONGEST_ROW = 1 << 17
_ROWS_BYTES = 1 << 20


def part_keys(checkpoint: Checkpoint, parts: tuple[Part, ...], number: int) -> list[int]:
    """Return the content key of each part in the checkpoint of that number: no two saves hold the same bytes."""
    return [key(checkpoint.seed, "checkpoint", checkpoint.name, part.name, number) for part in parts]


def fill_segment(content: int, row: int, segment: Segment, out: memoryview) -> None:
    """Write the bytes of a segment to `out`; rows of its part have `row` bytes."""
    for at, begin, length in _contiguous_ranges(row, segment):
        fill_range(content, begin, out[at : at + length])
    for at, part in _cut_columns(content, row, segment):
        out[at : at + len(part)] = part


def find_segment_mismatch(content: int, row: int, segment: Segment, data: memoryview) -> int | None:
    """Return the position in `data` of the first byte that is not the segment's, or None."""
    for at, begin, length in _contiguous_ranges(row, segment):
        wrong = first_mismatch(content, begin, data[at : at + length])
        if wrong is not None:
            return at + wrong
    for at, part in _cut_columns(content, row, segment):
        differs = np.frombuffer(part, np.uint8) != np.frombuffer(data[at : at + len(part)], np.uint8)
        if differs.any():
            return at + int(differs.argmax())
    return None


def _is_column_slice(row: int, segment: Segment) -> bool:
    return segment.block.width < row <= _LONGEST_ROW and segment.block.row1 - segment.block.row0 > 1


def _contiguous_ranges(row: int, segment: Segment) -> Iterator[tuple[int, int, int]]:
    """Yield the contiguous ranges of a segment: position in the segment, offset in the part, bytes."""
    block, width = segment.block, segment.block.width
    if width == row or block.row1 - block.row0 == 1:
        yield 0, block.row0 * row + block.col0 + segment.begin, segment.length
        return
    if _is_column_slice(row, segment):
        return
    done = 0
    while done < segment.length:
        line, column = divmod(segment.begin + done, width)
        length = min(width - column, segment.length - done)
        yield done, (block.row0 + line) * row + block.col0 + column, length
        done += length


def _cut_columns(content: int, row: int, segment: Segment) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of a segment whose rows are cut out, some rows at a time: position in it, bytes."""
    if not _is_column_slice(row, segment) or segment.length == 0:
        return
    block, width = segment.block, segment.block.width
    first, end = segment.begin // width, -(-(segment.begin + segment.length) // width)
    each = max(1, _ROWS_BYTES // row)
    scratch = np.empty(min(each, end - first) * row, np.uint8)
    for line in range(first, end, each):
        rows = min(each, end - line)
        fill_range(content, (block.row0 + line) * row, scratch[: rows * row].data)
        found = np.ascontiguousarray(scratch[: rows * row].reshape(rows, row)[:, block.col0 : block.col1]).reshape(-1)
        skip = max(0, segment.begin - line * width)
        stop = min(len(found), segment.begin + segment.length - line * width)
        yield line * width + skip - segment.begin, found[skip:stop].data
