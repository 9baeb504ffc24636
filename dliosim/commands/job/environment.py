"""The facts about machine and libraries that are needed to compare two results."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from mpi4py import MPI
from mpi4py import __version__ as mpi4py_version

from dliosim import __version__
from dliosim.execute.backends.registry import list_accesses
from dliosim.execute.mpi.world import NodeLoad
from dliosim.execute.node.environment import find_mount, mpi_io, mpi_library
from dliosim.execute.node.memory import available_memory, whole_memory
from dliosim.execute.node.striping import NO_STRIPING, read_striping
from dliosim.execute.phases.context import Session
from dliosim.measure.results.machine import Environment, FileSystem
from dliosim.measure.results.phase import PhaseSummary
from dliosim.model import Dataset
from dliosim.model.direct_io import DIRECT_ALIGNMENT
from dliosim.readable import size

#: Variables that change what MPI-IO does: of ROMIO, Intel MPI, Cray MPICH and Open MPI.
_MPI_IO_VARIABLES: Final = (
    *("ROMIO_HINTS", "ROMIO_FSTYPE_FORCE", "ROMIO_PRINT_HINTS"),
    *("I_MPI_EXTRA_FILESYSTEM", "I_MPI_EXTRA_FILESYSTEM_FORCE", "MPICH_MPIIO_HINTS"),
    *("OMPI_MCA_io", "OMPI_MCA_fs_ufs_lock_algorithm", "OMPI_MCA_io_ompio_num_aggregators"),
)


def describe_environment(session: Session, node: NodeLoad, phases: Sequence[PhaseSummary]) -> Environment:
    """Return the environment of a run, on rank 0; `node` is the result of `fullest_node`."""
    granted = next((dict(phase.hints_granted) for phase in phases if phase.hints_granted), {})
    below = sorted({phase.root for phase in phases if phase.root is not None} - set(session.roots))
    if session.modelled is not None:  # its name is no place
        below = []
    places = (  # a mount that data are on comes before the roots: titles name the first place
        *(_describe_mount(name, Path(name.partition(" at ")[2])) for name in below),
        *(_describe_root(name, session) for name in sorted(session.roots)),
    )
    versions = f"dliosim {__version__}, mpi4py {mpi4py_version}, numpy {np.__version__}"
    return Environment(
        mpi_library(),
        node.cores,
        node.ranks,
        available_memory() or 0,
        node.load,
        mpi_io(granted, os.environ),
        places,
        (
            ("versions", f"{versions}, Python {platform.python_version()}"),
            ("kernel", f"{platform.system()} {platform.release()} {platform.machine()}"),
            ("first host", MPI.Get_processor_name()),
            *([("accelerator", session.workload.accelerator)] if session.workload.accelerator else []),
            *_describe_direct_io(session),
            # Variables by which a site changes MPI-IO without a word in the pattern.
            *((name, os.environ[name]) for name in _MPI_IO_VARIABLES if os.environ.get(name)),
        ),
        whole_memory() or 0,
    )


def _describe_direct_io(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the alignment of `cache off` where file systems ask for more than a plan has."""
    asked = max((access.page for access, _ in list_accesses(session.workload)), default=1)
    if asked > DIRECT_ALIGNMENT:
        yield "O_DIRECT", f"calls are widened to {size(asked)}, as a file system asks, and not to 4 KiB as in `plan`"


def _describe_root(name: str, session: Session) -> FileSystem:
    directory = session.roots[name]
    striped = next((each for each in session.workload.datasets if each.root == name and each.stripe is not None), None)
    striping = read_striping(directory) if striped is None else read_back_striping(session, striped)
    return _describe_mount(name, directory, striping)


def read_back_striping(session: Session, dataset: Dataset) -> str:
    """Return the striping that a file system granted to a data set that asks for it."""
    return read_striping(session.directory(dataset.root, dataset.path, dataset.digest())) or NO_STRIPING


def _describe_mount(name: str, directory: Path, striping: str = "") -> FileSystem:
    mount = find_mount(directory)
    return FileSystem(name, str(directory), mount.kind, mount.options, striping)
