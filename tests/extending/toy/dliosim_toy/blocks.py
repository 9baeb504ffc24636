"""Files of blocks: before each sample stand its length (8 bytes, little-endian) and 8 bytes of a fixed word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.formats.defaults import refuse_unused
from dliosim.formats.protocols import ENCODED, Bytes, Column, FileIndex, Ints
from dliosim.model import Dataset

MAGIC = b"A BLOCK\n"
HEAD = 16


class Blocks:
    """See `dliosim.formats.protocols.Framed`."""

    name = "blocks"
    checksum = None

    def variant(self, dataset: Dataset) -> Blocks:
        """Samples of int8 are ASCII; all others are any bytes."""
        return ASCII if dataset.element == "int8" else BLOCKS

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """Of all settings of a data set only the shape means something here."""
        return refuse_unused(dataset, self.name, taken=("shape",))

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """No library."""
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
        """What follows the head."""
        if len(data) < HEAD or data[8:HEAD] != MAGIC or int.from_bytes(data[:8], "little") != len(data) - HEAD:
            raise ExecutionError(f"no block of {len(data)} bytes begins like this", "R401")
        return np.frombuffer(data, np.uint8)[HEAD:]

    def header(self, dataset: Dataset) -> int:
        """Files begin with the first block."""
        return 0

    def align(self, dataset: Dataset) -> int:
        """Blocks begin anywhere."""
        return 1

    def stride(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Head and contents."""
        return sizes + HEAD

    def length(self, dataset: Dataset, sizes: Ints) -> Ints:
        """A read takes the head, too."""
        return sizes + HEAD

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """All that follows the head."""
        return np.full_like(sizes, HEAD), sizes

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """None."""
        return np.zeros_like(counts)

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Put the heads in front."""
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            out[start : start + HEAD] = size.to_bytes(8, "little") + MAGIC

    def start_checksum(self, dataset: Dataset, count: int, end: int) -> int:
        """There is none."""
        return 0

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Nothing."""
        return b""

    def write_trailer(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Nothing."""
        return b""

    def sidecars(self, dataset: Dataset) -> tuple[str, ...]:
        """None."""
        return ()

    def write_sidecar(self, dataset: Dataset, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Never asked for."""
        return iter(())


class AsciiBlocks(Blocks):
    """The same, also `Dressed`: contents are made of the random bytes, one by one."""

    def dress(self, dataset: Dataset, data: Bytes, place: Ints | int) -> Bytes:
        """Seven bits of each byte."""
        return data & 0x7F


BLOCKS, ASCII = Blocks(), AsciiBlocks()
