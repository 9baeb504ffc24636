"""The cost of ranks waiting for each other, as markdown rows; to be run by mpiexec, on any number of ranks.

    mpiexec -n 8 python scripts/dev/bench_waits.py [--step 0.0035] [--megabytes 0.1 1 10] [--part 195000]

For each: the sync after a step (a barrier that carries failures and the end of the time), its share of the time of
steps that sleep for `step` seconds, an allreduce of `megabytes` MB after a step, and gathering `part` bytes of each
rank on rank 0. Medians over the repetitions, of the rank that waited least and of all ranks. PYTHONPATH names another
tree to be measured in turn.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from harness import orderly
from mpi4py import MPI

from dliosim.execute.loop.loop_saves import StepSync
from dliosim.execute.mpi.job_abort import job_name
from dliosim.execute.mpi.world import World, make_world, node_cores
from dliosim.model import Sync


def measure(world: World, step: float, repetitions: int, action: Callable[[], object]) -> tuple[float, float, float]:
    """Run steps of a sleep and an action; return medians of its least and mean duration, and its share of all."""
    action()
    took = np.zeros(repetitions)
    world.barrier()
    begun = time.perf_counter()
    for number in range(repetitions):
        if step:
            time.sleep(step)
        before = time.perf_counter()
        action()
        took[number] = time.perf_counter() - before
    whole = time.perf_counter() - begun
    rows = world.gather(np.append(took, whole))
    if rows is None:
        return 0.0, 0.0, 0.0
    waits = rows[:, :-1]
    share = float(waits.sum(axis=1).mean() / rows[:, -1].mean())
    return float(np.median(waits.min(axis=0))), float(np.median(waits.mean(axis=0))), share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=float, default=0.0035, help="seconds of a step")
    parser.add_argument("--megabytes", type=float, nargs="*", default=[0.1, 1, 10], help="sizes of the allreduce")
    parser.add_argument("--part", type=int, default=195_000, help="bytes of each rank that rank 0 gathers")
    parser.add_argument("--repetitions", type=int, default=100)
    given = parser.parse_args()
    comm = MPI.COMM_WORLD
    world = make_world(comm, node_cores, job_name(comm))
    start = f"| {world.size} ranks, {os.cpu_count()} cores |"

    def tell(what: str, step: float, repetitions: int, action: Callable[[], object]) -> None:
        least, mean, share = measure(world, step, repetitions, action)
        if world.rank == 0:
            print(f"{start} {what} | {least * 1e3:.3f} | {mean * 1e3:.3f} | {share:.0%} |", flush=True)

    if world.rank == 0:
        print("| job | what | least wait of any rank, ms | mean, ms | share of the time |")
        print("|---|---|---|---|---|")
    syncer = StepSync(world, Sync("barrier"), False)
    tell("exchange, back to back", 0.0, given.repetitions, lambda: syncer.sync_step(False))
    tell(f"exchange after {given.step * 1e3:g} ms", given.step, given.repetitions, lambda: syncer.sync_step(False))
    for megabytes in given.megabytes:
        reducer = StepSync(world, Sync("allreduce", size=round(megabytes * 1e6)), False)
        few = max(3, given.repetitions // 5)
        tell(f"allreduce of {megabytes:g} MB", given.step, few, lambda reducer=reducer: reducer.exchange(False))  # type: ignore[misc]
    part = np.zeros(given.part // 8, np.int64)
    lengths = [len(part)] * world.size
    tell(f"gather of {given.part} B a rank", 0.0, 3, lambda: (world.gather_parts(part, lengths), world.barrier()))


if __name__ == "__main__":
    orderly(main)
