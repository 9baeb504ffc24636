"""The ranks of a job: waiting for each other without spinning, sharing objects, and failing together."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any, NoReturn, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.ending import end_job
from dliosim.execute.faults import failed_on
from dliosim.measure.board import BARRIER, EXCHANGE, current

T = TypeVar("T")

#: The pause between two looks at a pending request grows from the first to the second (seconds). MPICH spins while it
#: waits: with 64 ranks on two cores a plain barrier takes 80 ms, and seconds at 512.
FIRST_PAUSE, LONGEST_PAUSE = 50e-6, 5e-3

#: The longest pause where what is waited for comes as soon as a call or two of another rank are done (seconds).
SOON = 5e-4

#: Bytes above which an operation is one that moves data, rather than one that waits. The figures of an epoch (66 kB)
#: are below: polled they take 0.1 s on 5 ranks of two cores and 0.45 s on 100; by blocking calls, 0.06 and 1.2 s.
LARGE = 1 << 17

#: Ranks that have their turn to send parts at the same time: none waits for the next one to notice that it has its own.
_TURNS = 3
_TAG = 78

#: Bytes of an error, or of a path, of which Linux takes 4095.
_LONGEST_NOTE = 8192

_OPERATIONS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}


@dataclass(frozen=True, slots=True)
class World:
    """A communicator with what waiting on it needs to know.

    `node` is the communicator of the ranks that share this rank's memory, `leaders` that of each node's first rank
    (COMM_NULL elsewhere). `polite` is whether waits must leave the cores to others, because ranks outnumber them.
    `job` is a name that no other job has.
    """

    comm: MPI.Intracomm
    node: MPI.Intracomm
    leaders: MPI.Intracomm
    nodes: int
    polite: bool
    job: str

    @property
    def rank(self) -> int:
        """This rank."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """Ranks of the job."""
        return self.comm.size

    def barrier(self) -> None:
        """Wait for all ranks."""
        row = current[0]
        if row.meets:
            row.arrive(BARRIER)
        if self.polite:
            wait(self.comm.Ibarrier())
        else:
            self.comm.Barrier()
        if row.meets:
            row.leave()

    def send(self, data: memoryview, target: int, tag: int) -> None:
        """Send bytes to a rank that has given this one its turn; over when that one receives them."""
        self._pass([data, MPI.BYTE], target, tag, self.comm.Issend, self.comm.Ssend)

    def receive(self, data: memoryview, source: int, tag: int) -> None:
        """Receive bytes from a rank that was given its turn."""
        self._pass([data, MPI.BYTE], source, tag, self.comm.Irecv, self.comm.Recv)

    def _pass(
        self, spec: Any, other: int, tag: int, begin: Callable[..., MPI.Request], at_once: Callable[..., None]
    ) -> None:
        if self.polite:
            # Both ends must call MPI for data to move, and one that spins keeps the other from its core: 1 MiB between
            # two of 5 ranks on two cores takes 5 to 9 ms by blocking calls, 17 with pauses, and 1.4 like this.
            request = begin(spec, other, tag)
            while not request.Test():
                os.sched_yield()
        else:
            at_once(spec, other, tag)

    def give_turn(self, target: int, tag: int) -> None:
        """Let a rank that waits for its turn begin to send."""
        self.comm.Send([b"", MPI.BYTE], target, tag)

    def wait_for_turn(self, source: int, tag: int, longest: float = LONGEST_PAUSE) -> None:
        """Wait, in pauses of up to `longest` seconds, until `source` gives this rank its turn to `send`."""
        request = self.comm.Irecv([bytearray(0), MPI.BYTE], source, tag)
        if self.polite:
            wait(request, longest)
        else:
            request.Wait()

    def allreduce(self, values: NDArray[Any], operation: str) -> NDArray[Any]:
        """The element-wise sum, min or max over ranks, in place."""
        self.allreduce_on(self.comm, values, operation)
        return values

    def allreduce_on(self, comm: MPI.Intracomm, values: NDArray[Any], operation: str) -> None:
        """As `allreduce`, over another communicator of this job."""
        add = _OPERATIONS[operation]
        self._move(
            comm,
            values.nbytes,
            lambda: comm.Iallreduce(MPI.IN_PLACE, values, add),
            lambda: comm.Allreduce(MPI.IN_PLACE, values, add),
        )

    def reduce(self, values: NDArray[Any], operation: str) -> NDArray[Any] | None:
        """The element-wise sum, min or max on rank 0; None elsewhere."""
        comm, add = self.comm, _OPERATIONS[operation]
        out = np.empty_like(values) if self.rank == 0 else None
        self._move(comm, values.nbytes, lambda: comm.Ireduce(values, out, add), lambda: comm.Reduce(values, out, add))
        return out

    def gather(self, values: NDArray[Any]) -> NDArray[Any] | None:
        """The arrays of all ranks, of one shape, along a new first axis on rank 0; None elsewhere."""
        comm = self.comm
        out = np.empty((self.size, *values.shape), values.dtype) if self.rank == 0 else None
        moved = values.nbytes * self.size
        self._move(comm, moved, lambda: comm.Igather(values, out), lambda: comm.Gather(values, out))
        return out

    def gather_parts(self, part: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]] | None:
        """The vectors of all ranks, of these lengths, on rank 0, in the order of ranks; None elsewhere.

        Ranks take turns, and those without any take no part: 7 MB of 160 ranks on two cores take 0.4 s, against 1.0 s
        by a blocking Gatherv and 3.1 s by one that is polled.
        """
        if self.rank:
            if lengths[self.rank]:
                self.wait_for_turn(0, _TAG)
                self.send(part.data.cast("B"), 0, _TAG)
            return None
        senders = [rank for rank, length in enumerate(lengths) if rank and length]
        parts = [part, *(np.empty(length, np.int64) for length in lengths[1:])]
        for rank in senders[:_TURNS]:
            self.give_turn(rank, _TAG)
        for number, rank in enumerate(senders):
            self.receive(parts[rank].data.cast("B"), rank, _TAG)
            for later in senders[number + _TURNS : number + _TURNS + 1]:
                self.give_turn(later, _TAG)
        return parts

    def gather_on(self, comm: MPI.Intracomm, send: Any, receive: Any, size: int) -> None:
        """Gatherv to the first rank of another communicator of this job; `size` bytes meet there, as all know."""
        self._move(comm, size, lambda: comm.Igatherv(send, receive), lambda: comm.Gatherv(send, receive))

    def scatter_on(self, comm: MPI.Intracomm, send: Any, receive: Any, size: int) -> None:
        """Scatterv from the first rank of another communicator of this job, of up to `size` bytes, as all know."""
        self._move(comm, size, lambda: comm.Iscatterv(send, receive), lambda: comm.Scatterv(send, receive))

    def broadcast_on(self, comm: MPI.Intracomm, data: memoryview) -> None:
        """The bytes of the first rank of another communicator of this job, in place, on all of its ranks."""
        size = len(data)
        self._move(comm, size, lambda: comm.Ibcast([data, MPI.BYTE]), lambda: comm.Bcast([data, MPI.BYTE]))

    def exchange_on(
        self, comm: MPI.Intracomm, rows: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """The rows (n, k) that all ranks of another communicator of this job have for this one, in their order.

        `rows` are those for rank 0, then those for rank 1 and so on, as many as `counts` says. None on every rank where
        one says less than none of them.
        """
        told = np.empty((comm.size, comm.size), np.int64)
        self._move(comm, told.nbytes, lambda: comm.Iallgather(counts, told), lambda: comm.Allgather(counts, told))
        if told.min() < 0:
            return None
        width, meant = rows.shape[1], told[:, comm.rank]
        found = np.empty((int(meant.sum()), width), np.int64)
        send, receive = [np.ascontiguousarray(rows), width * counts], [found, width * meant]
        largest = int(max(told.sum(0).max(), told.sum(1).max())) * width * found.itemsize
        self._move(comm, largest, lambda: comm.Ialltoallv(send, receive), lambda: comm.Alltoallv(send, receive))
        return found

    def share(self, value: T | None, source: int = 0) -> T:
        """The object that rank `source` has, on every rank (what is sent was made by this very program)."""
        data = pickle.dumps(value) if self.rank == source else b""
        length = np.array([len(data)], np.int64)
        self._broadcast(length, source)
        buffer = np.frombuffer(data, np.uint8).copy() if self.rank == source else np.empty(int(length[0]), np.uint8)
        self._broadcast(buffer, source)
        return value if self.rank == source else pickle.loads(buffer.tobytes())  # type: ignore[return-value]

    def _broadcast(self, buffer: NDArray[Any], source: int) -> None:
        comm = self.comm
        self._move(comm, buffer.nbytes, lambda: comm.Ibcast(buffer, source), lambda: comm.Bcast(buffer, source))

    def _move(
        self, comm: MPI.Intracomm, size: int, begin: Callable[[], MPI.Request], at_once: Callable[[], None]
    ) -> None:
        """One operation of all ranks of `comm`, either begun and waited for, or all at once.

        `size` decides which, and so must be the same on every rank: the bytes that meet on the one with most.
        """
        row = current[0]
        meets = row.meets and comm is self.comm
        if meets:
            row.arrive(EXCHANGE)
        if self.polite and size <= LARGE:
            wait(begin())
        elif self.polite:
            # Data move only while MPI is called: with pauses in between, 100 MB take minutes. So the waiting for
            # whoever is late is polite, and then all of them move the data.
            wait(comm.Ibarrier())
            at_once()
        else:
            at_once()
        if meets:
            row.leave()

    def agree(self, error: DliosimError | None) -> None:
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
            failure = self.share(_named(error, source) if error else None, source)
            failure.shared = True
            raise failure

    def together(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank, none of which waits for others in it; raise on all if it fails on any."""
        error: DliosimError | None = None
        value: T | None = None
        try:
            value = action()
        except DliosimError as failure:
            error = failure
        self.agree(error)
        return value  # type: ignore[return-value]

    def on_rank_0(self, doing: str, action: Callable[[], T]) -> T:
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
                error = failed_on(doing, failure)
        outcome = self.share((value, error) if self.rank == 0 else None)
        if outcome[1] is not None:
            outcome[1].shared = True
            raise outcome[1]
        return outcome[0]  # type: ignore[return-value]

    def abort(self, error: DliosimError) -> NoReturn:
        """Say what failed and end the job: for places where the others would wait for ever in a collective call."""
        end_job(self.job, str(_named(error, self.rank)), error.exit_code)


