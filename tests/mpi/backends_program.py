"""Run by every rank of a job: the contract of the backends, each check for each of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.backends import Files, open_readers, open_writer
from dliosim.execute.buffers import allocate
from dliosim.execute.epochcalls import EpochCalls
from dliosim.execute.readahead import Batches, make_batches, slot_count
from dliosim.measure.histogram import Histogram
from dliosim.measure.meter import Meters
from dliosim.model import Access
from dliosim.plan.extents import Calls, rounds
from tests.execute.calls import make_calls

SIZE = 40_000
STEPS = 4
TUNED = (("romio_cb_read", "disable"), ("romio_ds_read", "disable"))
COLLECTIVE = Access(api="mpi-collective")
MAPPED, QUEUED = Access(engine="mmap"), Access(engine="queued", depth=5)
QUEUED_BY_MPI = replace(QUEUED, api="mpi-independent")
ACCESSES = [
    Access(),
    MAPPED,
    QUEUED,
    Access(api="mpi-independent"),
    Access(api="mpi-independent", hints=TUNED),
    QUEUED_BY_MPI,
    COLLECTIVE,
    replace(COLLECTIVE, hints=TUNED),
    replace(COLLECTIVE, transfer=2500),
]
FORMS = [
    {"readers": 0},
    {"readers": 2, "prefetch": 2},
    {"readers": 3, "by": "sample", "prefetch": 1, "open": "each epoch"},
]


def name(file: int) -> str:
    return f"{file}.raw"


def random_steps(rank: int, files: int) -> list[list[tuple[int, int, int]]]:
    """Calls of one size and of many, some of the same bytes; some steps are empty on some ranks."""
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


@contextmanager
def opened(comm: MPI.Intracomm, access: Access, directory: Path, calls: Calls, shared: bool) -> Iterator[Batches]:
    io = comm.Dup()
    files = Files(directory, name, lambda file: SIZE, shared, io)
    slots = [allocate(calls.buffer_size) for _ in range(slot_count(access))]
    batches = make_batches(access, open_readers(access, files), slots)
    try:
        yield batches
    finally:
        batches.close()
        batches.close()
        io.Free()


def begin(comm: MPI.Intracomm, access: Access, batches: Batches, calls: Calls) -> None:
    if access.api == "mpi-collective" and access.transfer is not None:
        dealt = rounds(calls, access.transfer)
        batches.begin(EpochCalls(calls, dealt, most(comm, dealt.count)))
        batches.start()
    else:
        batches.begin(EpochCalls(calls))
        batches.start()


def most(comm: MPI.Intracomm, count: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.empty_like(count)
    comm.Allreduce(count, out, MPI.MAX)
    return out


def check_reading(comm: MPI.Intracomm, access: Access, directory: Path, contents: list[bytes]) -> None:
    steps = random_steps(comm.rank, len(contents))
    calls = make_calls(steps)
    with opened(comm, access, directory, calls, len(contents) == 1) as batches:
        for _ in range(2):
            begin(comm, access, batches, calls)
            for step, rows in enumerate(steps):
                slot, got = batches.wait(step)
                expected = b"".join(contents[file][at : at + size] for file, at, size in rows)
                assert got == len(expected)
                assert slot[:got] == expected
            batches.end()
        meters = [reader.meter for reader in batches.readers]
        asked = 2 * int(calls.length.sum())
        moved = sum(meter.moved for meter in meters)
        assert moved <= asked if access.api == "mpi-collective" else moved == asked
        together, latencies = Meters(meters), Histogram()
        busy = together.take(latencies) + together.rest()
        assert latencies.count == sum(meter.calls for meter in meters)
        # Of one reader it is the time of its calls, in which no file is opened and no view set.
        in_turn = len(meters) == 1 and access.engine != "queued"
        assert busy == latencies.sum_ns if in_turn else busy <= latencies.sum_ns
        assert asked == 0 or busy > 0
        granted = {key: value for reader in batches.readers for key, value in reader.granted().items()}
        assert bool(granted) == (access.api != "posix")
        assert all(granted[key] == value for key, value in access.hints)


def check_stopping_early(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    calls = make_calls(random_steps(comm.rank, 1))
    with opened(comm, access, directory, calls, True) as batches:
        for _ in range(2):
            begin(comm, access, batches, calls)
            batches.wait(0)
            assert batches.run(lambda: comm.rank) == comm.rank
            batches.end()


def check_truncated(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    """One rank reads beyond the end of a file; it says so, and the others go on."""
    last = comm.size - 1
    rows = [(0, 0, 100), (0, SIZE - 50, 100)] if comm.rank == last else [(0, 0, 100)]
    calls = make_calls([[(0, 5, 10)], rows, [(0, 9, 10)], []])
    with opened(comm, access, directory, calls, True) as batches:
        begin(comm, access, batches, calls)
        failures = []
        for step in range(4):
            try:
                batches.wait(step)
            except ExecutionError as error:
                failures.append((step, error))
        batches.end()
    if comm.rank != last:
        assert not failures
        return
    [(failed_step, failure)] = failures
    assert (failed_step, failure.code) == (1, "R401")
    assert "100 bytes at offset 39950 returned 50 on" in failure.message
    assert "0.raw" in failure.message


def check_cut_short(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    """A file that is cut while a buffer holds the same bytes from before: all ranks hear of it when the epoch ends."""
    path = directory / "cut" / name(0)
    content = np.random.default_rng(5).bytes(SIZE)
    if comm.rank == 0:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    comm.Barrier()
    offset = SIZE - 100 * (comm.rank + 1)
    calls = make_calls([[(0, offset, 100)]])
    with opened(comm, access, path.parent, calls, True) as batches:
        for cut in (False, True):
            begin(comm, access, batches, calls)
            comm.Barrier()
            if cut and comm.rank == 0:
                os.truncate(path, SIZE // 2)
            comm.Barrier()
            slot, got = batches.wait(0)
            assert got == 100
            assert cut or slot[:100] == content[offset : offset + 100]
            try:
                batches.end()
            except ExecutionError as error:
                assert cut
                assert (error.code, error.shared) == ("R401", comm.size > 1)
                assert f"MPI_File_get_size of {path} gave 20000 bytes, and 40000 before" in error.message
            else:
                assert not cut, "nobody noticed"
        # What was cut before an epoch begins is found by the read that reaches beyond the end.
        begin(comm, access, batches, calls)
        try:
            batches.wait(0)
        except ExecutionError as error:
            assert f"MPI_File_read_at_all of 100 bytes at offset {offset} returned 0 on {path}" in error.message
        else:
            raise AssertionError("nobody noticed")
        batches.end()


def check_missing(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    (directory / "absent").mkdir(exist_ok=True)
    link = directory / "linked"
    link.mkdir(exist_ok=True)
    if comm.rank == 0:
        (link / name(0)).symlink_to(directory / name(0))
    comm.Barrier()
    calls = make_calls([[(0, 0, 10)]])
    for where, reason in [(directory / "absent", ("No such file", "does not exist")), (link, ("symbolic link",))]:
        try:
            with opened(comm, access, where, calls, True) as batches:
                begin(comm, access, batches, calls)
                batches.wait(0)
        except ExecutionError as error:
            assert error.code == "R401", error
            assert any(text in error.message for text in reason), error
            assert str(where) in error.message
            assert error.shared == (access.api != "posix" and comm.size > 1)
        else:
            raise AssertionError(f"{access.api} read {where}")
    comm.Barrier()
    if comm.rank == 0:
        (link / name(0)).unlink()


def check_writing(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    """Ranks write a file together, one of them less than the others; what was there before is gone."""
    path, piece = directory / "written", 1000
    if comm.rank == 0:
        path.write_bytes(b"x" * 100_000)
    comm.Barrier()
    writer = open_writer(access, path, comm)
    for turn in range(3):
        data = bytes([turn * 16 + comm.rank]) * piece
        if turn == 1 and comm.rank == comm.size - 1:
            data = b""
        writer.write((turn * comm.size + comm.rank) * piece, memoryview(data))
    writer.sync()
    writer.close()
    writer.close()
    meter = writer.meter
    assert meter.sync_ns > 0
    assert meter.calls == len(meter.call_ns)
    comm.Barrier()
    expected = bytearray(3 * comm.size * piece)
    for turn, rank in product(range(3), range(comm.size)):
        if (turn, rank) != (1, comm.size - 1):
            at = (turn * comm.size + rank) * piece
            expected[at : at + piece] = bytes([turn * 16 + rank]) * piece
    assert path.read_bytes() == expected
    comm.Barrier()
    kept = open_writer(access, path, comm, create=False)
    kept.close()
    comm.Barrier()
    assert path.stat().st_size == len(expected)


def check_unwritable(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    if comm.rank == 0:
        (directory / "to").symlink_to(directory / name(0))
    comm.Barrier()
    for path, reason in [(directory / "no" / "where", "No such file"), (directory / "to", "symbolic link")]:
        try:
            open_writer(access, path, comm)
        except ExecutionError as error:
            assert str(path) in error.message
            assert reason in error.message
            assert error.shared == (comm.size > 1)
        else:
            raise AssertionError(f"{access.api} wrote {path}")
    comm.Barrier()
    if comm.rank == 0:
        (directory / "to").unlink()
    comm.Barrier()


def check_null(comm: MPI.Intracomm, directory: Path) -> None:
    """It opens nothing, counts what is asked, and records no latencies."""
    calls = make_calls(random_steps(comm.rank, 1))
    absent = Files(directory / "nothing here", name, lambda file: SIZE, True, comm)
    batches = make_batches(Access(), open_readers(Access(), absent, null=True), [allocate(calls.buffer_size)])
    batches.begin(EpochCalls(calls))
    batches.start()
    for step in range(STEPS):
        assert batches.wait(step)[1] == int(calls.step_bytes[step])
    batches.end()
    meter = batches.readers[0].meter
    assert (meter.calls, meter.moved, len(meter.take_latencies())) == (0, 0, 0)
    batches.close()
    assert not (directory / "nothing here").exists()


def main(comm: MPI.Intracomm, directory: Path) -> None:
    random = np.random.default_rng(99)
    contents = [random.bytes(SIZE) for _ in range(4)]
    if comm.rank == 0:
        for file, content in enumerate(contents):
            (directory / name(file)).write_bytes(content)
    comm.Barrier()
    for access, form in product(ACCESSES, FORMS):
        if comm.size > 2 and access.api == "mpi-collective" and form is not FORMS[1]:
            continue  # tens of milliseconds a step where ranks outnumber cores
        if comm.size > 2 and access is QUEUED_BY_MPI and form is not FORMS[0]:
            continue  # the MPI library's own threads come on top
        asked = replace(access, **form)  # type: ignore[arg-type]
        print(comm.rank, asked, file=sys.stderr)
        check_reading(comm, asked, directory, contents[:1])
        if comm.size <= 2 or not access.hints:
            check_stopping_early(comm, asked, directory)
            check_truncated(comm, asked, directory)
        if access.api != "mpi-collective":
            check_reading(comm, asked, directory, contents)
            check_reading(comm, replace(asked, open="each sample"), directory, contents)
    for access, form in product([COLLECTIVE, replace(COLLECTIVE, hints=TUNED)], FORMS[:2]):
        check_cut_short(comm, replace(access, **form), directory)  # type: ignore[arg-type]
    for access in [MAPPED, QUEUED, QUEUED_BY_MPI]:
        check_missing(comm, access, directory)
    for access in [Access(), Access(api="mpi-independent"), COLLECTIVE, replace(COLLECTIVE, readers=1, prefetch=2)]:
        check_missing(comm, access, directory)
        check_writing(comm, access, directory)
        check_unwritable(comm, access, directory)
    check_null(comm, directory)
    comm.Barrier()
    if comm.rank == 0:
        print("the contract is whole")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, Path(sys.argv[1]))
