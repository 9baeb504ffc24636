"""Run by every rank of a job: each records many calls; one rank cannot set them aside, or read or write them again.

The rank's number, what fails there, and a folder are arguments. Rank 0 prints the error of each rank.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute.mpi.world import make_world, node_cores
from dliosim.execute.run.trace_recording import Recording
from dliosim.measure.progress.board import process_row
from dliosim.trace import columns
from dliosim.trace.columns import CALL_COLUMNS, CHUNK_ROWS
from dliosim.trace.cut import TraceCut

#: The memory for chunks: so little that nearly all are set aside.
KEPT = 100_000


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def main(comm: MPI.Intracomm, rank: str, what: str, where: str) -> None:
    usual, columns._KEPT = columns._KEPT, KEPT
    try:
        record(comm, int(rank), what, Path(where))
    finally:
        columns._KEPT = usual
        limit_files(resource.RLIM_INFINITY)
        gc.collect()  # an error and what it was raised in hold each other, and the file without a name


def record(comm: MPI.Intracomm, failing: int, what: str, folder: Path) -> None:
    world = make_world(comm, node_cores, "trace")
    draw = np.random.default_rng(comm.rank)
    with Recording(world, TraceCut(), folder) as recording:
        buffer = recording._recorder.calls
        recording._recorder.files |= {f"file {number}": number for number in range(20)}
        if comm.rank == failing and what == "spill":
            limit_files(300_000)
        for _ in range(2 + comm.rank):
            buffer.add({name: draw.integers(0, 20, CHUNK_ROWS) for name in CALL_COLUMNS})
            buffer.compress()
        recording.stop()
    is_open = buffer.spill._file is not None
    if comm.rank == failing and what == "read":
        assert buffer.spill._file is not None
        os.ftruncate(buffer.spill._file.fileno(), 200_000)
    if comm.rank == failing and what in ("begin", "write"):
        limit_files(3_000 if what == "begin" else 1_000_000)
    try:
        outcome = recording.write(folder, {})
    except DliosimError as error:
        outcome = str(error) if error.shared else f"not shared: {error}"
    limit_files(resource.RLIM_INFINITY)
    if failing < 0:
        row = process_row()
        assert row.phase == "writing the trace"
        assert row.bytes_done >= buffer.stored
    outcomes, still_open = comm.gather(outcome), comm.gather(is_open)
    if still_open is not None and what == "spill":
        assert not any(still_open), "the results may need the room"
    if outcomes is not None:
        print(*outcomes, sorted(path.name for path in folder.iterdir()), sep="\n")
    world.close()


if __name__ == "__main__":
    main(MPI.COMM_WORLD, *sys.argv[1:])
