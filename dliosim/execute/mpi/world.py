"""The ranks of a job: what they do together, and how they fail together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.job_abort import end_job
from dliosim.execute.mpi.polling import wait
from dliosim.execute.mpi.ranks import Operation, Ranks, SleepingRanks, SpinningRanks
from dliosim.execute.node.environment import node_name
from dliosim.measure.board import BARRIER, EXCHANGE, BoardRow, current, private_row

T = TypeVar("T")

#: Where meetings of other threads are noted: nobody looks.
_UNSEEN = private_row()

#: Bytes by which ranks tell nodes from each other.
_KEY = 16

#: Bytes of an error, or of a path, of which Linux takes 4095.
_LONGEST_NOTE = 8192


@dataclass(frozen=True, slots=True)
class World:
    """The ranks of a job (`ranks`), and those that share this rank's memory (`node`).

    `leaders` is the communicator of each node's first rank (COMM_NULL elsewhere). `polite` is whether waits must leave
    the cores to others, because ranks outnumber them. `job` is a name that no other job has. `is_main` is whether the
    main threads of the ranks meet in it, which those who look for stalls are told of.
    """

    ranks: Ranks
    node: Ranks
    leaders: MPI.Intracomm
    nodes: int
    polite: bool
    job: str
    is_main: bool = True

    @property
    def comm(self) -> MPI.Intracomm:
        """The communicator of all ranks."""
        return self.ranks.comm

    @property
    def rank(self) -> int:
        """This rank."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """Ranks of the job."""
        return self.ranks.size

    def barrier(self) -> None:
        """Wait for all ranks."""
        row = self._enter_collective(BARRIER)
        self.ranks.barrier()
        row.leave()

    def allreduce(self, values: NDArray[Any], operation: Operation) -> NDArray[Any]:
        """Make the element-wise sum, min or max over ranks, in place."""
        row = self._enter_collective(EXCHANGE)
        self.ranks.allreduce(values, operation)
        row.leave()
        return values

    def reduce(self, values: NDArray[Any], operation: Operation) -> NDArray[Any] | None:
        """Return the element-wise sum, min or max on rank 0; None elsewhere."""
        row = self._enter_collective(EXCHANGE)
        found = self.ranks.reduce(values, operation)
        row.leave()
        return found

    def gather(self, values: NDArray[Any]) -> NDArray[Any] | None:
        """Return the arrays of all ranks, of one shape, along a new first axis on rank 0; None elsewhere."""
        row = self._enter_collective(EXCHANGE)
        found = self.ranks.gather(values)
        row.leave()
        return found

    def gather_parts(self, part: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]] | None:
        """Return the vectors of all ranks, of these lengths, on rank 0, in the order of ranks; None elsewhere."""
        return self.ranks.gather_parts(part, lengths)

    def broadcast_object(self, value: T | None, source: int = 0) -> T:
        """Return the object that rank `source` has, on every rank."""
        row = self._enter_collective(EXCHANGE)
        found = self.ranks.broadcast_object(value, source)
        row.leave()
        return found

    def _enter_collective(self, meeting: int) -> BoardRow:
        """Note on the board that this rank has come to a meeting of all; the row on which to note that it is over."""
        row = current[0] if self.is_main else _UNSEEN
        if row.meets:
            row.arrive(meeting)
        return row

    def sum_over_nodes(self, values: NDArray[Any]) -> None:
        """Make the element-wise sum over the first ranks of all nodes, in place. These alone call it."""
        wait(self.leaders.Ibarrier(), self.nodes)  # who is late makes nobody spin
        self.leaders.Allreduce(MPI.IN_PLACE, values, MPI.SUM)

    def close(self) -> None:
        """Give back all but `comm`. Collective."""
        self.ranks.close()
        if self.node is not self.ranks:
            self.node.close()
            self.node.comm.Free()
        if self.nodes > 1 and self.leaders != MPI.COMM_NULL:
            self.leaders.Free()

    def agree_on_error(self, error: DliosimError | None) -> None:
        """Wait for all ranks; raise on every one the error of the lowest rank that brings one."""
        flag = np.array([self.failure_flag(error)], np.int64)
        self.raise_if_failed(int(self.allreduce(flag, "max")[0]), error)

    def failure_flag(self, error: DliosimError | None) -> int:
        """What this rank contributes to a maximum over ranks, so that `raise_if_failed` knows who failed."""
        return self.size - self.rank if error else 0

    def raise_if_failed(self, flag: int, error: DliosimError | None) -> None:
        """Given the maximum of all ranks' flags: nothing if it is 0, else raise the lowest failed rank's error."""
        if flag:
            source = self.size - flag
            failure = self.broadcast_object(_add_rank(error, source) if error else None, source)
            failure.shared = True
            raise failure

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank, none of which waits for others in it; raise on all if it fails on any."""
        error: DliosimError | None = None
        value: T | None = None
        try:
            value = action()
        except DliosimError as failure:
            error = failure
        self.agree_on_error(error)
        return value  # type: ignore[return-value]

    def run_on_rank_0(self, doing: str, action: Callable[[], T]) -> T:
        """Run `action` on rank 0 alone and give every rank its result, or its error.

        `doing` is what an error of the operating system is said to have ended, like "make the results directory".
        """
        value: T | None = None
        error: DliosimError | None = None
        if self.rank == 0:
            try:
                value = action()
            except DliosimError as failure:
                error = failure
            except OSError as failure:
                error = rank_0_error(doing, failure)
        outcome = self.broadcast_object((value, error) if self.rank == 0 else None)
        if outcome[1] is not None:
            outcome[1].shared = True
            raise outcome[1]
        return outcome[0]  # type: ignore[return-value]

    def abort(self, error: DliosimError) -> NoReturn:
        """Say what failed and end the job: for places where the others would wait for ever in a collective call."""
        end_job(self.job, str(_add_rank(error, self.rank)), error.exit_code)


