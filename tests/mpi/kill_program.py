"""`dliosim` that is killed while it saves: KIND:RANK:CALL:HOW and a file, then the command line of dliosim.

`CALL` counts that rank's calls of a kind from 0, since the job began to save: `stage` (contents made), `write` (half of
which is done), `sync`, `rename`, `make` (directories) or `delete` (files and directories); `never` is none of them.
Before that call the rank is killed (`HOW` is `one`), or all ranks of the job are (`all`); or the call finds no room on
the disk (`full`), and all later ones neither. To the file goes a line for each checkpoint that is read, its number; the
last one is that which was restored.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dliosim import cli
from dliosim.execute.backends.mpiio_files import IndependentWriter
from dliosim.execute.backends.posix import PosixWriter
from dliosim.execute.checkpoints.selection import CheckpointSearch, FoundCheckpoint
from dliosim.execute.payload import sample_bytes
from dliosim.execute.store.checkpoint_store import CheckpointStore

CALLS = {
    "write": ("pwrite", "pwritev"),
    "sync": ("fsync",),
    "rename": ("rename", "replace"),
    "make": ("mkdir",),
    "delete": ("unlink", "rmdir"),
}


class Killer:
    """Counts calls down to the one before which processes are killed; only while it is `armed`.

    Without any to kill the disk is full from that call on.
    """

    def __init__(self, call: int, victims: list[int]) -> None:
        self.armed = True
        self.victims = victims
        self._left = call

    def is_due(self) -> bool:
        """Return True if this call is the one."""
        self._left -= self.armed
        return self._left < 0

    def kill(self) -> None:
        """End the victims, this rank the last of them."""
        for process in self.victims:
            os.kill(process, signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, but for the call that is never made."""

        def attempt(*given: Any, **named: Any) -> Any:
            if self.is_due():
                self.kill()
            return original(*given, **named)

        return attempt

    def half_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A writer's `write`, of whose last call only one half is done."""

        def attempt(writer: Any, offset: int, data: memoryview) -> Any:
            if self.is_due():
                original(writer, offset, data[: len(data) // 2])
                self.kill()
            return original(writer, offset, data)

        return attempt


def everywhere(function: Callable[..., Any], replaced: Callable[..., Any]) -> None:
    """Replace a function of dliosim in every module that has it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("dliosim.") and getattr(module, function.__name__, None) is function:
            setattr(module, function.__name__, replaced)


def watch(kind: str, killer: Killer) -> None:
    """Have the killer see all calls of a kind."""
    if kind == "stage":
        everywhere(sample_bytes.fill_range, killer.before(sample_bytes.fill_range))
    elif kind == "write" and killer.victims:
        for owner in (PosixWriter, IndependentWriter):
            owner.write = killer.half_of(owner.write)  # type: ignore[method-assign]
    else:
        for name in CALLS[kind]:
            setattr(os, name, killer.before(getattr(os, name)))


def arm_when_saving(killer: Killer) -> None:
    """Rank 0 also makes, renames and removes what is no checkpoint, before and after it saves."""
    begin = CheckpointStore.begin
    killer.armed = False

    def armed(*given: Any) -> Any:
        killer.armed = True
        return begin(*given)

    CheckpointStore.begin = armed  # type: ignore[method-assign]


def say_what_is_read(record: Path) -> None:
    """Write down the number of each checkpoint that is about to be read."""
    find = CheckpointSearch.find

    def telling(newest: CheckpointSearch) -> FoundCheckpoint:
        found = find(newest)
        with record.open("a") as stream:
            stream.write(f"{found.number}\n")
        return found

    CheckpointSearch.find = telling  # type: ignore[method-assign]


def main(comm: MPI.Intracomm, record: str, *command: str) -> int:
    """One job that is never killed, on ranks that wait for such."""
    find = CheckpointSearch.find
    say_what_is_read(Path(record))
    try:
        return cli.main([*command])
    finally:
        CheckpointSearch.find = find  # type: ignore[method-assign]


if __name__ == "__main__":
    kind, rank, call, how = sys.argv[1].split(":")
    comm = MPI.COMM_WORLD
    pids = comm.allgather(os.getpid())
    say_what_is_read(Path(sys.argv[2]))
    if kind != "never" and comm.rank == int(rank):
        others = [pid for pid in pids if pid != os.getpid()]
        victims = {"one": [os.getpid()], "all": [*others, os.getpid()], "full": []}
        killer = Killer(int(call), victims[how])
        watch(kind, killer)
        if comm.rank == 0:
            arm_when_saving(killer)
    sys.exit(cli.main(sys.argv[3:]))
