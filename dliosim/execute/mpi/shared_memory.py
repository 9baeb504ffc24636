"""Memory that the ranks of a node share: a file without a name, which the first makes and the others open by /proc."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import cast

import numpy as np
from mpi4py import MPI

from dliosim.execute.mpi.polling import wait

_CLOSE_ON_EXEC = 1  # MFD_CLOEXEC of linux/memfd.h


class SharedMemory:
    """`size` bytes of zeros that all ranks of `comm` see as `view`; they must be on one node. Making it is collective.

    Nothing of it is left when the last process that has it ends, however that ends. Who frees it needs nobody else,
    unless it had to be a window of MPI; a window takes ten collective calls in which MPICH spins, and with 32 ranks on
    two cores a second.
    """

    def __init__(self, comm: MPI.Intracomm, size: int) -> None:
        self._window: MPI.Win | None = None
        # Of the first rank its process and the descriptor of the file.
        told = np.zeros(2, np.int64)
        if comm.rank == 0:
            told[:] = os.getpid(), _make_memfd(size)
        wait(comm.Ibcast(told), comm.size)
        process, descriptor = told.tolist()
        mapped = _map_memfd(process, descriptor, size)
        good = np.array([mapped is not None], np.int64)
        wait(comm.Iallreduce(MPI.IN_PLACE, good, MPI.MIN), comm.size)
        if comm.rank == 0 and descriptor >= 0:
            os.close(descriptor)
        if good[0] and mapped is not None:
            self.view = memoryview(mapped)
        else:  # where a process may not look at another of the same user
            self._window = MPI.Win.Allocate_shared(size if comm.rank == 0 else 0, 1, comm=comm)
            self.view = memoryview(cast(bytes, self._window.Shared_query(0)[0]))
            if comm.rank == 0:
                self.view[:] = bytes(size)
            wait(comm.Ibarrier(), comm.size)

    def close(self) -> None:
        """Give it back, when nothing looks at it any more. Collective."""
        if self._window is not None:
            self._window.Free()


def _make_memfd(size: int) -> int:
    """A descriptor of a file in memory that has no name; -1 where there can be none."""
    # By the C library itself: Pythons that run on old ones as well (conda's among them) have no os.memfd_create.
    make = getattr(ctypes.CDLL(None), "memfd_create", None)
    descriptor: int = make(b"dliosim", _CLOSE_ON_EXEC) if make is not None else -1
    if descriptor >= 0:
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            return -1
    return descriptor


def _map_memfd(process: int, descriptor: int, size: int) -> mmap.mmap | None:
    if descriptor < 0:
        return None
    try:
        own = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return mmap.mmap(own, size)
    except (OSError, ValueError):
        return None
    finally:
        os.close(own)
