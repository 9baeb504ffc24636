"""Run by every rank of a job: random sequences of what ranks do together, the same in every way in which they meet.

    mpiexec -n 3 python -m tests.mpi.meeting_program SEQUENCES [FIRST]

Each sequence is drawn from its number, the same on every rank. What each operation has to give is computed by every
rank from what all of them bring, which all of them know; so no way is held against another that may be wrong as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from random import Random
from time import sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.mpi.job_abort import job_name
from dliosim.execute.mpi.world import World, choose_ranks, duplicate_world, make_world, split_world

#: Elements of int64: none, one, few, what one rank reduces for all and one more, a piece of 512 KiB and more.
SIZES = (0, 1, 7, 512, 513, 1 << 16, (1 << 16) + 3)

#: The operations on one world before another is made.
LENGTH = 8


def one_of_two() -> str:
    """Nodes by hand: every third rank is on the second of two, but rank 0 on the first."""
    return str(MPI.COMM_WORLD.rank % 3 == 1)


def worlds(comm: MPI.Intracomm) -> Iterator[World]:
    """One of each way in which ranks can meet."""
    yield make_world(comm, lambda node: 0, job_name(comm))
    yield make_world(comm, lambda node: 0, job_name(comm), one_of_two)
    if comm.size <= 2:  # those that spin need a core each
        yield make_world(comm, lambda node: node.size, job_name(comm))
        yield make_world(comm, lambda node: node.size, job_name(comm), one_of_two)


def numbers(random: Random, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The same on every rank that draws them from the same state."""
    return np.random.default_rng(random.getrandbits(32)).integers(-1000, 1000, size)


def allreduce(world: World, random: Random) -> None:
    size, name = random.choice(SIZES), random.choice(["sum", "min", "max"])
    kind = random.choice([np.int64, np.float32])
    brought = [numbers(random, size).astype(kind) for _ in range(world.size)]
    values = brought[world.rank].copy()
    world.allreduce(values, name)  # type: ignore[arg-type]
    expected = getattr(np.stack(brought), name)(axis=0)
    assert values.dtype == kind
    assert np.array_equal(values, expected), (name, size)


def reduce_and_gather(world: World, random: Random) -> None:
    size = random.choice(SIZES)
    brought = np.stack([numbers(random, size) for _ in range(world.size)])
    reduced, gathered = world.reduce(brought[world.rank], "max"), world.gather(brought[world.rank])
    if world.rank:
        assert reduced is None
        assert gathered is None
    else:
        assert np.array_equal(reduced, brought.max(axis=0))  # type: ignore[arg-type]
        assert np.array_equal(gathered, brought)  # type: ignore[arg-type]


def gather_parts(world: World, random: Random) -> None:
    brought = [numbers(random, random.choice(SIZES)) for _ in range(world.size)]
    # Only rank 0 needs to know what others have.
    lengths = [len(each) if world.rank in (0, rank) else 0 for rank, each in enumerate(brought)]
    parts = world.gather_parts(brought[world.rank], lengths)
    assert (parts is None) == (world.rank > 0)
    for found, expected in zip(parts or (), brought, strict=False):
        assert np.array_equal(found, expected)


def scatter(world: World, random: Random) -> None:
    brought = [numbers(random, random.choice(SIZES)).tobytes() for _ in range(world.size)]
    own = bytearray(len(brought[world.rank]))
    world.ranks.scatter([memoryview(each) for each in brought] if world.rank == 0 else None, memoryview(own))
    assert world.rank == 0 or own == brought[world.rank]


def share(world: World, random: Random) -> None:
    source, size = random.randrange(world.size), random.choice(SIZES)
    value = {"from": source, "what": numbers(random, size).tolist()}
    assert world.broadcast_object(value if world.rank == source else None, source) == value


def broadcast(world: World, random: Random) -> None:
    data = numbers(random, random.choice(SIZES)).tobytes()
    own = bytearray(data) if world.rank == 0 else bytearray(len(data))
    world.ranks.broadcast(memoryview(own))
    assert own == data


def exchange(world: World, random: Random) -> None:
    most = random.choice([0, 1, 5, 9000])
    counts = np.array([[random.randint(0, most) for _ in range(world.size)] for _ in range(world.size)])
    unknown = random.random() < 0.1
    if unknown:
        counts[random.randrange(world.size)] = -1
    # Row i of what s has for t is (s, t, i).
    own = np.maximum(counts[world.rank], 0)
    target = np.repeat(np.arange(world.size), own)
    rows = np.column_stack([np.full(len(target), world.rank), target, np.concatenate([np.arange(n) for n in own])])
    found = world.ranks.alltoall_rows(rows.astype(np.int64), counts[world.rank])
    if unknown:
        assert found is None
        return
    meant = counts[:, world.rank]
    source = np.repeat(np.arange(world.size), meant)
    number = np.concatenate([np.arange(n) for n in meant])
    assert np.array_equal(found, np.column_stack([source, np.full(len(source), world.rank), number]))  # type: ignore[arg-type]


