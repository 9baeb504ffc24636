"""Which ranks open a shared file together (`communicator`)."""

from __future__ import annotations

from mpi4py import MPI

from dliosim.execute.world import World
from dliosim.model import Access


def group_of(world: World, access: Access) -> MPI.Intracomm:
    """The communicator on which this rank opens a shared file; to be given back by `free_group`. Collective.

    With `scatter` those who read open it, and the others have COMM_NULL.
    """
    together = access.communicator
    reads = not access.scatter or world.node.rank == 0
    if together == "world" or access.api == "posix":
        return world.leaders if access.scatter else world.comm
    if together == "node":
        return MPI.Intracomm(MPI.COMM_SELF if reads else MPI.COMM_NULL) if access.scatter else world.node
    return MPI.Intracomm(world.comm.Split(world.rank // together if reads else MPI.UNDEFINED, world.rank))


def free_group(world: World, comm: MPI.Intracomm) -> None:
    """Free what `group_of` made, once nothing is open on it. Collective over `comm`."""
    if comm not in (world.comm, world.node, world.leaders, MPI.COMM_SELF, MPI.COMM_NULL):
        comm.Free()
