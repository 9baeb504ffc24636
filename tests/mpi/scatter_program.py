"""Run by every rank of a job: one rank of a node reads for all of them, and each has its own batch."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.execute.backends.contract import Files
from dliosim.execute.batches import node_reader
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.mpi.job_abort import job_name
from dliosim.execute.mpi.world import World, file_communicator, free_communicator, make_world
from dliosim.execute.testing.contract_fixtures import SIZE, fixture_name, make_calls, random_steps
from dliosim.model import Access
from dliosim.model.direct_io import DIRECT_ALIGNMENT
from dliosim.plan.samples.io_requests import Extents, plan_calls

ACCESSES = [
    Access(scatter=True),
    Access("mpi-independent", scatter=True, open="each epoch"),
    Access("mpi-independent", scatter=True, communicator=2),
    Access("mpi-independent", scatter=True, communicator="node"),
]


def check_batches(world: World, access: Access, directory: Path, contents: list[bytes]) -> None:
    """Each rank has what it would have read itself; the calls were made by the first rank alone."""
    steps = random_steps(world.rank, len(contents))
    planned = make_calls(steps)
    largest = np.array([planned.buffer_size])
    world.allreduce(largest, "max")
    files = Files(directory, fixture_name, lambda file: SIZE, len(contents) == 1, file_communicator(world, access))
    batches = node_reader.ScatteredBatches(world, access, files, int(largest[0]))
    for _ in range(2):
        batches.begin(EpochCalls(planned))
        batches.start()
        for step, rows in enumerate(steps):
            slot, got = batches.wait(step)
            expected = b"".join(contents[file][at : at + size] for file, at, size in rows)
            assert got == len(expected)
            assert slot[:got] == expected
            slot[:] = bytes(len(slot))  # nothing of it may serve the next step
        batches.end()
    made = np.array([2 * len(planned.file), 2 * int(planned.length.sum())])
    world.allreduce(made, "sum")
    [reader] = batches.readers
    counted = [reader.meter.calls, reader.meter.moved]
    assert counted == (made.tolist() if world.rank == 0 else [0, 0])
    batches.close()
    batches.close()
    free_communicator(world, files.comm)


def check_direct(world: World, directory: Path, content: bytes) -> None:
    """Parts of the buffer begin at pages, and calls that reach beyond the end of a file are whole."""
    offset = (
        np.array([0, SIZE // DIRECT_ALIGNMENT * DIRECT_ALIGNMENT])
        if world.rank % 2
        else np.array([DIRECT_ALIGNMENT * (world.rank + 1)])
    )
    length = np.minimum(3000, SIZE - offset)
    zeros = np.zeros_like(offset)
    planned = plan_calls(Extents(zeros, zeros, offset, length, np.array([0, len(offset)])), None, DIRECT_ALIGNMENT)
    largest = np.array([planned.buffer_size])
    world.allreduce(largest, "max")
    files = Files(directory, fixture_name, lambda file: SIZE, True, world.comm)
    batches = node_reader.ScatteredBatches(world, Access(cache="off", scatter=True), files, int(largest[0]))
    batches.begin(EpochCalls(planned))
    slot, got = batches.wait(0)
    assert got >= length.sum()
    for at, size, start in zip(offset.tolist(), length.tolist(), planned.sample_start.tolist(), strict=True):
        assert slot[start : start + size] == content[at : at + size]
    batches.end()
    batches.close()


def main(comm: MPI.Intracomm, where: str) -> None:
    directory = Path(where)
    random = np.random.default_rng(99)
    contents = [random.bytes(SIZE) for _ in range(4)]
    if comm.rank == 0:
        for file, content in enumerate(contents):
            (directory / fixture_name(file)).write_bytes(content)
    comm.Barrier()
    for cores in (0, comm.size) if comm.size <= 2 else (0,):  # polite waits, and those that spin
        world = make_world(comm, lambda node, cores=cores: cores, job_name(comm))
        for access in ACCESSES:
            check_batches(world, access, directory, contents[:1])
            check_batches(world, access, directory, contents)
        check_direct(world, directory, contents[0])
        world.close()
    if comm.rank == 0:
        print("each has its own")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
