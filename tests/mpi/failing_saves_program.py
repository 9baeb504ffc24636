"""Run by every rank of a job: saves in which one call after the other finds no room, on the last rank.

The directory is the first argument. tests/mpi/failing_calls.c is loaded before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.mpi.world import World, make_world
from dliosim.execute.node.environment import mpi_library
from dliosim.model import Checkpoint, Writers
from tests.mpi.saving_program import STAGED, session

#: What fails, and what a message calls it.
CALLS = {
    "create": ("open", "MPI_File_open"),
    "write": ("write", "pwrite", "MPI_File_write_at"),
    "fsync": ("fsync", "MPI_File_sync"),
    "close": ("close", "MPI_File_close", "MPI_File_open"),
    "mkdir": ("mkdir",),
    "rename": ("rename",),
}

#: What may fail unseen in a library's MPI-IO: OMPIO ignores a failed close, Intel MPI opens a file twice to make it.
UNREPORTED = {"Open MPI": "close", "Intel": "create"}


def ways(ranks: int) -> Iterator[Checkpoint]:
    """Checkpoints of other names, each saved in another way; none ends the job where it fails."""
    blocking = replace(STAGED, background=None, keep=1)
    yield replace(blocking, name="rename", folder=1, metadata=True, drain="local", partner=None if ranks == 1 else 1)
    yield replace(blocking, name="manifest", commit="metadata")
    yield replace(blocking, name="none", commit="none", fsync=False)
    mpi = replace(blocking.access, api="mpi-independent")
    yield replace(blocking, name="shared", writers=Writers("shared file"), access=mpi)


def saved(world: World, place: Path, checkpoint: Checkpoint) -> str:
    """Return the error of the second of two saves; empty where it does not fail."""
    saving = session(world, place, checkpoint)
    try:
        with CheckpointSession(saving, [checkpoint]) as saves:
            saves.save(checkpoint)
            saves.finish()
            world.barrier()
            count()
            os.environ["FAIL_CALL"] = os.environ["FAIL_NEXT"]
            saves.save(checkpoint)
    except DliosimError as error:
        return f"[{error.code}] {error.message}"
    finally:
        os.environ["FAIL_CALL"] = ""
        saving.stores.release()
    return ""


def main() -> None:
    """Fail each call of each way on the last rank, and check its error."""
    unreported = next((call for name, call in UNREPORTED.items() if mpi_library().startswith(name)), "")
    os.environ |= {"FAIL_RANK": str(MPI.COMM_WORLD.size - 1), "FAIL_TIMES": "1", "FAIL_ERRNO": str(errno.ENOSPC)}
    world = make_world(MPI.COMM_WORLD, lambda node: 1, "test")
    tried = 0
    for checkpoint in ways(world.size):
        for call, names in CALLS.items():
            if checkpoint.access.is_mpi and call == unreported:
                continue
            number = failed = 1
            while failed:
                place = Path(sys.argv[1]) / f"{checkpoint.name}-{call}-{number}"
                os.environ |= {"FAIL_NEXT": call, "FAIL_PATH": str(place), "FAIL_FROM": str(number)}
                text = saved(world, place, checkpoint)
                failed = int(world.allreduce(np.array([count()], np.int64), "max")[0])
                case = f"{place.name} on {world.rank}: {text!r}"
                assert bool(text) == bool(failed), case
                if failed:
                    assert text.startswith("[R402] ") and str(place) in text, case
                    assert any(f"{name} " in text for name in names), case
                tried += failed
                number += 1
    if world.rank == 0:
        print("tried", tried)


count = ctypes.CDLL(None).count_again

if __name__ == "__main__":
    main()
