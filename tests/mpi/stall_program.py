"""Ranks that meet, which the last one never reaches: it alone opens FOLDER/pipe.

    python -m tests.mpi.stall_program FOLDER open|exchange

`open`: they open FOLDER/data together, and the last rank is a node of its own. `exchange`: they are one node, whose
ranks add up numbers. The job ends when nothing has moved for a second and a half.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.commands.job.mpi_entry import watch_stalls
from dliosim.execute.backends.mpiio_files import open_file
from dliosim.execute.mpi.world import make_world
from dliosim.execute.stalls import StallLimits


def main(folder: Path, meeting: str) -> None:
    comm = MPI.Intracomm(MPI.COMM_WORLD)
    alone = str(meeting == "open" and comm.rank == comm.size - 1)
    world = make_world(comm, lambda node: 1, f"stalls{folder.name}", lambda: alone)
    with watch_stalls(world, StallLimits(1.0, 1.5), lambda name: f"there is nothing to keep of {name}"):
        if world.rank == world.size - 1:
            (folder / "pipe").read_bytes()
        if meeting == "exchange":
            world.allreduce_on_node(np.ones(1), "sum")
        open_file(comm, str(folder / "data"), MPI.MODE_RDONLY, ())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
