"""Saves against plain writes of the same bytes, in pairs, as markdown rows.

    python scripts/dev/bench_checkpoints.py --place DIRECTORY [--pairs 9] [--size 256] [--ranks 2] [--only TEXT]

Each case saves a checkpoint of SIZE MiB a rank, in calls of 4 MiB, synced, with a manifest and renamed. For each save
every rank also writes the same number of bytes in the same calls out of one ready buffer with os.pwrite, and syncs (as
`dd bs=4M conv=fsync` does). The two take turns at going first. The time of the slowest rank is compared. The time of
making contents, for each call of a save, is not included. For an asynchronous save the stall is compared with a
blocking save of the same bytes. The first pair is dropped.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from bench_run import Silence
from harness import header, middle, orderly, row, run_ranks, scratch
from mpi4py import MPI

from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.mpi.world import World, make_world, node_cores
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.model import Access, Background, Checkpoint, Job, Part, Workload, Writers

MIB = 1 << 20
TRANSFER = 4 * MIB


@dataclass(frozen=True)
class Case:
    """One row: how a checkpoint is saved, and what is asked of the ratio to plain writes."""

    title: str
    writers: Writers
    api: str
    limit: str = "0.9"
    transfer: int | None = TRANSFER
    hints: tuple[tuple[str, str], ...] = ()


NO_AGGREGATION = (("romio_cb_write", "disable"), ("romio_ds_write", "disable"))


CASES = [
    Case("file per rank, posix", Writers("file per rank"), "posix"),
    Case("file per rank, mpi-independent", Writers("file per rank"), "mpi-independent", ""),
    Case("shared file, mpi-collective, library's hints", Writers("shared file"), "mpi-collective"),
    Case("the same, one call a rank", Writers("shared file"), "mpi-collective", "", None),
    Case("the same, no-aggregation", Writers("shared file"), "mpi-collective", hints=NO_AGGREGATION),
    Case("shared file, mpi-independent", Writers("shared file"), "mpi-independent", ""),
    Case("shared file, posix", Writers("shared file"), "posix", ""),
    Case("rank 0 alone", Writers("rank", 0), "posix", ""),
]


def plain_writes(path: Path, first: int, size: int, buffer: memoryview) -> None:
    """Write `size` bytes at `first` of a file, in calls of the buffer's length, and fsync."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        for offset in range(first, first + size, len(buffer)):
            os.pwrite(descriptor, buffer, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def time_plain_writes(world: World, writers: Writers, place: Path, size: int, buffer: memoryview) -> float:
    """Return the seconds of the slowest rank for writing what a save writes, to new files of the same sizes."""
    shared = writers.kind == "shared file"
    path = place / ("plain" if shared else f"plain-{world.rank}")
    if shared and world.rank == 0:
        path.touch()
    world.comm.Barrier()
    begun = perf_counter_ns()
    if writers.kind != "rank":
        plain_writes(path, world.rank * size if shared else 0, size, buffer)
    elif world.rank == writers.number:
        plain_writes(path, 0, size * world.size, buffer)
    took = world.comm.allreduce(perf_counter_ns() - begun, MPI.MAX) * 1e-9
    if world.rank == 0 or not shared:
        path.unlink(missing_ok=True)
    return took


def session_of(world: World, checkpoint: Checkpoint, place: Path) -> Session:
    workload = Workload("bench", "", 1, Job(world.size), (), (checkpoint,), ())
    return Session(workload, world, {"data": place}, Options(), Silence(), stores=CheckpointStores())


def run_pairs(pairs: int, first: Callable[[], float], second: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Return the results of both functions, called in turn once more than `pairs`; the first pair is dropped."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            os.sync()
            found[which].append((first, second)[which]())
    return found[0][1:], found[1][1:]


def measure(case: Case, pairs: int, size: int, place: Path) -> None:
    """Measure one case on the ranks of this job; rank 0 prints the results as JSON."""
    world = make_world(MPI.COMM_WORLD, node_cores, "bench")
    access = Access(case.api, case.transfer, hints=case.hints)
    checkpoint = Checkpoint("c", 1, (Part("w", size, "per rank"),), case.writers, access, "bench", keep=1)
    session = session_of(world, checkpoint, place)
    buffer = allocate(TRANSFER)
    np.frombuffer(buffer, np.uint8)[:] = np.random.default_rng(world.rank).integers(0, 256, TRANSFER, np.uint8)

    with CheckpointSession(session, [checkpoint]) as saves:

        def ours() -> float:
            return world.comm.allreduce(saves.save(checkpoint).record.wall_ns, MPI.MAX) * 1e-9

        saved, plain = run_pairs(pairs, ours, lambda: time_plain_writes(world, case.writers, place, size, buffer))
    if world.rank == 0:
        session.stores.release()
        ratios = [theirs / mine for mine, theirs in zip(saved, plain, strict=True)]
        rate = [size * world.size / each / 1e9 for each in saved]
        print(json.dumps({"ratios": ratios, "rate": rate, "plain": [size * world.size / each / 1e9 for each in plain]}))


def stalls(pairs: int, size: int, place: Path) -> None:
    """Print the stall of a background save and the time of a blocking save of the same bytes, as JSON, on rank 0."""
    world = make_world(MPI.COMM_WORLD, node_cores, "bench")
    parts, writers = (Part("w", size, "per rank"),), Writers("file per rank")
    blocking = Checkpoint("c", 1, parts, writers, Access("posix", TRANSFER), "bench", keep=1)
    in_background = replace(blocking, name="b", background=Background())
    session = session_of(world, blocking, place)

    with CheckpointSession(session, [blocking, in_background]) as saves:

        def measure_stall(checkpoint: Checkpoint) -> float:
            record = saves.save(checkpoint).record
            # Of one that blocks until it is complete: without deleting the one before.
            stall = record.wall_ns if checkpoint.background is None else record.stall_ns
            saves.finish()
            return world.comm.allreduce(stall, MPI.MAX) * 1e-9

        whole, stall = run_pairs(pairs, lambda: measure_stall(blocking), lambda: measure_stall(in_background))
    if world.rank == 0:
        session.stores.release()
        shares = [short / long for long, short in zip(whole, stall, strict=True)]
        print(json.dumps({"shares": shares, "stall": stall, "blocking": whole}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--size", type=int, default=256, help="MiB a rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--place", required=True, help="where checkpoints go: a directory on the disk to be measured")
    parser.add_argument("--only", default="", help="only cases whose title has this text")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--stalls", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stalls:
        stalls(arguments.pairs, arguments.size * MIB, Path(arguments.place))
        return
    if arguments.case is not None:
        measure(CASES[arguments.case], arguments.pairs, arguments.size * MIB, Path(arguments.place))
        return
    header("a save's rate by that of plain writes", "to reach", "ratio", "GB/s", "plain GB/s")
    for number, case in enumerate(CASES):
        if arguments.only not in case.title:
            continue
        with scratch(arguments.place) as place:
            options = ["--case", str(number), "--pairs", str(arguments.pairs), "--size", str(arguments.size)]
            found = run_ranks(arguments.ranks, __file__, *options, "--place", str(place), seconds=600)
        row(case.title, case.limit, *(middle(found[name]) for name in ("ratios", "rate", "plain")))
    if arguments.only not in "stall":
        return
    print()
    header("a stall by a blocking save", "at most", "share", "stall, ms", "blocking, ms")
    with scratch(arguments.place) as place:
        options = ["--stalls", "--pairs", str(arguments.pairs), "--size", str(arguments.size)]
        found = run_ranks(arguments.ranks, __file__, *options, "--place", str(place), seconds=600)
    times = (middle(found[name], 0, 1e3) for name in ("stall", "blocking"))
    row("`async on`, file per rank, posix", "0.10", middle(found["shares"], 3), *times)


if __name__ == "__main__":
    orderly(main)
