"""Run by every rank of a job: what a world's operations give, and by which calls, whether waits are polite or not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI

from dliosim.execute.world import LARGE, World, make_world

SMALL, BIG = 8, LARGE + 8
CALLS = {"allreduce": "allreduce", "reduce": "reduce", "gather": "gather", "share": "bcast"}


class Recorded:
    """A communicator that keeps the names of the operations called."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.comm, name)
        if not callable(found):
            return found

        def call(*given: Any) -> Any:
            self.called.append(name)
            return found(*given)

        return call


def given(world: World, size: int) -> np.ndarray[Any, Any]:
    """Other values on every rank."""
    return np.arange(size // 8, dtype=np.int64) + 1000 * world.rank


def check_result(world: World, name: str, size: int) -> None:
    """What an operation gives on each rank."""
    everyone = np.stack([np.arange(size // 8) + 1000 * rank for rank in range(world.size)])
    values = given(world, size)
    if name == "share":
        last = world.size - 1
        assert np.array_equal(world.share(values if world.rank == last else None, last), everyone[last])  # type: ignore[arg-type]
    elif name == "gather":
        found = world.gather(values)
        assert np.array_equal(found, everyone) if world.rank == 0 else found is None  # type: ignore[arg-type]
    elif name == "reduce":
        found = world.reduce(values, "max")
        assert np.array_equal(found, everyone[-1]) if world.rank == 0 else found is None  # type: ignore[arg-type]
    else:
        assert np.array_equal(world.allreduce(values, "sum"), everyone.sum(axis=0))


def check_calls(polite: bool, name: str, size: int, calls: list[str]) -> None:
    """Small operations are begun and waited for; of large ones only the meeting before them is."""
    call = CALLS[name]
    if not polite:
        assert {each.lower() for each in calls} == {call}, calls
        assert not any(each.startswith("I") for each in calls), calls
    elif size == BIG:
        assert calls[-2:] == ["Ibarrier", call.capitalize()], calls
    else:
        assert set(calls) == {f"I{call}"}, calls


def main(comm: MPI.Intracomm) -> None:
    cores: list[Callable[[MPI.Intracomm], int]] = [lambda node: node.size, lambda node: 0]
    for cores_of, name, size in product(cores, CALLS, (SMALL, BIG)):
        made = make_world(comm, cores_of, "job")
        recorded = Recorded(comm)
        world = World(recorded, made.node, made.leaders, made.nodes, made.polite, made.job)  # type: ignore[arg-type]
        check_result(world, name, size)
        check_calls(made.polite, name, size, recorded.called)
    comm.Barrier()
    if comm.rank == 0:
        print("all is as it should be")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
