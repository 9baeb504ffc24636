"""Memory that is read into: allocated and touched once, and cut into the pieces that calls fill."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.plan.samples.io_requests import Calls

T = TypeVar("T")

# Pieces of this many layouts are kept: slots times groups of readers, and the last, shorter batches.
_KEPT = 64


def allocate(size: int) -> memoryview:
    """`size` bytes of private memory, page-aligned (as O_DIRECT needs) and touched; at least one page is taken.

    Raises ExecutionError (R402) where the kernel has none to give.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    try:
        return memoryview(mmap.mmap(-1, max(size, 1), flags=flags))[:size]
    except (OSError, OverflowError, MemoryError) as error:
        raise ExecutionError(f"cannot allocate a buffer of {size} bytes: {error}", "R402") from error


def address_of(buffer: memoryview) -> int:
    """Where a buffer begins in memory."""
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


@dataclass(frozen=True, slots=True)
class CallBuffers(Generic[T]):
    """The buffer of a step in pieces: one object and its bytes for each call, in order, and all bytes."""

    pieces: list[T]
    lengths: list[int]
    total: int


class CallBufferCache(Generic[T]):
    """Cuts a step's buffer into one object a call, and keeps them for the steps that ask for the same pieces.

    Making a slice costs as much as a tenth of a 4 KiB read, and where samples have one size it is always the same one.
    """

    def __init__(self, make: Callable[[memoryview, int], T]) -> None:
        """`make` turns a piece of `length` bytes into what the backend passes to its call."""
        self._make = make
        self._kept: dict[tuple[int, bytes, int], tuple[memoryview, CallBuffers[T]]] = {}

    def cut_buffer(self, calls: Calls, into: memoryview) -> CallBuffers[T]:
        """The pieces of the calls."""
        length = calls.length
        if len(length) < 2 or length[0] != length[-1] or (length != length[0]).any():
            return self._slice_buffer(calls, into)
        layout = (id(into), calls.start.tobytes(), int(length[0]))
        kept = self._kept.get(layout)
        if kept is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            # The buffer is kept with its pieces: its id is the key, and nothing else may come to have the same.
            kept = self._kept[layout] = into, self._slice_buffer(calls, into)
        return kept[1]

    def _slice_buffer(self, calls: Calls, into: memoryview) -> CallBuffers[T]:
        make, lengths = self._make, calls.length.tolist()
        starts = calls.start.tolist()
        pieces = [make(into[start : start + length], length) for start, length in zip(starts, lengths, strict=True)]
        return CallBuffers(pieces, lengths, sum(lengths))

    def release_buffers(self) -> None:
        """Let go of every buffer."""
        self._kept.clear()


def only_file(calls: Calls) -> int | None:
    """The file that all calls read, or None where there are several; at least one call."""
    files = calls.file
    first = int(files[0])
    return first if len(files) == 1 or bool((files == first).all()) else None
