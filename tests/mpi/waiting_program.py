"""Run by every rank of a job: tasks, one after the other, each on some of its ranks, counted from rank 0.

A rank reads lines of JSON from a pipe of its own, in which it waits without MPI, so that it costs nothing: `ranks`,
`arguments` of dliosim, or of the function `main` of a `module` (which returns a status or nothing), the `directory` to
be in, `below` which nothing may stay open, variables of the `environment`, and what it says on standard error at its
`end`, since the two streams come by two ways. When those ranks are through with it, rank 0 prints one: `statuses`, what
was `printed` on rank 0, and what ranks have `left` behind in their processes, threads and files.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
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
from dliosim.execute.mpi.world import World, make_world, node_cores
from dliosim.execute.run import workload_runner

#: What a launcher says of this job, which has more ranks than most of those that it is used for, and what MPI and numpy
#: were given as they started.
_OF_THE_START = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "HYDI_", "MPIR_CVAR_", "FI_PROVIDER", "OPENBLAS_")

#: Threads that a run may leave: the one that acts on signals as long as the process lives.
_MAY_STAY = ("MainThread", "signals")


def perform(group: MPI.Intracomm, module: str, arguments: list[str]) -> tuple[int, str]:
    """One command line, or one module's `main`, on these ranks: its status, and what this rank printed."""
    cli._load_comm_world = lambda: group  # type: ignore[assignment]
    printed = io.StringIO()
    with redirect_stdout(printed):
        status = importlib.import_module(module).main(group, *arguments) if module else cli.main(arguments)
    return status or 0, printed.getvalue()


def left_behind(rank: int, below: str) -> tuple[list[str], list[str]]:
    """Threads, and files below a directory that are still open or mapped, of this process, which is of a rank."""
    gc.collect()  # the traceback of an error that was expected may keep a reader, with its files
    threads = [thread.name for thread in threading.enumerate() if thread.name not in _MAY_STAY]
    files = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            files.append(f"{entry.readlink()}")
        except OSError:
            continue  # the one through which the directory is read
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    stay = sorted({name for name in files + mapped if name.startswith(below)})
    return [f"rank {rank}: {one}" for one in threads], [f"rank {rank}: {one}" for one in stay]


def main(comm: MPI.Intracomm, pipes: str) -> None:
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    # By sleeps of 1 ns ranks on one core leave it to each other while MPI waits (MPIR_CVAR_ENABLE_HEAVY_YIELD). Linux
    # makes 50 us of them. Of the 1 us that a run asks for it makes nothing: all would poll, and take 4 times as long.
    workload_runner.set_timer_slack = lambda: None
    for name in [name for name in os.environ if name.startswith(_OF_THE_START)]:
        del os.environ[name]
    groups: dict[int, tuple[MPI.Intracomm, World]] = {}
    with Path(pipes, f"{comm.rank}").open() as tasks:
        for line in tasks:
            task: dict[str, Any] = json.loads(line)
            ranks = task["ranks"]
            if ranks not in groups:
                group = comm.Create_group(comm.group.Incl(range(ranks)))
                groups[ranks] = group, make_world(group, node_cores, "waiting")
            _answer(*groups[ranks], task)


def _answer(group: MPI.Intracomm, world: World, task: dict[str, Any]) -> None:
    """Do a task, and print what became of it."""
    gc.collect()
    gc.freeze()  # each loop looks for garbage, and would look through all modules of the tasks before
    os.chdir(task["directory"])
    os.environ.update(task["environment"])
    status, printed = perform(group, task["module"], task["arguments"])
    os.chdir("/")
    sys.stderr.write(task["end"])
    sys.stderr.flush()
    world.barrier()
    found = group.gather((status, left_behind(group.rank, task["below"])))
    if found is not None:
        statuses = sorted({status for status, _ in found})
        left = [[one for _, behind in found for one in behind[kind]] for kind in (0, 1)]
        print(json.dumps({"statuses": statuses, "printed": printed, "left": left}), flush=True)


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
