"""The ranks of a job: collective operations, and errors that all ranks raise together."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.job_abort import end_job
from dliosim.execute.mpi.ranks import Operation, Ranks
from dliosim.execute.mpi.shared_memory import wait
from dliosim.execute.mpi.sleeping_ranks import SleepingRanks
from dliosim.execute.node.environment import node_name, own_cores, require_memory
from dliosim.hashes import blake2b
from dliosim.measure.progress.board import BARRIER, EXCHANGE, NODE_EXCHANGE, current, private_row
from dliosim.model import Access

T = TypeVar("T")

#: The board row for meetings of threads other than the main one; no rank reads it.
_UNSEEN = private_row()

#: The largest sum of bytes of memory; 64 bits hold it.
_MOST = 1 << 62

#: Bytes of the hash that names a node.
_KEY = 16

#: Bytes of a pickled error, or of a path, which is at most 4095 on Linux. More would take MPICH four times as long.
_LONGEST_NOTE = 8192


@dataclass(frozen=True, slots=True)
class World:
    """All ranks of a job, and those of this rank's node."""

    #: all ranks of the job
    ranks: Ranks
    #: the ranks of this rank's node
    node: Ranks
    #: communicator of the first rank of each node; COMM_NULL on other ranks
    leaders: MPI.Intracomm
    #: number of nodes
    nodes: int
    #: ranks outnumber cores, so waits must leave the cores to other ranks
    polite: bool
    #: a name that no other job has
    job: str
    #: name of this rank's node
    name: str = ""
    #: the main threads of the ranks meet here, and their meetings are noted on the board of stalls
    is_main: bool = True

    @property
    def comm(self) -> MPI.Intracomm:
        """Communicator of all ranks."""
        return self.ranks.comm

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """Number of ranks of the job."""
        return self.ranks.size

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._meet(BARRIER, self.ranks.barrier)

    def allreduce(self, values: NDArray[Any], operation: Operation) -> NDArray[Any]:
        """Replace `values` by the element-wise sum, min or max over ranks, and return them."""
        self._meet(EXCHANGE, self.ranks.allreduce, values, operation)
        return values

    def allreduce_on_node(self, values: NDArray[Any], operation: Operation) -> NDArray[Any]:
        """Replace `values` by the element-wise sum, min or max over the ranks of this node, and return them."""
        self._meet(NODE_EXCHANGE, self.node.allreduce, values, operation)
        return values

    def reduce(self, values: NDArray[Any], operation: Operation) -> NDArray[Any] | None:
        """Return the element-wise sum, min or max on rank 0; None elsewhere."""
        return self._meet(EXCHANGE, self.ranks.reduce, values, operation)

    def allreduce_number(self, value: int, operation: Operation) -> int:
        """Return the sum, min or max of a number of each rank, on every rank."""
        return int(self.allreduce(np.array([value], np.int64), operation)[0])

    def gather(self, values: NDArray[Any]) -> NDArray[Any] | None:
        """Return the arrays of all ranks, of one shape, along a new first axis on rank 0; None elsewhere."""
        return self._meet(EXCHANGE, self.ranks.gather, values)

    def gather_parts(self, part: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]] | None:
        """Return the vectors of all ranks on rank 0, in the order of ranks; None elsewhere. `lengths` as in `Ranks`."""
        return self.ranks.gather_parts(part, lengths)

    def broadcast_object(self, value: T | None, source: int = 0) -> T:
        """Return the object of rank `source` on every rank."""
        found: T = self._meet(EXCHANGE, self.ranks.broadcast_object, value, source)
        return found

    def broadcast_first(self, value: T | None) -> T | None:
        """Return the object of the first rank that has one, on every rank; None if none has."""
        source = self.allreduce_number(self.size if value is None else self.rank, "min")
        return None if source == self.size else self.broadcast_object(value, source)

    def _meet(self, meeting: int, operation: Callable[..., T], *arguments: object) -> T:
        """Return what an operation of `ranks` returns; note on the board when this rank arrives at it and leaves it."""
        row = current[0] if self.is_main else _UNSEEN
        if row.meets:
            row.arrive(meeting)
        found = operation(*arguments)
        row.leave()
        return found

    def sum_over_nodes(self, values: NDArray[Any]) -> None:
        """Replace `values` by the element-wise sum over the first ranks of all nodes. Only these ranks call it."""
        wait(self.leaders.Ibarrier(), self.nodes)  # so that no rank spins while another is late
        self.leaders.Allreduce(MPI.IN_PLACE, values, MPI.SUM)

    def close(self) -> None:
        """Free all but `comm`. Collective."""
        self.ranks.close()
        if self.node is not self.ranks:
            self.node.close()
            self.node.comm.Free()
        if self.nodes > 1 and self.leaders != MPI.COMM_NULL:
            self.leaders.Free()

    def agree_on_error(self, error: DliosimError | None) -> None:
        """Wait for all ranks; if any has an error, raise that of the lowest such rank on all of them. Collective."""
        self.raise_if_failed(self.allreduce_number(self.failure_flag(error), "max"), error)

    def failure_flag(self, error: DliosimError | None) -> int:
        """Return this rank's flag, whose maximum over ranks tells `raise_if_failed` the lowest rank that failed."""
        return self.size - self.rank if error else 0

    def raise_if_failed(self, flag: int, error: DliosimError | None) -> None:
        """Raise the error of the lowest rank that failed, on all ranks; `flag` is the maximum of all, 0 for none."""
        if flag:
            source = self.size - flag
            raise self.broadcast_object(_add_rank(error, source) if error else None, source).mark_shared()

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank and return its result; raise on all ranks if it fails on any. Collective.

        The action itself must not wait for other ranks: one that fails would not come to such a meeting.
        """
        error: DliosimError | None = None
        value: T | None = None
        try:
            value = action()
        except DliosimError as failure:
            error = failure
        self.agree_on_error(error)
        return value  # type: ignore[return-value]

    def require_memory(self, needed: int, what: str) -> None:
        """Raise ExecutionError [R402] on every rank unless each node has the memory that its ranks need. Collective.

        `needed` is the bytes of this rank; those of the ranks of a node add up.
        """
        together = np.array([min(needed, _MOST // self.node.size)], np.int64)
        self.allreduce_on_node(together, "sum")
        self.run_on_all(lambda: require_memory(int(together[0]), self.node.size, what))

    def run_on_rank_0(self, doing: str, action: Callable[[], T], cure: str = "") -> T:
        """Run `action` on rank 0 only; return its result, or raise its error, on every rank. Collective.

        `doing` says in the message of an OSError what failed, as in "make the results directory", and `cure` what to
        type then.
        """
        value: T | None = None
        error: DliosimError | None = None
        if self.rank == 0:
            try:
                value = action()
            except DliosimError as failure:
                error = failure
            except OSError as failure:
                error = rank_0_error(doing, failure, cure)
        value, error = self.broadcast_object((value, error) if self.rank == 0 else None)
        if error is not None:
            raise error.mark_shared()
        return value  # type: ignore[return-value]

    def abort(self, error: DliosimError) -> NoReturn:
        """Print the error and end the job, for places where the other ranks would wait forever in a collective call."""
        end_job(self.job, str(_add_rank(error, self.rank)), error.exit_code)

    @contextmanager
    def abort_on_error(self) -> Iterator[None]:
        """End the job by an error of the block that only this rank has: the others may wait for it anywhere."""
        try:
            yield
        except DliosimError as error:
            if not error.shared and self.size > 1:
                self.abort(error)
            raise


def _add_rank(error: DliosimError, rank: int) -> DliosimError:
    """Return the error with its rank in the message, if the message does not name it yet."""
    if isinstance(error, ExecutionError) and not error.message.startswith("rank "):
        return type(error)(f"rank {rank}: {error.message}", error.code)
    return error


def make_world(
    comm: MPI.Intracomm, cores_of: Callable[[MPI.Intracomm], int], job: str, node_of: Callable[[], str] = node_name
) -> World:
    """Make the world of a communicator. Collective.

    `cores_of` returns the number of cores of a node's ranks, `node_of` a text that is the same on ranks of one node.
    """
    nodes, name = np.empty((comm.size, _KEY), np.uint8), node_of()
    own = np.frombuffer(blake2b(name.encode(), digest_size=_KEY).digest(), np.uint8)
    wait(comm.Iallgather(own, nodes), comm.size)
    members = np.flatnonzero((nodes == own).all(axis=1))
    node = MPI.Intracomm(comm.Split(int(members[0]), comm.rank)) if len(members) < comm.size else comm
    counts = np.array([node.rank == 0, node.size > cores_of(node)], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, counts, MPI.SUM), comm.size)
    built = _build_world(comm, node, int(counts[0]), bool(counts[1]), job)
    return replace(built, name=name.partition(" pid:")[0])


def duplicate_world(world: World) -> World:
    """Make a world of the same ranks for another thread of each rank; its waits sleep. Collective."""
    comm = MPI.Intracomm(world.comm.Dup())
    node = MPI.Intracomm(world.node.comm.Dup()) if world.nodes > 1 else comm
    return replace(_build_world(comm, node, world.nodes, True, world.job), name=world.name, is_main=False)


def _build_world(comm: MPI.Intracomm, node: MPI.Intracomm, nodes: int, polite: bool, job: str) -> World:
    """Make a world that owns `node`; if all ranks are on one node, `node` is freed at once. Collective."""
    if nodes > 1:
        leaders = MPI.Intracomm(comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, comm.rank))
    else:
        leaders = MPI.Intracomm(MPI.COMM_SELF if comm.rank == 0 else MPI.COMM_NULL)
    ranks = SleepingRanks(comm, node if nodes > 1 else comm, leaders, nodes) if polite else Ranks(comm)
    if nodes > 1:
        own = SleepingRanks(node, node, leaders, 1) if polite else Ranks(node)
        return World(ranks, own, leaders, nodes, polite, job)
    if node != comm:
        node.Free()
    return World(ranks, ranks, leaders, nodes, polite, job)


@contextmanager
def split_world(world: World, colour: int, key: int, polite: bool) -> Iterator[World]:
    """Make the world of the ranks with the same colour, in the order of their keys, for a `with` block.

    `polite`: their waits leave the cores to others. Collective, and so is leaving the block.
    """
    comm = MPI.Intracomm(world.comm.Split(colour, key))
    node = MPI.Intracomm(world.node.comm.Split(colour, key)) if world.nodes > 1 else comm
    nodes = np.array([node.rank == 0], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, nodes, MPI.SUM), world.size)
    part = _build_world(comm, node, int(nodes[0]), polite, world.job)
    try:
        yield part
    except DliosimError as error:
        if not error.shared:
            raise  # the other ranks have not failed and do not come here: a collective close would wait forever
        part.close()
        comm.Free()
        raise
    part.close()
    comm.Free()


def run_on_some(world: World, count: int, work: Callable[[World], T]) -> T:
    """Call `work` on `count` ranks, spread evenly over the nodes, with their world; return its result on all ranks.

    The result is that of rank 0, which is always one of them. Collective.
    """
    chosen, polite = choose_ranks(world, count)

    def work_with(part: World) -> T:
        try:
            return work(part)
        except DliosimError as error:
            if not error.shared and part.size > 1:
                world.abort(error)  # the others wait for this rank in collective calls of `part`
            raise

    with split_world(world, int(not chosen), world.rank, polite) as part:
        result = world.run_on_all(lambda: work_with(part) if chosen else None)
    return world.broadcast_object(result)


def run_on_first_rank(comm: MPI.Intracomm, action: Callable[[], str | None]) -> str:
    """Run `action` on the first rank of `comm` while the others wait; return its path on all ranks. Collective.

    All ranks raise the ExecutionError of the action.
    """
    if comm.size == 1:
        return action() or ""
    answer: str | ExecutionError = ""
    if comm.rank == 0:
        try:
            answer = action() or ""
        except ExecutionError as error:
            answer = error
    answer = _broadcast_result(comm, 0, answer)
    if isinstance(answer, ExecutionError):
        raise answer
    return answer


def find_first_error(comm: MPI.Intracomm, error: ExecutionError, is_own: bool) -> ExecutionError:
    """Return the error of the first rank of `comm` that failed by itself (`is_own`) in a call that failed on all.

    The other ranks only know that a rank failed. Collective.
    """
    if comm.size == 1:
        return error
    first = np.array([comm.rank if is_own else comm.size], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, first, MPI.MIN), comm.size)
    source = int(first[0]) % comm.size
    own = ExecutionError(f"rank {source} of the {comm.size} that open it: {error.message}", error.code)
    result = _broadcast_result(comm, source, own)
    return result if isinstance(result, ExecutionError) else error


def _broadcast_result(comm: MPI.Intracomm, source: int, answer: str | ExecutionError) -> str | ExecutionError:
    """Return the path, or the error, of rank `source` on every rank; the error is marked as shared. Collective."""
    note = np.zeros(_LONGEST_NOTE, np.uint8)
    if comm.rank == source:
        data = pickle.dumps(answer)[:_LONGEST_NOTE]
        note[: len(data)] = np.frombuffer(data, np.uint8)
    wait(comm.Ibcast(note, source), comm.size)
    found: str | ExecutionError = pickle.loads(note.data)  # this program made it
    return found.mark_shared() if isinstance(found, ExecutionError) else found


def file_communicator(world: World, access: Access) -> MPI.Intracomm:
    """Return the communicator on which this rank opens a shared file; free it by `free_communicator`. Collective.

    With `scatter` only the ranks that read open the file; the others get COMM_NULL.
    """
    together = access.communicator
    reads = not access.scatter or world.node.rank == 0
    if together == "world" or not access.is_mpi:
        return world.leaders if access.scatter else world.comm
    if together == "node":
        return MPI.Intracomm(MPI.COMM_SELF if reads else MPI.COMM_NULL) if access.scatter else world.node.comm
    return MPI.Intracomm(world.comm.Split(world.rank // together if reads else MPI.UNDEFINED, world.rank))


def free_communicator(world: World, comm: MPI.Intracomm) -> None:
    """Free a communicator that `file_communicator` made, when no file is open on it. Collective over `comm`."""
    if comm not in (world.comm, world.node.comm, world.leaders, MPI.COMM_SELF, MPI.COMM_NULL):
        comm.Free()


_MOST_CORES = 8192


class NodeLoad(NamedTuple):
    """Cores, ranks and load average of a node."""

    #: cores that the ranks may run on
    cores: int
    #: ranks on the node
    ranks: int
    #: load average over one minute
    load: float


def node_cores(node: MPI.Intracomm) -> int:
    """Count the cores that any rank of a node may run on; each rank may be bound to other ones. Collective."""
    cores = np.zeros(_MOST_CORES, np.bool_)
    cores[[core for core in own_cores() if core < _MOST_CORES]] = True
    wait(node.Iallreduce(MPI.IN_PLACE, cores, MPI.LOR), node.size)
    return int(cores.sum())


def fullest_node(world: World, load: float) -> NodeLoad:
    """Return cores and ranks of the node with the most ranks a core, and the highest load of any node. Collective.

    `load` is the load average of this rank's node. Too many ranks a core, or a high load, make figures doubtful.
    """
    cores, ranks = node_cores(world.node.comm), world.node.size
    full = ranks * 1_000_000 // cores
    fullest = full == world.allreduce_number(full, "max")
    here = np.array([cores if fullest else 0, ranks if fullest else 0, round(load * 100)], np.int64)
    most_cores, most_ranks, highest = world.allreduce(here, "max").tolist()
    return NodeLoad(most_cores, most_ranks, highest / 100)


def choose_ranks(world: World, count: int) -> tuple[bool, bool]:
    """Return whether this rank is one of `count` that are spread evenly over the nodes, and whether they share cores.

    Rank 0 is always one of them. Collective.
    """
    places = np.empty(world.size, np.int64)  # of each rank on its node
    wait(world.comm.Iallgather(np.array([world.node.rank]), places), world.size)
    chosen = np.zeros(world.size, np.int64)
    chosen[np.argsort(places, kind="stable")[:count]] = 1
    here = np.array([chosen[world.rank]])
    world.allreduce_on_node(here, "sum")
    shares = world.allreduce_number(int(here[0] > node_cores(world.node.comm)), "max")
    return bool(chosen[world.rank]), bool(shares)
