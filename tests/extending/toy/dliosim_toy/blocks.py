"""Files of blocks. Before each sample are its length (8 bytes, little-endian) and 8 bytes of a fixed word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dliosim.extend import ENCODED, Bytes, Column, Dataset, ExecutionError, FileIndex, Ints, refuse_unused

MAGIC = b"A BLOCK\n"
HEAD = 16


class Blocks:
    """The format `blocks`, with the methods of `dliosim.extend.Framed`."""

    name = "blocks"
    checksum = None

    def variant(self, dataset: Dataset) -> Blocks:
        """Return the format for ASCII contents where samples are of int8, else the one for any bytes."""
        return ASCII if dataset.element == "int8" else BLOCKS

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """Refuse every setting that only some formats have a use for, except `shape`."""
        return refuse_unused(dataset, self.name, taken=("shape",))

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """Return None: no library is needed."""
        return None

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        """Go from block to block; what the file says of itself is believed only as far as the file goes."""
        size, at, offset, length = path.stat().st_size, 0, [], []
        with path.open("rb") as stream:
            while at < size:
                head = os.pread(stream.fileno(), HEAD, at)
                if len(head) < HEAD or head[8:] != MAGIC:
                    raise ExecutionError(f"{path}: no block begins at offset {at}", "R401")
                whole = HEAD + int.from_bytes(head[:8], "little")
                if whole > size - at:
                    raise ExecutionError(f"{path}: the block at offset {at} reaches beyond the end", "R401")
                offset.append(at)
                length.append(whole)
                at += whole
        largest = max(length, default=HEAD) - HEAD
        column = Column(1, 1, ENCODED, largest, np.array(offset, np.int64), np.array(length, np.int64))
        return FileIndex(len(offset), size, (column,), HEAD * len(offset))

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        """Return what follows the head."""
        if len(data) < HEAD or data[8:HEAD] != MAGIC or int.from_bytes(data[:8], "little") != len(data) - HEAD:
            raise ExecutionError(f"no block of {len(data)} bytes begins like this", "R401")
        return np.frombuffer(data, np.uint8)[HEAD:]

    def header(self, dataset: Dataset) -> int:
        """Return 0: files begin with the first block."""
        return 0

    def align(self, dataset: Dataset) -> int:
        """Return 1: blocks begin anywhere."""
        return 1

    def stride(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Return the bytes of heads and contents."""
        return sizes + HEAD

    def length(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Return the bytes of a read, which takes the head, too."""
        return sizes + HEAD

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """Return where the contents begin in a block, and their bytes: all that follows the head."""
        return np.full_like(sizes, HEAD), sizes

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """Return zeros: nothing follows the last block."""
        return np.zeros_like(counts)

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Put the heads in front."""
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            out[start : start + HEAD] = size.to_bytes(8, "little") + MAGIC

    def start_checksum(self, dataset: Dataset, count: int, end: int) -> int:
        """Return 0: files have no checksum."""
        return 0

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Return no bytes."""
        return b""

    def write_trailer(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Return no bytes."""
        return b""

    def sidecars(self, dataset: Dataset) -> tuple[str, ...]:
        """Return none: a file is all there is."""
        return ()

    def write_sidecar(self, dataset: Dataset, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Return nothing, since there are no sidecars."""
        return iter(())


class AsciiBlocks(Blocks):
    """The format for ASCII contents, also `Dressed`: each byte is made of a random one."""

    def dress(self, dataset: Dataset, data: Bytes, place: Ints | int) -> Bytes:
        """Return the low seven bits of each byte."""
        return data & 0x7F


BLOCKS, ASCII = Blocks(), AsciiBlocks()
