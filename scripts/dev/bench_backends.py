"""The cost of backends against bare loops of the same calls: medians of paired ratios with their spread, as a table.

    python scripts/dev/bench_backends.py                            # one rank: all rows
    mpiexec -n 2 python -m mpi4py scripts/dev/bench_backends.py     # the rows that say something about several ranks

A pair is the bare loop and the backend one right after the other, in alternating order, on a warm file in --dir. Of
several ranks the slowest counts. A ratio below 1.05 counts as equal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from harness import header, middle, orderly, row
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.execute.backends.contract import Files, Reader, allocate
from dliosim.execute.backends.registry import open_readers, open_writer
from dliosim.execute.node.compute import keep_core_busy
from dliosim.execute.payload.sample_bytes import fill_batch, fill_range
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls, Extents, plan_calls

Loop = Callable[[], None]
NAME = "00.raw"
INDEPENDENT = (("romio_cb_read", "disable"), ("romio_ds_read", "disable"))


def seconds(loop: Loop, comm: MPI.Intracomm) -> float:
    """Return the time of the slowest rank."""
    comm.Barrier()
    begun = perf_counter_ns()
    loop()
    taken = (perf_counter_ns() - begun) * 1e-9
    return float(comm.allreduce(taken, MPI.MAX))


def compare(what: str, bare: Loop, ours: Loop, unit: float, comm: MPI.Intracomm, pairs: int) -> None:
    """Print a row: microseconds a unit of the bare loop, and how many times as long ours takes."""
    bare()
    ours()
    ratios, base = [], []
    for pair in range(pairs):
        order = (bare, ours) if pair % 2 == 0 else (ours, bare)
        times = {loop: seconds(loop, comm) for loop in order}
        ratios.append(times[ours] / times[bare])
        base.append(times[bare] / unit * 1e6)
    if comm.rank == 0:
        row(what, middle(base), middle(ratios))


def random_calls(size: int, batch: int, steps: int, file_bytes: int, seed: int) -> Calls:
    """Draw random samples of one size out of a shared file, none of them twice."""
    count = steps * batch
    offset = np.random.default_rng(seed).permutation(file_bytes // size)[:count] * size
    rows = Extents(
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        offset,
        np.full(count, size),
        np.arange(0, count + 1, batch),
    )
    return plan_calls(rows, None)


def reader_of(access: Access, directory: Path, comm: MPI.Intracomm) -> Reader:
    [reader] = open_readers(access, Files(directory, lambda file: NAME, lambda file: 0, True, comm))
    reader.begin_epoch()
    return reader


def read_loop(reader: Reader, made: Calls, into: memoryview) -> Loop:
    def loop() -> None:
        for step in range(made.steps):
            reader.read(made.step(step), into)
        reader.meter.take_latencies()

    return loop


def posix_rows(directory: Path, comm: MPI.Intracomm, file_bytes: int, pairs: int) -> None:
    for size, label in [(4096, "4 KiB"), (65536, "64 KiB"), (1 << 20, "1 MiB")]:
        batch = max(4, min(256, (1 << 24) // size))
        made = random_calls(size, batch, max(4, (1 << 28) // size // batch), file_bytes, 1)
        into = allocate(made.buffer_size)
        rows = [[into[at * size : (at + 1) * size]] for at in range(batch)]
        batches = [made.offset[first : first + batch].tolist() for first in made.step_start[:-1].tolist()]
        descriptor = os.open(directory / NAME, os.O_RDONLY)

        def bare(
            rows: Sequence[list[memoryview]] = rows,
            batches: Sequence[list[int]] = batches,
            descriptor: int = descriptor,
            preadv: Callable[[int, list[memoryview], int], int] = os.preadv,
        ) -> None:
            for offsets in batches:
                for piece, offset in zip(rows, offsets, strict=True):
                    preadv(descriptor, piece, offset)

        reader = reader_of(Access(), directory, comm)
        ours = read_loop(reader, made, into)
        compare(f"posix, {label} random reads, batch {batch}", bare, ours, len(made.offset), comm, pairs)
        reader.close()
        os.close(descriptor)


def independent_row(directory: Path, comm: MPI.Intracomm, file_bytes: int, pairs: int) -> None:
    size, batch = 4096, 256
    made = random_calls(size, batch, 100, file_bytes, comm.rank)
    into = allocate(made.buffer_size)
    rows = [(into[at * size : (at + 1) * size], size, MPI.BYTE) for at in range(batch)]
    batches = [made.offset[first : first + batch].tolist() for first in made.step_start[:-1].tolist()]
    handle = MPI.File.Open(comm, str(directory / NAME), MPI.MODE_RDONLY)
    read_at = handle.Read_at

    def bare() -> None:
        for offsets in batches:
            for piece, offset in zip(rows, offsets, strict=True):
                read_at(offset, piece)

    reader = reader_of(Access(api="mpi-independent"), directory, comm)
    ours = read_loop(reader, made, into)
    compare(f"mpi-independent, 4 KiB, {comm.size} ranks", bare, ours, len(made.offset), comm, pairs)
    reader.close()
    handle.Close()


def collective_rows(directory: Path, comm: MPI.Intracomm, file_bytes: int, pairs: int) -> None:
    size, batch = 4096, 256
    for hints, label, steps in [((), "default hints", 20), (INDEPENDENT, "cb and ds disabled", 100)]:
        made = random_calls(size, batch, steps, file_bytes, comm.rank)
        into = allocate(made.buffer_size)
        info = MPI.Info.Create()
        for key, value in hints:
            info.Set(key, value)
        handle = MPI.File.Open(comm, str(directory / NAME), MPI.MODE_RDONLY, info)
        batches = [made.offset[first : first + batch] for first in made.step_start[:-1].tolist()]

        def bare(
            batches: Sequence[NDArray[np.int64]] = batches, handle: MPI.File = handle, into: memoryview = into
        ) -> None:
            for offsets in batches:
                order = np.argsort(offsets)
                file_type = MPI.BYTE.Create_hindexed_block(size, offsets[order].tolist()).Commit()
                memory = MPI.BYTE.Create_hindexed_block(size, (order * size).tolist()).Commit()
                handle.Set_view(0, MPI.BYTE, file_type)
                handle.Read_at_all(0, (into, 1, memory))
                file_type.Free()
                memory.Free()

        reader = reader_of(Access(api="mpi-collective", hints=hints), directory, comm)
        ours = read_loop(reader, made, into)
        what = f"mpi-collective, 4 KiB, batch {batch}, {label}, {comm.size} ranks"
        compare(what, bare, ours, len(made.offset), comm, pairs)
        reader.close()
        handle.Close()
        info.Free()


def write_rows(directory: Path, comm: MPI.Intracomm, pairs: int) -> None:
    total, call = 1 << 28, 1 << 20
    ready = allocate(call)
    fill_range(3, 0, ready)
    made = allocate(call)
    path = directory / "written"
    for size, label in [(4096, "4 KiB"), (4001, "4001 B"), (65536, "64 KiB"), (call, "1 MiB")]:
        count = call // size
        length = np.full(count, size)
        start = np.arange(count) * size
        part = count * size

        def write_file(data: memoryview, produce: Callable[[int], None], part: int = part) -> None:
            path.unlink(missing_ok=True)
            writer = open_writer(Access(), path, comm)
            for number in range(total // call):
                produce(number)
                writer.write(number * part, data[:part])
            writer.close()

        def produce(
            number: int, length: NDArray[np.int64] = length, start: NDArray[np.int64] = start, count: int = count
        ) -> None:
            keys = np.arange(number * count, (number + 1) * count, dtype=np.uint64)
            fill_batch(keys, length, start, made)

        compare(
            f"posix, writing fresh samples of {label} in calls of 1 MiB",
            lambda write_file=write_file: write_file(ready, lambda number: None),  # type: ignore[misc]
            lambda write_file=write_file, produce=produce: write_file(made, produce),  # type: ignore[misc]
            total // call,
            comm,
            pairs,
        )
    path.unlink()


def busy_row(directory: Path, comm: MPI.Intracomm, file_bytes: int, pairs: int) -> None:
    """Compare the time of a reader thread for its batches while this thread is busy with that while it sleeps."""
    made = random_calls(4096, 256, 200, file_bytes, 5)
    into = allocate(made.buffer_size)
    reader = reader_of(Access(), directory, comm)
    read = read_loop(reader, made, into)

    def read_while_idle() -> None:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()

    def read_while_busy() -> None:
        thread = threading.Thread(target=read)
        thread.start()
        while thread.is_alive():
            keep_core_busy(1_000_000)

    what = "a reader thread of 4 KiB during `compute busy`"
    compare(what, read_while_idle, read_while_busy, len(made.offset), comm, pairs)
    reader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Backends against bare loops of the same calls.")
    parser.add_argument("--dir", default="/dev/shm", help="where to put a file of 256 MiB (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=9, help="pairs of runs (default: %(default)s)")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    file_bytes = 1 << 28
    directory = Path(comm.bcast(tempfile.mkdtemp(dir=options.dir) if comm.rank == 0 else ""))
    try:
        if comm.rank == 0:
            data = allocate(file_bytes)
            fill_range(1, 0, data)
            (directory / NAME).write_bytes(data)
            header("what", "bare, us", "times as long")
        comm.Barrier()
        if comm.size == 1:
            posix_rows(directory, comm, file_bytes, options.pairs)
        independent_row(directory, comm, file_bytes, options.pairs)
        collective_rows(directory, comm, file_bytes, options.pairs)
        if comm.size == 1:
            write_rows(directory, comm, options.pairs)
            busy_row(directory, comm, file_bytes, options.pairs)
        comm.Barrier()
    finally:
        if comm.rank == 0:
            shutil.rmtree(directory)


if __name__ == "__main__":
    orderly(main)
