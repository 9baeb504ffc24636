"""Ranks that open a file together, which the last of them never reaches: it waits for a pipe to be opened.

    python -m tests.mpi.stall_program FOLDER NODES

With NODES 2 the last rank is a node of its own. The job ends when nothing has moved for a second.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from mpi4py import MPI

from dliosim.commands.stalls import Watch, watching
from dliosim.execute.mpiio import open_file
from dliosim.execute.watching import Limits
from dliosim.execute.world import World, make_world


def split(world: World, nodes: int) -> World:
    """The world as if its last rank were alone on its node."""
    if nodes == 1:
        return world
    last = world.rank == world.size - 1
    node = MPI.Intracomm(world.comm.Split(last))
    leaders = MPI.Intracomm(world.comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, world.rank))
    return replace(world, node=node, leaders=leaders, nodes=2)


def main(folder: Path, nodes: int) -> None:
    comm = MPI.Intracomm(MPI.COMM_WORLD)
    world = split(make_world(comm, lambda node: 1, f"stalls{folder.name}"), nodes)
    with watching(world, Watch(Limits(1.0, 1.5), str(folder)), lambda name: f"there is nothing to keep of {name}"):
        if world.rank == world.size - 1:
            (folder / "pipe").read_bytes()
        open_file(comm, str(folder / "data"), MPI.MODE_RDONLY, ())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
