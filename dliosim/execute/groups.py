"""Which ranks open a shared file together (`communicator`)."""

from __future__ import annotations

from mpi4py import MPI

from dliosim.execute.world import World
from dliosim.model import Access


def group_of(world: World, access: Access) -> MPI.Intracomm:
    """The communicator on which this rank opens a shared file; to be given back by `free_group`. Collective."""
    together = access.communicator
    if together == "world" or access.api == "posix":
        return world.comm
    if together == "node":
        return world.node
    return MPI.Intracomm(world.comm.Split(world.rank // together, world.rank))


def free_group(world: World, comm: MPI.Intracomm) -> None:
    """Free what `group_of` made, once nothing is open on it. Collective over `comm`."""
    if comm is not world.comm and comm is not world.node:
        comm.Free()