def _named(error: DliosimError, rank: int) -> DliosimError:
    """The error with the rank that met it, where its message does not say so yet."""
    if isinstance(error, ExecutionError) and not error.message.startswith("rank "):
        return type(error)(f"rank {rank}: {error.message}", error.code)
    return error


def wait(request: MPI.Request, longest: float = LONGEST_PAUSE) -> None:
    """Wait for a request without spinning, in pauses that grow from 50 us to `longest` seconds."""
    pause = FIRST_PAUSE
    while not request.Test():
        sleep(pause)
        pause = min(pause * 1.5, longest)


def make_world(comm: MPI.Intracomm, cores_of: Callable[[MPI.Intracomm], int], job: str) -> World:
    """The world of a communicator; `cores_of` tells how many cores the ranks of a node have. Collective."""
    node = MPI.Intracomm(comm.Split_type(MPI.COMM_TYPE_SHARED))
    counts = np.array([node.rank == 0, node.size > cores_of(node)], np.int64)
    comm.Allreduce(MPI.IN_PLACE, counts, MPI.SUM)
    leaders = MPI.Intracomm(comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, comm.rank))
    return World(comm, node, leaders, int(counts[0]), bool(counts[1]), job)


def first_alone(comm: MPI.Intracomm, action: Callable[[], str | None]) -> str:
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
    said = _tell(comm, 0, said)
    if isinstance(said, ExecutionError):
        raise said
    return said


