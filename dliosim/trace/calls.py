"""The calls that a run records, by number: their kinds, layers and names, as they are in the table of events."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from dliosim.trace.events import kind_number, layer_number


class Call(IntEnum):
    """A call that backends make: its number, kind, layer and name."""

    kind: str
    layer: str
    label: str

    def __new__(cls, number: int, kind: str, layer: str, label: str) -> Call:
        """Make the number a member, and give it the other three."""
        call = int.__new__(cls, number)
        call._value_, call.kind, call.layer, call.label = number, kind, layer, label
        return call

    OPEN = 0, "open", "posix", "openat"
    CLOSE = 1, "close", "posix", "close"
    READ = 2, "read", "posix", "preadv"
    WRITE = 3, "write", "posix", "pwrite64"
    FSYNC = 4, "fsync", "posix", "fsync"
    QUEUED_READ = 5, "read", "posix", "queued read"
    MAP = 6, "open", "posix", "mmap"
    UNMAP = 7, "close", "posix", "munmap"
    COPY = 8, "read", "posix", "copies from a mapping"
    MPI_OPEN = 9, "open", "mpi-io", "MPI_File_open"
    MPI_CLOSE = 10, "close", "mpi-io", "MPI_File_close"
    MPI_READ = 11, "read", "mpi-io", "MPI_File_read_at"
    MPI_WRITE = 12, "write", "mpi-io", "MPI_File_write_at"
    MPI_SYNC = 13, "fsync", "mpi-io", "MPI_File_sync"
    MPI_QUEUED_READ = 14, "read", "mpi-io", "MPI_File_iread_at"
    MPI_READ_ALL = 15, "read", "mpi-io collective", "MPI_File_read_at_all"
    MPI_WRITE_ALL = 16, "write", "mpi-io collective", "MPI_File_write_at_all"
    LIBRARY_OPEN = 17, "open", "library", "open by the library"
    LIBRARY_READ = 18, "read", "library", "read by the library"
    LIBRARY_CLOSE = 19, "close", "library", "close by the library"
    PREAD = 20, "read", "posix", "pread64"
    UNLINK = 21, "metadata", "posix", "unlink"


#: All calls, by their numbers.
CALLS: Final = tuple(Call)

#: The names of all calls, in the order of their numbers: the first names of a run's events.
NAMES: Final = tuple(call.label for call in Call)

#: The kinds and the layers of calls, by their numbers, as in `Events.kind` and `Events.layer`.
CALL_KINDS: Final = np.array([kind_number(call.kind) for call in Call], np.int8)
CALL_LAYERS: Final = np.array([layer_number(call.layer) for call in Call], np.int8)
