"""Collective operations by MPI's own calls."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.execute.mpi.shared_memory import wait

T = TypeVar("T")
Operation = Literal["sum", "min", "max"]

BY_MPI = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}
TAG = 78
LENGTH = np.dtype(np.int64)


class Ranks:
    """The ranks of a communicator, and their collective operations: by MPI's own calls, which spin while they wait.

    All methods except `send` and `receive` are collective: every rank calls the same methods in the same order, with
    arrays of the same shape.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        #: the communicator
        self.comm = comm
        #: number of this rank in it, from 0
        self.rank: int = comm.rank
        #: number of ranks
        self.size: int = comm.size
        # The rank that this rank sends a part for rank 0 to.
        self._collector = 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.comm.Barrier()

    def allreduce(self, values: NDArray[Any], operation: Operation) -> None:
        """Replace `values` by the element-wise sum, min or max over ranks. ValueError if they are not contiguous."""
        self.comm.Allreduce(MPI.IN_PLACE, values, BY_MPI[operation])

    def reduce(self, values: NDArray[Any], operation: Operation) -> NDArray[Any] | None:
        """Return the element-wise sum, min or max on rank 0; None elsewhere."""
        out = np.empty_like(values) if self.rank == 0 else None
        self.comm.Reduce(values, out, BY_MPI[operation])
        return out

    def gather(self, values: NDArray[Any]) -> NDArray[Any] | None:
        """Return the arrays of all ranks along a new first axis on rank 0; None elsewhere."""
        out = np.empty((self.size, *values.shape), values.dtype) if self.rank == 0 else None
        self.comm.Gather(values, out)
        return out

    def gather_parts(self, part: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]] | None:
        """Return the vectors of all ranks on rank 0, received one after the other; None elsewhere.

        `lengths` (ranks,) has the number of elements of all ranks on rank 0, and at least this rank's own elsewhere.
        Ranks with 0 elements send nothing.
        """
        if self.rank:
            if lengths[self.rank]:
                self.send(part.data.cast("B"), self._collector)
            return None
        parts = [part, *(np.empty(length, np.int64) for length in lengths[1:])]
        for source, other in enumerate(parts):
            if source and len(other):
                self.receive(other.data.cast("B"), self._relay(source))
        return parts

    def _relay(self, rank: int) -> int:
        """Return the rank that rank 0 exchanges the parts of another one with."""
        return rank

    def scatter(self, parts: Sequence[memoryview] | None, own: memoryview) -> None:
        """Fill `own` with this rank's element of the `parts` of rank 0; rank 0's own part stays in place."""
        if parts is None:
            self.receive(own, 0)
        else:
            others = list(enumerate(parts))[1:]
            MPI.Request.Waitall([self.comm.Isend([part, MPI.BYTE], target, TAG) for target, part in others])

    def broadcast(self, data: memoryview, source: int = 0) -> None:
        """Fill `data` with the bytes of rank `source`."""
        self.comm.Bcast([data, MPI.BYTE], source)

    def broadcast_object(self, value: T | None, source: int = 0) -> T:
        """Return the object of rank `source` on every rank. It is pickled, and safe: this program made it."""
        data = np.frombuffer(pickle.dumps(value), np.uint8).copy() if self.rank == source else np.empty(0, np.uint8)
        length = np.array([len(data)], LENGTH)
        # The others may wait long, while one rank reads a pattern or commits a checkpoint: spinning could slow it down.
        wait(self.comm.Ibcast(length, source), self.size)
        if self.rank != source:
            data = np.empty(int(length[0]), np.uint8)
        self.comm.Bcast(data, source)
        return value if self.rank == source else pickle.loads(data.data)  # type: ignore[return-value]

    def alltoall_rows(self, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the rows (n, k) that all ranks have for this one, in the order of ranks.

        `rows` has those for rank 0, then those for rank 1 and so on; `counts` (ranks,) has their numbers. Every rank
        returns None if any rank has a negative count.
        """
        table = np.empty((self.size, self.size), np.int64)
        self.comm.Allgather(counts, table)
        return None if table.min() < 0 else self._alltoallv_rows(rows, table)

    def _alltoallv_rows(self, rows: NDArray[np.int64], table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exchange rows by MPI_Alltoallv and return those for this rank; `table[r, t]` go from rank r to t."""
        width, meant = rows.shape[1], table[:, self.rank]
        found = np.empty((int(meant.sum()), width), np.int64)
        self.comm.Alltoallv([np.ascontiguousarray(rows), width * table[self.rank]], [found, width * meant])
        return found

    def send(self, data: memoryview, target: int) -> None:
        """Send bytes to a rank; return when it has received them."""
        self.comm.Ssend([data, MPI.BYTE], target, TAG)

    def receive(self, data: memoryview, source: int) -> None:
        """Receive bytes from a rank; `data` has the length that it sends."""
        self.comm.Recv([data, MPI.BYTE], source, TAG)

    def close(self) -> None:
        """Free the memory that these ranks share, but not their communicator."""
