"""Alignment of O_DIRECT (`cache off`): widening reads, splitting writes, and continuing after a short read.

Everything is arithmetic on offsets and lengths in bytes, of numbers or of arrays. Alignments are powers of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = TypeVar("Bytes", int, NDArray[np.int64])

#: Alignment of offsets and lengths if no file system asks for more; a plan has it, as it asks none.
DIRECT_ALIGNMENT: Final = 4096


def widen_range(first: Bytes, last: Bytes, alignment: int) -> tuple[Bytes, Bytes]:
    """Return [first, last) with both ends moved outwards to multiples of the alignment."""
    if alignment == 1:
        return first, last
    return first // alignment * alignment, -(-last // alignment) * alignment


def widest_call(length: int, alignment: int) -> int:
    """Return the most bytes that a read of `length` bytes at any offset is widened to."""
    return length if alignment == 1 else -(-length // alignment) * alignment + alignment


def split_write(offset: int, length: int, alignment: int) -> tuple[int, int]:
    """Return the bytes before the first multiple of the alignment, and the aligned bytes after these.

    The former, and the bytes after the latter, cannot be written by O_DIRECT.
    """
    head = min(-offset % alignment, length)
    return head, (length - head) // alignment * alignment


def resume_offset(got: int, alignment: int) -> int:
    """Return the byte from which a read of `got` bytes continues: the one after them if it is aligned."""
    return got // alignment * alignment
