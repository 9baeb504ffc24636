"""Run by every rank of a job: command lines of dliosim, one after the other, each on the first so many ranks.

Rank 0 reads a line of JSON for each from its standard input: `ranks` and `arguments`. When all ranks are through with
it, it prints one: `status`, what was `printed` on rank 0, and what ranks have `left` behind in their processes.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import signal
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dliosim import cli
from dliosim.execute.environment import node_cores
from dliosim.execute.world import World, make_world

#: What a launcher says of this job, which has more ranks than most of those that it is used for.
_OF_A_LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "HYDI_")

#: Threads that a run may leave: the one that acts on signals as long as the process lives.
_MAY_STAY = ("MainThread", "signals")


def perform(group: MPI.Intracomm, arguments: list[str]) -> tuple[int, str]:
    """One command line on the ranks of a communicator: its status, and what this rank printed."""
    cli._world = lambda: group  # type: ignore[assignment]
    printed = io.StringIO()
    with redirect_stdout(printed):
        status = cli.main(arguments)
    return status, printed.getvalue()


def left_behind(below: str) -> list[str]:
    """Threads, and files below a directory that are still open or mapped, of this process."""
    threads = [thread.name for thread in threading.enumerate() if thread.name not in _MAY_STAY]
    files = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            files.append(f"{entry.readlink()}")
        except OSError:
            continue  # the one through which the directory is read
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return threads + sorted({name for name in files + mapped if name.startswith(below)})


def main(comm: MPI.Intracomm) -> None:
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    for name in [name for name in os.environ if name.startswith(_OF_A_LAUNCHER)]:
        del os.environ[name]
    world: World = make_world(comm, node_cores, "waiting")
    groups: dict[int, MPI.Intracomm] = {}
    while True:
        line = sys.stdin.readline() if comm.rank == 0 else None
        task: dict[str, Any] | None = world.share(json.loads(line) if line else None)
        if task is None:
            return
        ranks = task["ranks"]
        if ranks not in groups:
            groups[ranks] = comm.Split(0 if comm.rank < ranks else 1, comm.rank)
        done = 0, ""
        if comm.rank < ranks:
            done = perform(groups[ranks], task["arguments"])
        world.barrier()
        found = comm.gather((done[0], left_behind(task["below"])))
        if found is not None:
            statuses = sorted({status for status, _ in found[:ranks]})
            left = [f"rank {rank}: {one}" for rank, (_, several) in enumerate(found) for one in several]
            print(json.dumps({"statuses": statuses, "printed": done[1], "left": left}), flush=True)


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
