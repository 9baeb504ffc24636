"""The calls that a run records, by number: their kinds, layers and names, as they are in the table of events."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.events import kind_number, layer_number


class Call(IntEnum):
    """A call that backends make."""

    OPEN = 0
    CLOSE = 1
    READ = 2
    WRITE = 3
    FSYNC = 4
    QUEUED_READ = 5
    MAP = 6
    UNMAP = 7
    COPY = 8
    MPI_OPEN = 9
    MPI_CLOSE = 10
    MPI_READ = 11
    MPI_WRITE = 12
    MPI_SYNC = 13
    MPI_QUEUED_READ = 14
    MPI_READ_ALL = 15
    MPI_WRITE_ALL = 16
    LIBRARY_OPEN = 17
    LIBRARY_READ = 18
    LIBRARY_CLOSE = 19
    PREAD = 20


#: Of each call its kind, its layer and its name.
CALLS: Final = {
    Call.OPEN: ("open", "posix", "openat"),
    Call.CLOSE: ("close", "posix", "close"),
    Call.READ: ("read", "posix", "preadv"),
    Call.WRITE: ("write", "posix", "pwrite64"),
    Call.FSYNC: ("fsync", "posix", "fsync"),
    Call.QUEUED_READ: ("read", "posix", "queued read"),
    Call.MAP: ("open", "posix", "mmap"),
    Call.UNMAP: ("close", "posix", "munmap"),
    Call.COPY: ("read", "posix", "copies from a mapping"),
    Call.MPI_OPEN: ("open", "mpi-io", "MPI_File_open"),
    Call.MPI_CLOSE: ("close", "mpi-io", "MPI_File_close"),
    Call.MPI_READ: ("read", "mpi-io", "MPI_File_read_at"),
    Call.MPI_WRITE: ("write", "mpi-io", "MPI_File_write_at"),
    Call.MPI_SYNC: ("fsync", "mpi-io", "MPI_File_sync"),
    Call.MPI_QUEUED_READ: ("read", "mpi-io", "MPI_File_iread_at"),
    Call.MPI_READ_ALL: ("read", "mpi-io collective", "MPI_File_read_at_all"),
    Call.MPI_WRITE_ALL: ("write", "mpi-io collective", "MPI_File_write_at_all"),
    Call.LIBRARY_OPEN: ("open", "library", "open by the library"),
    Call.LIBRARY_READ: ("read", "library", "read by the library"),
    Call.LIBRARY_CLOSE: ("close", "library", "close by the library"),
    Call.PREAD: ("read", "posix", "pread64"),
}

#: The names of all calls, in the order of their numbers: the first names of a run's events.
NAMES: Final = tuple(CALLS[call][2] for call in Call)

_KIND: NDArray[np.int8] = np.array([kind_number(CALLS[call][0]) for call in Call], np.int8)
_LAYER: NDArray[np.int8] = np.array([layer_number(CALLS[call][1]) for call in Call], np.int8)


def kinds_of(call: NDArray[np.int16]) -> NDArray[np.int8]:
    """Return the kinds of calls, as in `Events.kind`; (n,)."""
    return _KIND[call]


def layers_of(call: NDArray[np.int16]) -> NDArray[np.int8]:
    """Return the layers of calls, as in `Events.layer`; (n,)."""
    return _LAYER[call]
