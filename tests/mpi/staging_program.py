"""`dliosim` on ranks that are on two nodes by their names: the first half on `left`, the others on `right`.

An argument before the command line is the name of a file: on `right` it cannot be written. It is `-` for none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mpi4py import MPI

from dliosim import cli
from dliosim.commands.job import mpi_entry
from dliosim.errors import ExecutionError
from dliosim.execute.mpi.world import make_world
from dliosim.execute.run import staging


def main(comm: MPI.Intracomm, broken: str, *command: str) -> int:
    """Run a command of dliosim on two nodes; its status."""
    node = "left" if comm.rank < (comm.size + 1) // 2 else "right"
    copy: Callable[..., int] = staging.copy_file

    def copy_file(source: Path, target: Path, *more: Any) -> int:
        if node == "right" and target.name == broken:
            raise ExecutionError(f"pwrite failed on {target}: No space left on device", "R402")
        return copy(source, target, *more)

    with (
        patch.object(mpi_entry, "make_world", partial(make_world, node_of=lambda: node)),
        patch.object(staging, "copy_file", copy_file),
    ):
        return cli.main([*command])
