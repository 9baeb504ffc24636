"""Files of blocks. Before each sample are its length (8 bytes, little-endian) and 8 bytes of a fixed word."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dliosim.extend import ENCODED, Bytes, Column, Dataset, Dressed, ExecutionError, FileIndex, Framed, Ints

MAGIC = b"A BLOCK\n"
HEAD = 16


class Blocks(Framed):
    """The format `blocks`: what differs from `dliosim.extend.Framed`, whose files are samples and no more."""

    name = "blocks"
    uses = ("shape",)  # of the settings that only some formats have a use for

    def index(self, path: Path) -> FileIndex:
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

    def decode(self, column: Column | None, data: memoryview) -> Bytes | None:
        if len(data) < HEAD or data[8:HEAD] != MAGIC or int.from_bytes(data[:8], "little") != len(data) - HEAD:
            raise ExecutionError(f"no block of {len(data)} bytes begins like this", "R401")
        return np.frombuffer(data, np.uint8)[HEAD:]

    def stride(self, sizes: Ints) -> Ints:
        return sizes + HEAD

    def content(self, sizes: Ints) -> tuple[Ints, Ints]:
        return np.full_like(sizes, HEAD), sizes

    def frame(self, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            out[start : start + HEAD] = size.to_bytes(8, "little") + MAGIC


class AsciiBlocks(Blocks, Dressed):
    """The format for ASCII contents: each byte is made of a random one."""

    def dress(self, data: Bytes, place: Ints | int) -> Bytes:
        return data & np.uint8(0x7F)


def blocks(dataset: Dataset) -> Blocks:
    """Return the format for ASCII contents where samples are of int8, else the one for any bytes."""
    return AsciiBlocks(dataset) if dataset.element == "int8" else Blocks(dataset)
