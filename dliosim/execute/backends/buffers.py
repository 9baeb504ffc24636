"""Read buffers: allocated and touched once, and cut into the pieces that calls fill."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.plan.samples.io_requests import Calls

T = TypeVar("T")

# Layouts whose pieces are kept: one for each slot and group of readers, and those of the last, shorter batches.
_KEPT = 64


def allocate(size: int) -> memoryview:
    """Allocate `size` bytes of private memory, page-aligned (as O_DIRECT needs) and touched; at least one page.

    Raises ExecutionError [R402] if the kernel has no memory.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    try:
        return memoryview(mmap.mmap(-1, max(size, 1), flags=flags))[:size]
    except (OSError, OverflowError, MemoryError) as error:
        raise ExecutionError(f"cannot allocate a buffer of {size} bytes: {error}", "R402") from error


def address_of(buffer: memoryview) -> int:
    """Return the memory address of a buffer."""
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


@dataclass(frozen=True, slots=True)
class CallBuffers(Generic[T]):
    """The buffer of a step in pieces, one for each call, in order."""

    #: the object that the backend passes to each call
    pieces: list[T]
    #: bytes of each call
    lengths: list[int]
    #: bytes of all calls
    total: int


class CallBufferCache(Generic[T]):
    """Cuts a step's buffer into one object a call, and keeps these for steps with the same pieces.

    Making a slice costs as much as a tenth of a 4 KiB read. Where all samples have one size, the slices are the same in
    every step.
    """

    def __init__(self, make: Callable[[memoryview, int], T]) -> None:
        """Keep `make`, which turns a piece and its length into the object that the backend passes to its call."""
        self._make = make
        self._kept: dict[tuple[int, bytes, bytes], tuple[memoryview, CallBuffers[T]]] = {}

    def cut_buffer(self, calls: Calls, into: memoryview) -> CallBuffers[T]:
        """Return the pieces of `into` that the calls fill."""
        length = calls.length
        if length[0] != length[-1]:  # of varying size: hardly any step has the pieces of another
            return self._slice_buffer(calls, into)
        layout = (id(into), calls.start.tobytes(), length.tobytes())
        kept = self._kept.get(layout)
        if kept is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            # The buffer is kept with its pieces: its id is the key, and no other object may get the same id.
            kept = self._kept[layout] = into, self._slice_buffer(calls, into)
        return kept[1]

    def _slice_buffer(self, calls: Calls, into: memoryview) -> CallBuffers[T]:
        make, lengths = self._make, calls.length.tolist()
        starts = calls.start.tolist()
        pieces = [make(into[start : start + length], length) for start, length in zip(starts, lengths, strict=True)]
        return CallBuffers(pieces, lengths, sum(lengths))

    def release_buffers(self) -> None:
        """Drop all references to buffers."""
        self._kept.clear()


def only_file(calls: Calls) -> int | None:
    """Return the file that all calls read, or None if there are several. There must be a call."""
    files = calls.file
    first = int(files[0])
    # Not `all`, which takes three times as long.
    return first if len(files) == 1 or np.count_nonzero(files == first) == len(files) else None
