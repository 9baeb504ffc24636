"""Run by each rank, with the toy package installed: the shipped checks on what it brings."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.extend import (
    Dataset,
    Distribution,
    Dressed,
    Framed,
    Layout,
    Shape,
    backend_names,
    backend_of,
    bind,
    check_backend,
    check_damage,
    check_framed,
    constant,
    format_names,
)


def check_format(directory: Path) -> None:
    sizes = np.array([5, 0, 700, 1])
    varying = Dataset("d", 1, 4, Distribution("uniform", (0.0, 700.0)), Layout("shared file", 1), "d", format="blocks")
    ascii_only = Dataset(
        "d", 1, 4, constant(9.0), Layout("shared file", 1), "d", format="blocks", shape=Shape((9,), "int8")
    )
    for dataset, held in [(varying, sizes), (ascii_only, np.full(4, 9))]:
        form, path = bind(dataset), directory / "d.blocks"
        assert isinstance(form, Framed)
        assert isinstance(form, Dressed) == (dataset is ascii_only)
        check_framed(form, held, path)
        check_damage(form, path)


def main(comm: MPI.Intracomm, directory: Path) -> None:
    assert "blocks" in format_names()
    assert "mirror" in backend_names()
    if comm.rank == 0:
        check_format(directory)
    check_backend(backend_of("mirror"), directory, comm)
    comm.Barrier()
    if comm.rank == 0:
        print("the contract is kept")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, Path(sys.argv[1]))
