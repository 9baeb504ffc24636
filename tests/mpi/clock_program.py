"""Run by every rank of a job: nodes of two ranks, whose clocks are 7 s ahead and half as fast again from node to node.

They find out how far their clocks are ahead, to less than a round trip. In the trace of the job no rank leaves a
barrier before all have come to it, also half-way between the two comparisons of clocks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter_ns, sleep
from unittest.mock import patch

from mpi4py import MPI

from dliosim.execute.mpi.world import World, make_world, node_cores
from dliosim.execute.run import trace_recording
from dliosim.trace.cut import TraceCut
from dliosim.trace.file import read_trace

AHEAD, FASTER = 7_000_000_000, 0.5


def node_clock(node: int, since: int) -> int:
    now = perf_counter_ns()
    return now + node * AHEAD + round((now - since) * node * FASTER)


def main(comm: MPI.Intracomm, where: str) -> None:
    folder, node = Path(where), comm.rank // 2
    world = make_world(comm, node_cores, "clocks", lambda: f"node {node}")
    assert world.nodes == -(-comm.size // 2)
    since = comm.bcast(perf_counter_ns())
    with patch.object(trace_recording, "perf_counter_ns", lambda: node_clock(node, since)):
        compare(world, folder, node, since)
    world.close()


def compare(world: World, folder: Path, node: int, since: int) -> None:
    comm = world.comm
    found = trace_recording.compare_clocks(comm)
    wrong = comm.gather(abs(found - node * AHEAD))
    if comm.rank == 0:
        sleep(0.3)  # the others are early, and wait
    with trace_recording.Recording(world, TraceCut(), folder) as recording:
        for number in range(9):
            sleep(0.05)
            for when in "come", "leave":
                now = node_clock(node, since)
                recording._recorder.add_span("phase", f"{when} {number}", now, now)
                if when == "come":
                    comm.Barrier()
        recording.stop()
    recording.write(folder, {})
    if wrong is not None:
        events = read_trace(folder / "trace.h5").events
        begins = events.begin.reshape(comm.size, -1, 2)
        early = int((begins[:, :, 0].max(axis=0) - begins[:, :, 1].min(axis=0)).max())
        agree = max(wrong) < AHEAD // 10 and early < AHEAD // 100
        print("clocks agree" if agree else f"off by {wrong} ns, a rank leaves {early} ns early")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
