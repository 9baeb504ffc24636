"""Collective operations of ranks that outnumber cores: they meet in shared memory, and sleep while they wait."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.execute.mpi.node_memory import NodeMemory
from dliosim.execute.mpi.ranks import BY_MPI, LENGTH, TAG, Operation, Ranks, T
from dliosim.execute.mpi.shared_memory import wait, wait_until

#: Bytes up to which the last rank to arrive reduces the values of all; above, each rank reduces a share.
_REDUCED_BY_ONE = 1 << 12

_BY_NUMPY = {"sum": np.add, "min": np.minimum, "max": np.maximum}
_TURN = 79


class SleepingRanks(Ranks):
    """Ranks that outnumber the cores of their nodes: they meet in shared memory, and sleep while they wait.

    Nodes meet by MPI through the first rank of each, and only these ranks poll. An operation on several pieces of the
    shared memory takes one or two meetings for each piece.
    """

    def __init__(self, comm: MPI.Intracomm, node: MPI.Intracomm, leaders: MPI.Intracomm, nodes: int) -> None:
        """Make the shared memory of this rank's node. Collective.

        `leaders` has the first rank of each node of `comm` (COMM_NULL elsewhere); `nodes` is the number of nodes.
        """
        super().__init__(comm)
        self._leaders = leaders
        self._nodes = nodes
        self._members = [list(range(self.size))] if nodes == 1 else self._find_nodes(node)
        self._leader_of, self._node_of, self._number_on_node = ([0] * self.size for _ in range(3))
        for number, members in enumerate(self._members):
            for place, rank in enumerate(members):
                self._leader_of[rank], self._node_of[rank], self._number_on_node[rank] = members[0], number, place
        self._own_node = self._members[self._node_of[self.rank]]
        self._collector = self._leader_of[self.rank]
        self._memory = NodeMemory(node, max(map(len, self._members)), first_ends_meetings=nodes > 1)

    def _find_nodes(self, node: MPI.Intracomm) -> list[list[int]]:
        """Return the ranks of each node, in the order of the nodes' first ranks (the leaders). Collective."""
        leader = np.array([self.rank if node.rank == 0 else 0], np.int64)
        wait(node.Ibcast(leader), self.size)
        leader_of = np.empty(self.size, np.int64)
        wait(self.comm.Iallgather(leader, leader_of), self.size)
        return [np.flatnonzero(leader_of == one).tolist() for one in np.unique(leader_of)]

    def barrier(self) -> None:
        """Wait for all ranks, asleep."""
        self._memory.run_barrier(lambda: self._run_on_leaders(lambda comm: comm.Ibarrier()))

    def _run_on_leaders(self, begin: Any) -> None:
        """Begin a non-blocking operation with the leaders of the other nodes, if there are any, and wait for it."""
        if self._nodes > 1:
            wait(begin(self._leaders), self._nodes)

    def allreduce(self, values: NDArray[Any], operation: Operation) -> None:
        """Reduce in place: small arrays by one rank, larger ones in shares. ValueError if not contiguous."""
        if not values.flags.c_contiguous:
            raise ValueError("an array that is reduced in place must be contiguous")  # as MPI demands
        flat = values.reshape(-1)
        if flat.nbytes <= _REDUCED_BY_ONE:
            self._allreduce_small(flat, operation)
        else:
            self._allreduce_large(flat, operation)

    def _allreduce_small(self, values: NDArray[Any], operation: Operation) -> None:
        memory, count, kind = self._memory, len(values), values.dtype
        memory.own_piece(count, kind)[:] = values

        def reduce_pieces() -> None:
            whole = np.frombuffer(memory.shared_piece(before=False), kind, count)
            _BY_NUMPY[operation].reduce(memory.all_pieces(count, kind), axis=0, out=whole)
            self._run_on_leaders(lambda comm: comm.Iallreduce(MPI.IN_PLACE, whole, BY_MPI[operation]))

        memory.run_barrier(reduce_pieces)
        values[:] = np.frombuffer(memory.shared_piece(before=False), kind, count)

    def _allreduce_large(self, values: NDArray[Any], operation: Operation) -> None:
        """Reduce piece by piece: at one meeting each rank reduces its share of a piece and brings the next piece."""
        memory, kind, most = self._memory, values.dtype, self._memory.piece // values.itemsize
        pieces = [values[begin : begin + most] for begin in range(0, len(values), most)]
        before: NDArray[Any] = values[:0]
        for piece in (*pieces, values[:0]):
            memory.own_piece(len(piece), kind)[:] = piece
            begin, end = (len(before) * number // memory.size for number in (memory.rank, memory.rank + 1))
            received = memory.all_pieces(len(before), kind)[:, begin:end]
            whole = np.frombuffer(memory.shared_piece(before=True), kind, len(before))
            _BY_NUMPY[operation].reduce(received, axis=0, out=whole[begin:end])
            memory.run_barrier(partial(self._reduce_over_nodes, whole, operation))
            before[:] = whole
            before = piece

    def _reduce_over_nodes(self, values: NDArray[Any], operation: Operation) -> None:
        if len(values):
            self._run_on_leaders(lambda comm: comm.Iallreduce(MPI.IN_PLACE, values, BY_MPI[operation]))

    def reduce(self, values: NDArray[Any], operation: Operation) -> NDArray[Any] | None:
        """Return the reduction on rank 0, by an allreduce; None elsewhere."""
        out = values.copy()
        self.allreduce(out, operation)
        return out if self.rank == 0 else None

    def gather(self, values: NDArray[Any]) -> NDArray[Any] | None:
        """Return the arrays of all ranks on rank 0, gathered piece by piece; None elsewhere."""
        memory, flat, most = self._memory, values.reshape(-1), self._memory.piece // values.itemsize
        out = np.empty((self.size, len(flat)), values.dtype) if self.rank == 0 else None
        for begin in range(0, max(len(flat), 1), most):
            part = flat[begin : begin + most]
            into = out[:, begin : begin + most] if out is not None else None
            memory.own_piece(len(part), part.dtype)[:] = part
            memory.run_barrier(partial(self._gather_nodes, len(part), part.dtype, into))
            if into is not None and self._nodes == 1:
                into[:] = memory.all_pieces(len(part), part.dtype)
        return out.reshape(self.size, *values.shape) if out is not None else None

    def _gather_nodes(self, count: int, kind: np.dtype[Any], into: NDArray[Any] | None) -> None:
        """Gather the pieces of all nodes at this meeting on rank 0. For leaders only."""
        if self._nodes == 1:
            return
        own = self._memory.all_pieces(count, kind).copy()
        found = np.empty((self.size, count), kind) if into is not None else None
        receive = None if found is None else [found, [len(members) * count for members in self._members]]
        self._run_on_leaders(lambda comm: comm.Igatherv(own, receive))
        if into is not None:
            into[np.concatenate(self._members)] = found

    def gather_parts(self, part: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]] | None:
        """Return the vectors of all ranks on rank 0; None elsewhere.

        On other nodes than rank 0's each rank sends to its leader and sleeps; the leader forwards to rank 0.
        """
        if self._nodes == 1:
            return super().gather_parts(part, lengths)
        table = self.broadcast_object([*lengths] if self.rank == 0 else None)
        if not self._forwards:
            return super().gather_parts(part, table)
        for member in self._own_node:
            data = part if member == self.rank else np.empty(table[member], np.int64)
            if len(data):
                if member != self.rank:
                    self.receive(data.data.cast("B"), member)
                self.send(data.data.cast("B"), 0)
        return None

    @property
    def _forwards(self) -> bool:
        """True if this rank forwards the parts of its node to and from rank 0, which is on another node."""
        return self.rank == self._collector != 0

    def _relay(self, rank: int) -> int:
        """Return the rank itself on the node of rank 0, else the leader of its node."""
        return self._leader_of[rank] or rank

    def scatter(self, parts: Sequence[memoryview] | None, own: memoryview) -> None:
        """Send each rank its part, through its leader if it is on another node; fill `own` on the others."""
        lengths: list[int] = []
        if self._nodes > 1:
            lengths = self.broadcast_object([len(part) for part in parts] if parts is not None else None)
        if self._forwards:
            for member in self._own_node:
                data = own if member == self.rank else memoryview(bytearray(lengths[member]))
                self.receive(data, 0)
                if member != self.rank:
                    self.send(data, member)
        elif parts is None:
            self.receive(own, self._collector)
        else:
            for target in range(1, self.size):
                self.send(parts[target], self._relay(target))

    def broadcast(self, data: memoryview, source: int = 0) -> None:
        """Fill `data` with the bytes of rank `source`, piece by piece."""
        memory = self._memory
        for begin in range(0, len(data), memory.piece):
            part = data[begin : begin + memory.piece]
            if self.rank == source:
                memory.shared_piece(before=True)[: len(part)] = part
            memory.run_barrier(partial(self._broadcast_to_nodes, source, len(part)))
            if self.rank != source:
                part[:] = memory.shared_piece(before=False)[: len(part)]

    def _broadcast_to_nodes(self, source: int, size: int) -> None:
        """Copy the first `size` bytes of the shared piece of rank `source`'s node to all nodes. For leaders only."""
        box = self._memory.shared_piece(before=False)[:size]
        self._run_on_leaders(lambda comm: comm.Ibcast([box, MPI.BYTE], self._node_of[source]))

    def broadcast_object(self, value: T | None, source: int = 0) -> T:
        """Return the object of rank `source` on every rank, sent as its pickle, piece by piece."""
        memory, head = self._memory, LENGTH.itemsize
        most = memory.piece - head
        data = pickle.dumps(value) if self.rank == source else b""
        found = bytearray()
        done, length = 0, 1
        while done < length:
            if self.rank == source:
                box, part = memory.shared_piece(before=True), data[done : done + most]
                box[:head] = np.array([len(data)], LENGTH).view(np.uint8).data
                box[head : head + len(part)] = part
            memory.run_barrier(partial(self._broadcast_piece, source, done))
            box = memory.shared_piece(before=False)
            length = int(np.frombuffer(box, LENGTH, 1)[0])
            if self.rank != source:
                found += box[head : head + min(most, length - done)]
            done += most
        return value if self.rank == source else pickle.loads(found)  # type: ignore[return-value]

    def _broadcast_piece(self, source: int, done: int) -> None:
        head = LENGTH.itemsize
        self._broadcast_to_nodes(source, head)
        length = int(np.frombuffer(self._memory.shared_piece(before=False), LENGTH, 1)[0])
        self._broadcast_to_nodes(source, head + min(self._memory.piece - head, length - done))

    def alltoall_rows(self, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the rows for this rank; None if any count is negative. By MPI if there are several nodes."""
        table = self.broadcast_object(self.gather(counts))
        if table.min() < 0:
            return None
        if self._nodes > 1:
            self.barrier()
            return self._alltoallv_rows(rows, table)
        memory, width = self._memory, rows.shape[1]
        # ends: the end of each rank's elements for each target. wanted: begin and end of its elements for this rank.
        ends = np.cumsum(table, axis=1) * width
        wanted = np.stack([ends[:, self.rank] - table[:, self.rank] * width, ends[:, self.rank]], axis=1).tolist()
        flat, most = np.ascontiguousarray(rows).reshape(-1), memory.piece // rows.itemsize
        parts: list[list[NDArray[np.int64]]] = [[] for _ in wanted]
        for begin in range(0, int(ends[:, -1].max()), most):
            own = flat[begin : begin + most]
            memory.own_piece(len(own), own.dtype)[:] = own
            memory.run_barrier()
            received = memory.all_pieces(most, flat.dtype)
            for source, (first, last) in enumerate(wanted):
                parts[source].append(received[source, max(first - begin, 0) : max(last - begin, 0)].copy())
        return np.concatenate([piece for pieces in parts for piece in pieces] or [flat[:0]]).reshape(-1, width)

    def send(self, data: memoryview, target: int) -> None:
        """Send bytes through the memory of the node, or by MPI to another node; return when they are received."""
        if self._node_of[target] == self._node_of[self.rank]:
            self._memory.send(data, self._number_on_node[target])
            return
        wait(self.comm.Irecv([bytearray(0), MPI.BYTE], target, _TURN), self.size)
        _wait_yielding(self.comm.Issend([data, MPI.BYTE], target, TAG))

    def receive(self, data: memoryview, source: int) -> None:
        """Receive bytes through the memory of the node, or by MPI from another node."""
        if self._node_of[source] == self._node_of[self.rank]:
            self._memory.receive(data, self._number_on_node[source])
            return
        self.comm.Send([b"", MPI.BYTE], source, _TURN)
        wait_until(lambda: self.comm.Iprobe(source, TAG), self.size)
        _wait_yielding(self.comm.Irecv([data, MPI.BYTE], source, TAG))

    def close(self) -> None:
        """Free the shared memory."""
        self._memory.close()


def _wait_yielding(request: MPI.Request) -> None:
    """Wait for a transfer that moves only while both ranks call MPI; yield the core, which the other may need."""
    while not request.Test():
        os.sched_yield()