def same_error(comm: MPI.Intracomm, error: ExecutionError, is_own: bool) -> ExecutionError:
    """Of the errors that all ranks of `comm` have met in one call, that of the first which met it itself (`is_own`).

    The others know no more than that. Collective.
    """
    if comm.size == 1:
        return error
    first = np.array([comm.rank if is_own else comm.size], np.int64)
    wait(comm.Iallreduce(MPI.IN_PLACE, first, MPI.MIN))
    source = int(first[0]) % comm.size
    own = ExecutionError(f"rank {source} of the {comm.size} that open it: {error.message}", error.code)
    told = _tell(comm, source, own)
    return told if isinstance(told, ExecutionError) else error


def _tell(comm: MPI.Intracomm, source: int, said: str | ExecutionError) -> str | ExecutionError:
    """The path, or the error, that rank `source` has, on every rank; all know then of an error. Collective."""
    note = np.zeros(_LONGEST_NOTE, np.uint8)
    if comm.rank == source:
        text = os.fsencode(f"-{said.code or ''}\n{said.message}" if isinstance(said, ExecutionError) else f"+{said}")
        text = text[:_LONGEST_NOTE]
        note[: len(text)] = np.frombuffer(text, np.uint8)
    wait(comm.Ibcast(note, source))
    text = note.tobytes().rstrip(b"\0")
    if text.startswith(b"+"):
        return os.fsdecode(text[1:])
    code, message = text[1:].decode(errors="replace").split("\n", 1)
    failure = ExecutionError(message, code or None)
    failure.shared = True
    return failure