def _add_rank(error: DliosimError, rank: int) -> DliosimError:
    """The error with the rank that met it, where its message does not say so yet."""
    if isinstance(error, ExecutionError) and not error.message.startswith("rank "):
        return type(error)(f"rank {rank}: {error.message}", error.code)
    return error


def make_world(
    comm: MPI.Intracomm,
    cores_of: Callable[[MPI.Intracomm], int],
    job: str,
    node_of: Callable[[], str] = node_name,
) -> World:
    """Make the world of a communicator. Collective.

    `cores_of` tells how many cores the ranks of a node have, and `node_of` what ranks of one node have in common.
    """
    nodes = np.empty((comm.size, _KEY), np.uint8)
    own = np.frombuffer(hashlib.blake2b(node_of().encode(), digest_size=_KEY).digest(), np.uint8)
    wait(comm.Iallgather(own, nodes), comm.size)
    members = np.flatnonzero((nodes == own).all(axis=1))
    node = MPI.Intracomm(comm.Split(int(members[0]), comm.rank)) if len(members) < comm.size else comm
    counts = np.array([node.rank == 0, node.size > cores_of(node)], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, counts, MPI.SUM), comm.size)
    return _build_world(comm, node, int(counts[0]), bool(counts[1]), job)


def duplicate_world(world: World) -> World:
    """Make a world of the same ranks for another thread of each, which sleeps while it waits. Collective."""
    comm = MPI.Intracomm(world.comm.Dup())
    node = MPI.Intracomm(world.node.comm.Dup()) if world.nodes > 1 else comm
    return replace(_build_world(comm, node, world.nodes, True, world.job), is_main=False)


def _build_world(comm: MPI.Intracomm, node: MPI.Intracomm, nodes: int, polite: bool, job: str) -> World:
    """Make a world that owns `node`, which is given back at once where all ranks are on one node."""
    if nodes > 1:
        leaders = MPI.Intracomm(comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, comm.rank))
    else:
        leaders = MPI.Intracomm(MPI.COMM_SELF if comm.rank == 0 else MPI.COMM_NULL)
    ranks: Ranks = SleepingRanks(comm, node if nodes > 1 else comm, leaders, nodes) if polite else SpinningRanks(comm)
    if nodes > 1:
        own: Ranks = SleepingRanks(node, node, leaders, 1) if polite else SpinningRanks(node)
        return World(ranks, own, leaders, nodes, polite, job)
    if node != comm:
        node.Free()
    return World(ranks, ranks, leaders, nodes, polite, job)


@contextmanager
def split_ranks(world: World, colour: int, key: int) -> Iterator[Ranks]:
    """The ranks that name the same colour, in the order of their keys. Collective, as leaving the block is."""
    comm = MPI.Intracomm(world.comm.Split(colour, key))
    node = MPI.Intracomm(world.node.comm.Split(colour, key)) if world.nodes > 1 else comm
    nodes = np.array([node.rank == 0], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, nodes, MPI.SUM), world.size)
    part = _build_world(comm, node, int(nodes[0]), world.polite, world.job)
    try:
        yield part.ranks
    except DliosimError as error:
        if not error.shared:
            raise  # the others may be anywhere: nobody would come to close with this rank
        part.close()
        comm.Free()
        raise
    part.close()
    comm.Free()


def run_on_first_rank(comm: MPI.Intracomm, action: Callable[[], str | None]) -> str:
    """Do something on the first rank of `comm` while the others wait; the path that it returns, on all. Collective.

    Its error is raised on all.
    """
    if comm.size == 1:
        return action() or ""
    said: str | ExecutionError = ""
    if comm.rank == 0:
        try:
            said = action() or ""
        except ExecutionError as error:
            said = error
    said = _broadcast_result(comm, 0, said)
    if isinstance(said, ExecutionError):
        raise said
    return said


def find_first_error(comm: MPI.Intracomm, error: ExecutionError, is_own: bool) -> ExecutionError:
    """Of the errors that all ranks of `comm` have met in one call, that of the first which met it itself (`is_own`).

    The others know no more than that. Collective.
    """
    if comm.size == 1:
        return error
    first = np.array([comm.rank if is_own else comm.size], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, first, MPI.MIN), comm.size)
    source = int(first[0]) % comm.size
    own = ExecutionError(f"rank {source} of the {comm.size} that open it: {error.message}", error.code)
    told = _broadcast_result(comm, source, own)
    return told if isinstance(told, ExecutionError) else error


def _broadcast_result(comm: MPI.Intracomm, source: int, said: str | ExecutionError) -> str | ExecutionError:
    """The path, or the error, that rank `source` has, on every rank; all know then of an error. Collective."""
    note = np.zeros(_LONGEST_NOTE, np.uint8)
    if comm.rank == source:
        text = os.fsencode(f"-{said.code or ''}\n{said.message}" if isinstance(said, ExecutionError) else f"+{said}")
        text = text[:_LONGEST_NOTE]
        note[: len(text)] = np.frombuffer(text, np.uint8)
    wait(comm.Ibcast(note, source), comm.size)
    text = note.tobytes().rstrip(b"\0")
    if text.startswith(b"+"):
        return os.fsdecode(text[1:])
    code, message = text[1:].decode(errors="replace").split("\n", 1)
    failure = ExecutionError(message, code or None)
    failure.shared = True
    return failure
