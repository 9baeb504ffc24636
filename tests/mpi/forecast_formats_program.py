"""Run by every rank of a job: data sets of every format, written and read as their forecasts say.

Rank 0 prints, as JSON, how many figures it compared and those that differ.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

from mpi4py import MPI

from dliosim.execute.mpi.node_cores import node_cores
from dliosim.execute.mpi.world import make_world
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.formats.protocols import LibraryReadable
from dliosim.formats.registry import bind
from dliosim.model import Access, Dataset, Job, Loop, Prepare, Shuffle, Workload
from dliosim.plan.forecast.forecast import forecast
from dliosim.report.progress.progress_line import ProgressLine
from tests.mpi.forecast_program import Compared, compare
from tests.mpi.formats_program import CASES, LIBRARY, TOGETHER

TRANSFERS = (None, 1000, 1 << 20)
APIS = ("posix", "mpi-independent")
WAYS = {
    "posix": Access(),
    "in pieces": Access(transfer=400),
    "queued": Access(engine="queued", depth=4),
    "mapped": Access(engine="mmap"),
    "independent": Access(api="mpi-independent"),
    "scattered": Access(scatter=True),
    "each": Access(open="each sample"),
    "each in pieces": Access(open="each sample", transfer=700),
}


def loops(described: Dataset) -> list[Loop]:
    ways = WAYS | (TOGETHER if described.layout.files == 1 else {})
    if isinstance(bind(described), LibraryReadable):
        ways = ways | LIBRARY
    made = []
    for name, access in ways.items():
        # In the order of the file, calls continue where those before them ended.
        shuffle = Shuffle() if "each" in name else Shuffle("globally")
        made.append(Loop("train", name, "d", access, batch=4, shuffle=shuffle, last_batch="keep", epochs=2))
    return made


def main(comm: MPI.Intracomm, where: str) -> None:
    directory = Path(where)
    gc.freeze()  # each loop looks for garbage, and would look through all modules
    world = make_world(comm, node_cores, "forecasts")
    compared = Compared()
    for number, (name, described) in enumerate(CASES.items()):
        place = directory / str(number)
        if comm.rank == 0:
            place.mkdir(parents=True)
        comm.Barrier()
        written = Access(api=APIS[number % 2], transfer=TRANSFERS[number % 3])
        verbs = (Prepare("d", written), *loops(described))
        workload = Workload("formats", "", 5, Job(comm.size), (described,), (), verbs)
        phases = run_workload(Session(workload, world, {"data": place}, Options(), ProgressLine(None)))
        if comm.rank == 0:
            planned = forecast(workload).phases
            for phase in phases:
                plans = [plan for plan in planned if plan.name == phase.summary.name]
                compare(plans, phase, compared, f"{name}, {phase.summary.name}")
    world.close()
    if comm.rank == 0:
        print(json.dumps({"marked": compared.marked, "same": compared.same, "differ": compared.differ}))


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