def pass_on(world: World, random: Random) -> None:
    """Some ranks send to some others, whatever rank is late; each to one, and each from one at a time."""
    order = random.sample(range(world.size), world.size)
    size = random.choice(SIZES)
    for source, target in zip(order[::2], order[1::2], strict=False):
        data = numbers(random, size).tobytes()
        late = random.choice([source, target, None])
        if world.rank in (source, target):
            sleep(0.001 * (world.rank == late))
        if world.rank == source:
            world.ranks.send(memoryview(data), target)
        elif world.rank == target:
            found = bytearray(len(data))
            world.ranks.receive(memoryview(found), source)
            assert found == data


def agree(world: World, random: Random) -> None:
    """All ranks raise the error of the lowest one that fails, and continue."""
    failing = {rank for rank in range(world.size) if random.random() < 0.3}
    caught: ExecutionError | None = None
    try:
        world.agree_on_error(ExecutionError(f"no {world.rank}", "R401") if world.rank in failing else None)
    except ExecutionError as error:
        caught = error
    assert (caught is not None) == bool(failing)
    if caught is not None:
        assert caught.shared
        assert caught.message == f"rank {min(failing)}: no {min(failing)}"


def on_rank_0(world: World, random: Random) -> None:
    fails, value, pause = random.random() < 0.3, random.random(), random.choice([0, 0.002])

    def action() -> float:
        sleep(pause)
        if fails:
            raise ExecutionError("not so", "R402")
        return value

    try:
        assert world.run_on_rank_0("try", action) == value
        assert not fails
    except ExecutionError as error:
        assert fails
        assert (error.message, error.shared) == ("not so", True)


def in_parts(world: World, random: Random) -> None:
    """Ranks of one colour reduce and share, in the order of their keys."""
    colours = [random.randrange(2) for _ in range(world.size)]
    keys = random.sample(range(100), world.size)
    mine = sorted((r for r in range(world.size) if colours[r] == colours[world.rank]), key=lambda r: keys[r])
    with split_world(world, colours[world.rank], keys[world.rank], world.polite) as own:
        part = own.ranks
        assert (part.rank, part.size) == (mine.index(world.rank), len(mine))
        values = np.array([world.rank])
        part.allreduce(values, "sum")
        assert values[0] == sum(mine)
        assert part.broadcast_object(world.rank if part.rank == 0 else None) == mine[0]


def some(world: World, random: Random) -> None:
    """Some ranks, evenly over the nodes and with rank 0, are a world that reduces alone."""
    count = random.randint(1, world.size)
    chosen, shares = choose_ranks(world, count)
    values = np.array([chosen, chosen and world.rank == 0], np.int64)
    here = np.array([int(chosen)])
    world.allreduce_on_node(here, "sum")
    most = world.allreduce_number(int(here[0]), "max")
    fewest = world.allreduce_number(int(here[0]) if here[0] < world.node.size else most, "min")
    assert world.allreduce(values, "sum").tolist() == [count, 1]
    assert most - fewest <= 1
    with split_world(world, int(not chosen), world.rank, world.polite) as part:
        assert part.nodes == (min(count, world.nodes) if chosen else part.nodes)
        assert part.allreduce_number(1, "sum") == (count if chosen else world.size - count)
        assert part.run_on_rank_0("say", lambda: world.rank) == part.allreduce_number(world.rank, "min")
    assert shares or most <= len(os.sched_getaffinity(0))


def nodes(world: World, random: Random) -> None:
    """The ranks of each node for themselves, then the first of each."""
    values = np.array([1])
    world.allreduce_on_node(values, "sum")
    assert values[0] == world.node.size
    if world.node.rank == 0:
        world.sum_over_nodes(values)
        assert values[0] == world.size
    world.barrier()


OPERATIONS: tuple[Callable[[World, Random], None], ...] = (
    allreduce,
    reduce_and_gather,
    gather_parts,
    scatter,
    share,
    broadcast,
    exchange,
    pass_on,
    agree,
    on_rank_0,
    nodes,
)


def main(comm: MPI.Intracomm, sequences: str, begin: str = "0") -> None:
    made, first = list(worlds(comm)), int(begin)
    for world in made:
        for number in range(first, first + int(sequences)):
            random = Random(number)
            # Only who waits can be overtaken: each sequence has a rank of its own that is late.
            late = random.randrange(2 * world.size)
            for operation in random.choices(OPERATIONS, k=LENGTH):
                pause = random.choice([0, 0.0005])
                if world.rank == late:
                    sleep(pause)
                try:
                    operation(world, random)
                except AssertionError:
                    print(f"rank {world.rank}: sequence {number}, {operation.__name__}", file=sys.stderr, flush=True)
                    raise
        in_parts(world, Random(first))
        some(world, Random(first))
        copy = duplicate_world(world)
        allreduce(copy, Random(first))
        copy.close()
        copy.comm.Free()
    for world in made:
        world.close()
    if comm.rank == 0:
        print("every sequence gave what it had to")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, *sys.argv[1:])
