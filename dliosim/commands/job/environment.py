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
from dliosim.commands.command_line.command_table import DATA_DIRECTORY
from dliosim.execute.backends.registry import list_accesses
from dliosim.execute.mpi.world import NodeLoad
from dliosim.execute.node.environment import find_mount, link_speed, mpi_io, mpi_library
from dliosim.execute.node.memory import available_memory, whole_memory
from dliosim.execute.node.striping import NO_STRIPING, read_striping
from dliosim.execute.phases.context import Session
from dliosim.measure.results.machine import LINK_SPEED, OTHER_MOUNT, RESULTS_ON, SERVER_KINDS, Environment, FileSystem
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


def describe_environment(
    session: Session, node: NodeLoad, phases: Sequence[PhaseSummary], output: str | None
) -> Environment:
    """Return the environment of a run, on rank 0; `node` is the result of `fullest_node`, `output` that of --output."""
    granted = next((dict(phase.hints_granted) for phase in phases if phase.hints_granted), {})
    read = {name for phase in phases if phase.root is not None for name in phase.root.split(", ")}
    below = sorted(read - set(session.roots))
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
            *_describe_network(places),
            (RESULTS_ON, _describe_results(session, Path(output or "."))),
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


def _describe_network(places: Sequence[FileSystem]) -> Iterator[tuple[str, str]]:
    """Yield the speed of the network, if data came over it and the kernel knows it."""
    if any(place.kind.partition(".")[0] in SERVER_KINDS for place in places) and (speed := link_speed()):
        yield LINK_SPEED, f"{speed} Mb/s"


def _describe_results(session: Session, output: Path) -> str:
    """Return whether results go to a file system of the data; a directory that is still to be made counts, too."""
    data = {find_mount(directory).mount_point for directory in session.roots.values()}
    return "the file system of the data" if find_mount(output).mount_point in data else OTHER_MOUNT


def _describe_root(name: str, session: Session) -> FileSystem:
    directory = session.roots[name]
    striped = next((each for each in session.workload.datasets if each.root == name and each.stripe is not None), None)
    striping = read_striping(directory) if striped is None else read_back_striping(session, striped)
    return _describe_mount(name, directory, striping)


def find_disk(datasets: Sequence[Dataset]) -> str:
    """Return the directory of data by default, for data that are in memory elsewhere.

    An empty text if it is in memory, too, perhaps through a link, or if a run makes no files there: `from files`.
    """
    is_no_help = any(one.source for one in datasets) or find_mount(Path(DATA_DIRECTORY)).is_memory_backed
    return "" if is_no_help else DATA_DIRECTORY


def read_back_striping(session: Session, dataset: Dataset) -> str:
    """Return the striping that a file system granted to a data set that asks for it."""
    return read_striping(session.directory(dataset.root, dataset.path, dataset.digest())) or NO_STRIPING


def _describe_mount(name: str, directory: Path, striping: str = "") -> FileSystem:
    mount = find_mount(directory)
    return FileSystem(name, str(directory), mount.kind, mount.options, striping)
