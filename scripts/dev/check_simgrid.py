#!/usr/bin/env python
"""Compare epochs in virtual time with SimGrid, a simulator of others, which goes from event to event.

    python scripts/dev/check_simgrid.py [--cases 20] [--seed 1]

SimGrid is not installed with dliosim: `pip install simgrid` builds it from its source, with CMake and Boost. Each case
is an epoch on a storage without chance: each server and client node is a host of SimGrid that serves one request at a
time, each reader an actor. The output is a markdown table; the status is 1 if an epoch differs by more than 2 %.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from dataclasses import dataclass, replace

from harness import header, row

from dliosim.model import Access, Compute, Dataset, Job, Layout, Loop, Servers, StorageModel, Sync, constant
from dliosim.plan.predict.virtual_epoch import StepDemand, run_epoch

#: The share by which an epoch may differ.
_SHARE = 0.02

#: Files of a sample each: more than any case reads.
_FILES = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """An epoch without chance; seconds and bytes."""

    ranks: int
    nodes: int
    servers: int
    rate: float
    client: float | None
    latency: float
    size: float
    readers: int
    ahead: int
    compute: float
    steps: int
    has_barrier: bool


def draw_case(seed: int) -> Case:
    """Return a case by its seed."""
    drawn = random.Random(seed)
    nodes, readers = drawn.choice([1, 2]), drawn.choice([0, 1, 2, 3])
    size = drawn.choice([0.2, 0.5, 1.1, 2.3]) * 1e6
    return Case(
        nodes * drawn.choice([1, 2, 3]),
        nodes,
        drawn.choice([1, 2, 3, 4]),
        drawn.choice([20e6, 50e6, 110e6]),
        drawn.choice([None, 40e6, 90e6]),
        drawn.choice([1e-3, 7e-3]),
        size,
        readers,
        readers * drawn.choice([1, 2]),
        drawn.choice([5e-3, 23e-3]),
        drawn.choice([20, 60]),
        drawn.random() < 0.7,
    )


def predict(case: Case) -> float:
    """Return the seconds of the epoch in virtual time."""
    access = Access(readers=case.readers, prefetch=case.ahead)
    loop = Loop("train", "l", "d", access, compute=Compute(constant(case.compute)))
    if not case.has_barrier:
        loop = replace(loop, sync=Sync("off"))
    dataset = Dataset("d", 1, _FILES, constant(case.size), Layout("files", _FILES, 1), "d")
    storage = StorageModel("s", Servers(case.servers, case.rate), client=case.client, latency=case.latency)
    job = Job(case.ranks, case.nodes)
    demand = StepDemand(loop, dataset, job, case.ranks // case.nodes, case.size, 1, 0, 1)
    times = run_epoch(demand, case.steps, storage, 0)
    return times.first + times.others


def simulate(case: Case) -> float:
    """Return the seconds of the epoch by SimGrid, which one process can start once."""
    from simgrid import Barrier, Engine, Semaphore, this_actor  # only this needs it

    engine = Engine(["check_simgrid", "--log=root.thres:warning"])
    zone = engine.netzone_root

    servers = [zone.add_host(f"server {number}", case.rate) for number in range(case.servers)]
    clients = [zone.add_host(f"client {number}", case.client) for number in range(case.nodes)] if case.client else []
    cores = [zone.add_host(f"rank {rank}", 1e9) for rank in range(case.ranks)]
    zone.seal()
    for queue in (*servers, *clients):
        queue.concurrency_limit = 1  # what comes later waits
    barrier = Barrier(case.ranks)

    def read(rank: int, step: int) -> None:
        hosts = [servers[(step * case.ranks + rank) % case.servers]]
        hosts += [clients[rank * case.nodes // case.ranks]] if clients else []
        served = []
        for host in hosts:
            activity = this_actor.exec_init(case.size)
            activity.host = host
            served.append(activity.start())
        for activity in served:
            activity.wait()
        this_actor.sleep_for(case.latency)

    def read_ahead(rank: int, order: list[int], room: Semaphore, there: list[Semaphore]) -> None:
        while True:
            room.acquire()
            if not order:
                return
            step = order.pop(0)
            read(rank, step)
            there[step].release()

    def train(rank: int) -> None:
        room, there = Semaphore(case.ahead), [Semaphore(0) for _ in range(case.steps)]
        order = list(range(case.steps))
        readers = [
            cores[rank].add_actor(f"reader {number} of {rank}", read_ahead, rank, order, room, there)
            for number in range(case.readers)
        ]
        for step in range(case.steps):
            if readers:
                there[step].acquire()
                room.release()
            else:
                read(rank, step)
            this_actor.sleep_for(case.compute)
            if case.has_barrier:
                barrier.wait()
        for _ in readers:
            room.release()

    for rank in range(case.ranks):
        cores[rank].add_actor(f"rank {rank}", train, rank)
    engine.run()
    clock: float = Engine.clock
    return clock


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20, help="how many cases")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next number")
    parser.add_argument("--simulate", type=int, metavar="SEED", help="print the seconds of one case by SimGrid")
    given = parser.parse_args()
    if given.simulate is not None:
        print(simulate(draw_case(given.simulate)))
        return 0
    header("case", "ranks", "servers", "readers", "barrier", "virtual time", "SimGrid", "ratio", "")
    agreed = 0
    for seed in range(given.seed, given.seed + given.cases):
        case, command = draw_case(seed), [sys.executable, __file__, "--simulate", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        simulated, predicted = float(done.stdout.split()[-1]), predict(case)
        agrees = abs(predicted / simulated - 1) <= _SHARE
        agreed += agrees
        shown = f"{predicted:.4f} s", f"{simulated:.4f} s", f"{predicted / simulated:.4f}", "" if agrees else "**no**"
        row(seed, case.ranks, case.servers, case.readers, "yes" if case.has_barrier else "no", *shown)
    print(f"\n{agreed} of {given.cases} agree")
    return int(agreed < given.cases)


if __name__ == "__main__":
    sys.exit(main())
