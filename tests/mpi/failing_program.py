"""`dliosim` whose reads or writes fail on one rank: METHOD:RANK:CALL:KIND, then the command line of dliosim.

`CALL` counts that rank's calls of the method (`read`, `write` or `end_epoch` of a backend, `start` of a reader process)
from 0; `KIND` is `error`, a failed call as a backend reports it, `shared`, one that all ranks of its communicator
report, `memory`, more of it asked for than there is, or `bug`, an unexpected exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from dliosim import cli
from dliosim.errors import ExecutionError
from dliosim.execute.backends.mpiio_files import IndependentWriter
from dliosim.execute.backends.mpiio_reader import CollectiveReader, IndependentReader
from dliosim.execute.backends.posix import PosixReader, PosixWriter
from dliosim.execute.batches.process_batches import ReaderProcess

CLASSES: dict[str, tuple[type, ...]] = {
    "read": (PosixReader, IndependentReader, CollectiveReader),
    "write": (PosixWriter, IndependentWriter),
    "end_epoch": (CollectiveReader,),
    "start": (ReaderProcess,),
}


def fail(kind: str) -> None:
    """Raise what `KIND` says."""
    if kind == "memory":
        np.empty(1 << 60, np.uint8)
    if kind == "bug":
        raise RuntimeError("a bug in the backend")
    failure = ExecutionError("made to fail on /a/file")
    failure.shared = kind == "shared"
    raise failure


def make_fail(patch: pytest.MonkeyPatch, owner: type, method: str, calls: Iterator[int], last: int, kind: str) -> None:
    """Let a method of a class fail at its call of number `last`."""
    original = getattr(owner, method)

    def attempt(*given: Any) -> Any:
        if next(calls) == last:
            fail(kind)
        return original(*given)

    patch.setattr(owner, method, attempt)


def main(comm: MPI.Intracomm, where: str, *command: str) -> int:
    """Run a command of dliosim in which this rank's calls may fail; its status."""
    method, rank, call, kind = where.split(":")
    with pytest.MonkeyPatch.context() as patch:
        if comm.rank == int(rank):
            calls = count()
            for owner in CLASSES[method]:
                make_fail(patch, owner, method, calls, int(call), kind)
        return cli.main([*command])
