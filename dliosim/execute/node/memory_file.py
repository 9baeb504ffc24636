"""A file in memory without a name: nothing is left of it when the last process that has it open or mapped ends."""

from __future__ import annotations

import ctypes
import mmap
import os

from dliosim.errors import ExecutionError

_CLOSE_ON_EXEC = 1  # MFD_CLOEXEC of linux/memfd.h


def make_memory_file(size: int) -> int:
    """Make a file of `size` zeros in memory and return its descriptor; -1 if the system cannot."""
    # By a call of the C library: Pythons built for old C libraries (as conda's) have no os.memfd_create.
    make = getattr(ctypes.CDLL(None), "memfd_create", None)
    descriptor: int = make(b"dliosim", _CLOSE_ON_EXEC) if make is not None else -1
    if descriptor >= 0:
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            return -1
    return descriptor


def map_shared(descriptor: int) -> memoryview:
    """Return the bytes of such a file, mapped and touched. Raises OSError or ValueError."""
    return memoryview(mmap.mmap(descriptor, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE))


def allocate_shared(size: int) -> tuple[int, memoryview]:
    """Return the descriptor of such a file, and its bytes, mapped and touched. Raises ExecutionError [R402]."""
    descriptor = make_memory_file(size)
    try:
        if descriptor < 0:
            raise OSError("no file in memory can be made")
        return descriptor, map_shared(descriptor)
    except (OSError, OverflowError, MemoryError, ValueError) as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise ExecutionError(f"cannot allocate {size} bytes of shared memory: {error}", "R402") from error
