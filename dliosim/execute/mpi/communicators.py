"""The communicators on which ranks open a shared file together (`communicator`)."""

from __future__ import annotations

from mpi4py import MPI

from dliosim.execute.mpi.world import World
from dliosim.model import Access
from dliosim.readable import count


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


def reader_note(access: Access) -> str:
    """Return a note about ranks that open or read for others; empty if all ranks open together and read their own."""
    together = access.communicator
    opening = ""
    if together != "world" and access.is_mpi:
        who = "the ranks of a node" if together == "node" else count(together, "rank")
        opening = "a shared file is opened by " + ("each rank for itself" if together == 1 else f"{who} together")
    reading = "one rank of each node reads for all of its ranks" if access.scatter else ""
    return "; ".join(filter(None, (opening, reading)))
