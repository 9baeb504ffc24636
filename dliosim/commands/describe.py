"""What must be known of the machine and the libraries to compare two results."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from mpi4py import __version__ as mpi4py_version

from dliosim import __version__
from dliosim.execute.environment import available_memory, file_system, mpi_io, mpi_library, node_cores
from dliosim.execute.session import Session
from dliosim.execute.striping import NO_STRIPING, read_striping
from dliosim.measure.figures import Environment, FileSystem, PhaseSummary


def describe(session: Session, phases: Sequence[PhaseSummary], load: float) -> Environment:
    """The environment of a run, the same on every rank but for rank 0's file systems. Collective.

    `load` is the load average of this rank's node when the run began.
    """
    world = session.world
    # The node with the most ranks for its cores is the one that makes figures doubtful.
    cores, ranks = node_cores(world.node.comm), world.node.size
    most = world.allreduce(np.array([ranks * 1_000_000 // cores], np.int64), "max")
    here = np.array([cores, ranks] if ranks * 1_000_000 // cores == most[0] else [0, 0], np.int64)
    world.allreduce(here, "max")
    loads = world.allreduce(np.array([round(load * 100)], np.int64), "max")
    granted = next((dict(phase.hints_granted) for phase in phases if phase.hints_granted), {})
    places = tuple(_place(name, session) for name in sorted(session.roots)) if world.rank == 0 else ()
    versions = f"dliosim {__version__}, mpi4py {mpi4py_version}, numpy {np.__version__}"
    return Environment(
        mpi_library(),
        int(here[0]),
        int(here[1]),
        available_memory() or 0,
        int(loads[0]) / 100,
        mpi_io(granted, os.environ),
        places,
        (
            ("versions", f"{versions}, Python {platform.python_version()}"),
            ("kernel", f"{platform.system()} {platform.release()} {platform.machine()}"),
            ("first host", MPI.Get_processor_name()),
        ),
    )


def _place(name: str, session: Session) -> FileSystem:
    directory = session.roots[name]
    mount = file_system(directory)
    striped = next((each for each in session.workload.datasets if each.root == name and each.stripe is not None), None)
    path = session.directory(name, striped.path, striped.digest()) if striped is not None else directory
    striping = read_striping(path)
    if striped is not None and not striping:
        striping = NO_STRIPING
    return FileSystem(name, str(directory), mount.kind, mount.options, striping)
