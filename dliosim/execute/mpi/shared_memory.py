"""Shared memory of a node's ranks: a file without a name, which the first makes and the others open by /proc."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from time import sleep
from typing import cast

import numpy as np
from mpi4py import MPI

from dliosim.execute.node.memory_file import make_memory_file

#: The first pause between two tests of a request, and the longest pause for each rank that may wait; seconds. 511 ranks
#: that test every 5 ms keep two cores busy: a rank with work then waits 0.3 s for a core.
_FIRST, _LONGEST = 50e-6, 1e-4


def wait(request: MPI.Request, ranks: int) -> None:
    """Wait for a request with pauses that grow; the longest is proportional to the `ranks` that may wait with it."""
    wait_until(request.Test, ranks)


def wait_until(there: Callable[[], bool], ranks: int) -> None:
    """Wait until `there` returns true, with the pauses of `wait`."""
    pause, longest = _FIRST, max(_FIRST, _LONGEST * ranks)
    while not there():
        sleep(pause)
        pause = min(pause * 1.5, longest)


class SharedMemory:
    """Shared zeros: `size` bytes that all ranks of `comm` see as `view`. The ranks must be on one node.

    Making it is collective. Nothing is left when the last process that maps it ends, for any reason. A rank frees it
    without the others, unless it is an MPI window. A window is only the second choice: making one takes ten collective
    calls in which MPICH spins, one second with 32 ranks on two cores.
    """

    def __init__(self, comm: MPI.Intracomm, size: int) -> None:
        self._window: MPI.Win | None = None
        # The process of the first rank, and its descriptor of the file.
        handle = np.zeros(2, np.int64)
        if comm.rank == 0:
            handle[:] = os.getpid(), make_memory_file(size)
        wait(comm.Ibcast(handle), comm.size)
        process, descriptor = handle.tolist()
        mapped = _map_memfd(process, descriptor, size)
        good = np.array([mapped is not None], np.int64)
        wait(comm.Iallreduce(MPI.IN_PLACE, good, MPI.MIN), comm.size)
        if comm.rank == 0 and descriptor >= 0:
            os.close(descriptor)
        if good[0] and mapped is not None:
            self.view = memoryview(mapped)
        else:  # a process may not open the files of another one here, as in a container for each rank
            self._window = MPI.Win.Allocate_shared(size if comm.rank == 0 else 0, 1, comm=comm)
            self.view = memoryview(cast(bytes, self._window.Shared_query(0)[0]))
            if comm.rank == 0:
                self.view[:] = bytes(size)
            wait(comm.Ibarrier(), comm.size)

    def close(self) -> None:
        """Free the memory, when no code uses it any more. Collective."""
        if self._window is not None:
            self._window.Free()


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
