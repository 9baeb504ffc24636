"""Fixtures of `backend_contract`: files of known bytes, calls made by hand, and readers of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from mpi4py import MPI

from dliosim.execute.backends.contract import Files, Reader, allocate
from dliosim.execute.backends.registry import Backend
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.batches.prefetch import Batches, make_batches
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls, deal_rounds

#: Calls of a step: file, offset, length
Rows = list[tuple[int, int, int]]

FILES: Final = 4
#: Bytes of each file
SIZE: Final = 40_000

STEPS: Final = 4

#: Steps: samples of one size at multiples of it, or anywhere, of many sizes, one sample, none, several files, one file.
BATCHES: Final[list[Rows]] = [
    [(0, 100 * (7 * k % 40) + 50, 100) for k in range(40)],
    [(0, 97 * k % 39_000, 100) for k in range(40)],
    [(0, 50 * k, 1 + 13 * k % 60) for k in range(40)],
    [(2, SIZE - 12, 12)],
    [],
    [(k % FILES, 1000 * (k % 7), 4096) for k in range(40)],
    [(1, 4096 * k, 4096) for k in range(9)],
]


def fixture_name(file: int) -> str:
    """Return the name of a file below its directory."""
    return f"{file}.raw"


def write_files(directory: Path, comm: MPI.Intracomm = MPI.COMM_SELF) -> list[bytes]:
    """Make the files for readers, with the same bytes each time; return the bytes of each. Collective."""
    random = np.random.default_rng(99)
    contents = [random.bytes(SIZE) for _ in range(FILES)]
    comm.Barrier()
    if comm.rank == 0:
        for file, content in enumerate(contents):
            (directory / fixture_name(file)).write_bytes(content)
    comm.Barrier()
    return contents


def make_calls(steps: Sequence[Sequence[tuple[int, int, int]]]) -> Calls:
    """Make the calls of steps, each a list of (file, offset, length); their bytes are back to back in the buffer."""
    rows = [row for step in steps for row in step]
    file, offset, length = (np.array([row[column] for row in rows], np.int64) for column in range(3))
    step_start = np.array([0, *np.cumsum([len(step) for step in steps])], np.int64)
    before = np.append(0, np.cumsum(length))
    start = before[:-1] - np.repeat(before[step_start[:-1]], np.diff(step_start))
    return Calls(file, offset, length, start, step_start, np.diff(before[step_start]), start, step_start)


def random_steps(rank: int, files: int) -> list[Rows]:
    """Return steps with calls of equal and of different sizes, some of the same bytes; some ranks have empty steps."""
    random = np.random.default_rng(rank)
    steps = []
    for step in range(STEPS):
        count = 0 if (step + rank) % 3 == 2 else 12
        length = np.full(count, 512) if step % 2 else random.integers(1, 700, count)
        offset = random.integers(0, SIZE - 700, count)
        offset[: count // 4] = offset[count // 4 : count // 2]
        file = random.integers(0, files, count)
        steps.append(list(zip(file.tolist(), offset.tolist(), length.tolist(), strict=True)))
    return steps


def call_contents(contents: Sequence[bytes], rows: Rows) -> bytes:
    """Return the bytes that the calls of a step read."""
    return b"".join(contents[file][at : at + size] for file, at, size in rows)


def make_reader(backend: Backend, access: Access, directory: Path) -> Reader:
    """Make a reader of the files of `write_files`, on this rank alone."""
    return backend.reader(access, Files(directory, fixture_name, lambda _: SIZE, False, MPI.COMM_SELF))


@contextmanager
def open_batches(
    backend: Backend, access: Access, directory: Path, calls: Calls, comm: MPI.Intracomm, shared: bool = True
) -> Iterator[Batches]:
    """Yield the batches of a rank, read by as many readers as `access` asks for. Collective."""
    io = comm.Dup()
    files = Files(directory, fixture_name, lambda _: SIZE, shared, io)
    slots = [allocate(calls.buffer_size) for _ in range(access.batches)]
    batches = make_batches(access, [backend.reader(access, files) for _ in range(access.handles)], slots)
    try:
        yield batches
    finally:
        batches.close()
        batches.close()
        io.Free()


def begin_batches(batches: Batches, access: Access, calls: Calls, comm: MPI.Intracomm) -> None:
    """Begin an epoch, in rounds where collective calls are cut. Collective."""
    if access.collective and access.transfer is not None:
        dealt = deal_rounds(calls, access.transfer)
        most = np.empty_like(dealt.count)
        comm.Allreduce(dealt.count, most, MPI.MAX)
        batches.begin(EpochCalls(calls, dealt, most))
    else:
        batches.begin(EpochCalls(calls))
    batches.start()
