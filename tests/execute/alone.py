"""The world of one rank, for tests without a launcher."""

from functools import cache

from mpi4py import MPI

from dliosim.execute.mpi.world import World, make_world


@cache
def world_of_one() -> World:
    """The same each time: a process may have some two thousand communicators, and each world takes two."""
    return make_world(MPI.COMM_SELF, lambda node: 1, "job")
