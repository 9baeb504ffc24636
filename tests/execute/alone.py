"""The world of one rank, and what it finds wrong with checkpoints, for tests without a launcher."""

from functools import cache
from pathlib import Path

from mpi4py import MPI

from dliosim.execute.mpi.world import World, make_world
from dliosim.execute.run.verify import Target, verify_target
from dliosim.execute.store.manifest import load_manifest
from dliosim.report.progress.progress_line import ProgressLine


@cache
def world_of_one() -> World:
    """The same each time: a process may have some two thousand communicators, and each world takes two."""
    return make_world(MPI.COMM_SELF, lambda node: 1, "job")


def checkpoint_faults(directory: Path) -> list[str]:
    """Return what `dliosim verify` finds wrong with a checkpoint; empty if nothing is."""
    try:
        saved = load_manifest(directory)
    except ValueError as error:
        return [str(error)]
    found = verify_target(world_of_one(), ProgressLine(None), Target(directory, "checkpoint", saved))
    return [f"{name} {fault.why}" for name, fault in found.faults.items()]
