"""Run by every rank of a job: what each method of a World promises, where waits are polite and where they spin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import sleep

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError, UsageError
from dliosim.execute.mpi.distinct_bytes import distinct_bytes
from dliosim.execute.mpi.job_abort import job_name
from dliosim.execute.mpi.world import World, file_communicator, free_communicator, make_world
from dliosim.model import Access
from dliosim.model.access import Communicator
from dliosim.plan.samples.read_ranges import BLOCK, union_ranges

#: Seconds after which others would be seen to have gone ahead.
LATE = 0.02

#: Bytes of more than one piece of the memory in which ranks meet.
LARGE = (1 << 19) + 8

#: Elements of 8 bytes: none, few, the most that one rank reduces for all, one more, and more than one piece.
SIZES = (0, 3, 512, 513, LARGE // 8)


def raised(world: World, action: Callable[[], object]) -> DliosimError:
    """Return the error that `action` raises on this rank; all ranks wait for each other after it."""
    try:
        action()
    except DliosimError as error:
        world.barrier()
        return error
    raise SystemExit(f"rank {world.rank}: nothing was raised")


def check_waiting(world: World, place: Path) -> None:
    """No rank leaves a barrier before all have reached it."""
    for late in range(world.size):
        mark = place / f"{world.job}-reached-by-{late}"
        if world.rank == late:
            sleep(LATE)
            mark.touch()
        world.barrier()
        assert mark.exists()


def check_reductions(world: World) -> None:
    ranks = np.arange(world.size)
    for size in SIZES:
        for operation, expected in (("sum", ranks.sum()), ("min", 0), ("max", world.size - 1)):
            mine = np.arange(size, dtype=np.int64) * world.size
            values = mine + world.rank
            assert world.allreduce(values, operation) is values
            whole = mine * (world.size if operation == "sum" else 1) + expected
            assert (values == whole).all()
            reduced = world.reduce(mine + world.rank, operation)
            assert (reduced is None) == (world.rank > 0)
            assert reduced is None or (reduced == whole).all()
        values = np.full(2 * size, 1.5, np.float32)
        world.allreduce_on_node(values, "sum")
        assert (values == np.float32(1.5) * world.node.size).all()


def check_gathering(world: World) -> None:
    for size in SIZES:
        rows = world.gather(np.full((2, size), world.rank, np.int64))
        assert (rows is None) == (world.rank > 0)
        if rows is not None:
            assert rows.shape == (world.size, 2, size)
            assert (rows == np.arange(world.size)[:, None, None]).all()


def check_parts(world: World) -> None:
    """Ranks have more elements the higher they are; one of them, or none, has as few as rank 0: none at all."""
    for size, idle in product(SIZES, range(2)):
        lengths = [size * rank * (rank != idle) for rank in range(world.size)]
        parts = world.gather_parts(np.full(lengths[world.rank], world.rank, np.int64), lengths)
        assert (parts is None) == (world.rank > 0)
        if parts is not None:
            assert [part.tolist() for part in parts] == [[rank] * length for rank, length in enumerate(lengths)]


def check_exchanging(world: World) -> None:
    """Rank r has r + t rows for rank t, as many as are moved at once and as are waited for; or does not know."""
    for size in (1, LARGE // 8):
        counts = size * (world.rank + np.arange(world.size))
        rows = np.repeat(np.arange(world.size), counts)
        found = world.ranks.alltoall_rows(np.column_stack([np.full(len(rows), world.rank), rows]), counts)
        assert found is not None
        assert (found[:, 1] == world.rank).all()
        assert (found[:, 0] == np.repeat(np.arange(world.size), size * (world.rank + np.arange(world.size)))).all()
    unknown = np.full(world.size, -1 if world.rank == world.size - 1 else 0)
    assert world.ranks.alltoall_rows(np.empty((0, 2), np.int64), unknown) is None


def check_distinct_bytes(world: World) -> None:
    """All ranks ask for the same 10 bytes, and each for 5 of its own in another block, and in another file."""
    own = BLOCK * (1 + world.rank)
    asked = union_ranges(np.array([0, 0, 7]), np.array([0, own, own]), np.array([10, own + 5, own + 5]))
    whole = np.array([distinct_bytes(world, asked)])
    world.allreduce_on_node(whole, "sum")
    assert whole[0] == 10 * (world.node.size + 1)
    assert distinct_bytes(world, asked if world.node.rank else None) == -1


def check_sharing(world: World) -> None:
    for source in range(world.size):
        for value in (None, ("text", source), b"x" * (LARGE + 1)):
            assert world.broadcast_object(value if world.rank == source else None, source) == value


def check_sending(world: World, place: Path) -> None:
    """Rank 0 receives from each other rank, the last one first; no send is over before it is received."""
    for length in (0, 1, LARGE + 1):
        marks = [place / f"{world.job}-turn-of-{rank}-{length}" for rank in range(world.size)]
        if world.rank:
            world.ranks.send(memoryview(bytes([world.rank]) * length), 0)
            assert marks[world.rank].exists()
            continue
        for source in reversed(range(1, world.size)):
            sleep(LATE)
            marks[source].touch()
            data = memoryview(bytearray(length))
            world.ranks.receive(data, source)
            assert data == bytes([source]) * length


def check_agreeing(world: World) -> None:
    """The lowest of the ranks that fail is the one that all raise, and its error says which it is."""
    last = world.size - 1
    world.agree_on_error(None)
    for failing in ({0}, {last}, {last, last // 2}, set(range(world.size))):
        error = ExecutionError(f"no {world.rank}", "R401") if world.rank in failing else None
        found = raised(world, lambda error=error: world.agree_on_error(error))
        assert (type(found), found.code, found.shared) == (ExecutionError, "R401", True)
        assert found.message == f"rank {min(failing)}: no {min(failing)}"
    assert world.failure_flag(None) == 0
    world.raise_if_failed(0, None)

    def fails() -> int:
        if world.rank == last:
            raise UsageError("not so", "E208")
        return world.rank

    assert world.run_on_all(lambda: world.rank) == world.rank
    found = raised(world, lambda: world.run_on_all(fails))
    assert (type(found), str(found), found.shared) == (UsageError, "error[E208]: not so", True)


def check_rank_0(world: World) -> None:
    def only_here() -> int:
        assert world.rank == 0
        return 42

    def fails() -> None:
        raise UsageError("not so")

    def meets_the_system() -> None:
        Path("/dev/null/nothing").read_bytes()

    assert world.run_on_rank_0("count", only_here) == 42
    found = raised(world, lambda: world.run_on_rank_0("count", fails))
    assert (type(found), str(found), found.shared) == (UsageError, "error: not so", True)
    found = raised(world, lambda: world.run_on_rank_0("count", meets_the_system))
    assert (type(found), found.shared) == (ExecutionError, True)
    assert found.message == "rank 0 could not count: /dev/null/nothing: Not a directory"


def check_all(comm: MPI.Intracomm, place: Path, cores: int) -> None:
    """Every method, on ranks that believe to have this many cores."""
    world = make_world(comm, lambda node: cores, job_name(comm))
    assert world.polite == (cores < comm.size)
    assert (world.rank, world.size, world.nodes) == (comm.rank, comm.size, 1)
    assert (world.node.size, world.leaders != MPI.COMM_NULL) == (comm.size, comm.rank == 0)
    check_waiting(world, place)
    check_sending(world, place)
    checks = (
        check_reductions,
        check_gathering,
        check_parts,
        check_exchanging,
        check_distinct_bytes,
        check_sharing,
        check_agreeing,
        check_rank_0,
        check_groups,
    )
    for check in checks:
        check(world)
        world.barrier()
    world.close()


def check_groups(world: World) -> None:
    """A shared file is opened by all, by the ranks of a node or by neighbours; the last of these may be fewer."""
    sizes: list[tuple[Communicator, int]] = [("world", world.size), ("node", world.node.size), (1, 1)]
    sizes.append((2, 2 if world.rank // 2 < world.size // 2 else 1))
    for together, members in [*sizes, (world.size + 1, world.size)]:
        group = file_communicator(world, Access("mpi-independent", communicator=together))
        first = np.array([world.rank])
        group.Bcast(first)
        assert (group.size, int(first[0])) == (members, world.rank - group.rank)
        free_communicator(world, group)
    assert world.comm.size == world.size
    assert world.node.size == world.size
    assert file_communicator(world, Access("posix", communicator=1)) is world.comm


def main(comm: MPI.Intracomm, place: str = "") -> None:
    """Check everything with a directory for marks; without one, let the last rank abort."""
    if not place:
        world = make_world(comm, lambda node: 0, job_name(comm))
        if comm.rank == comm.size - 1:
            world.abort(ExecutionError("no rank comes", "R401"))
        world.barrier()
        return
    check_all(comm, Path(place), 0)
    if comm.size <= 2:
        check_all(comm, Path(place), comm.size)  # seconds, where ranks that spin outnumber cores
    if comm.rank == 0:
        print("the world is whole")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, *sys.argv[1:])
