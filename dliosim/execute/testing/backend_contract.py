"""Checks that every backend must pass; tests of this package and of other packages call them.

Checks with a `comm` are collective over it; the others are for one process. `directory` exists and is used by the
checks alone (with a `comm`, it is the same one on all ranks).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.backends.registry import Backend, make_writer
from dliosim.execute.testing import contract_fixtures as fixtures
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.meter import MeterGroup
from dliosim.model import Access

LIFETIMES: Final[tuple[dict[str, Any], ...]] = ({"open": "each sample"}, {"open": "each epoch"}, {"open": "once"})

#: How the threads of a rank share its reading: no other thread, each thread a batch, all threads one batch.
THREADS: Final[tuple[dict[str, Any], ...]] = (
    {"readers": 0},
    {"readers": 2, "prefetch": 2},
    {"readers": 3, "by": "sample", "prefetch": 1, "open": "each epoch"},
)


def check_backend(backend: Backend, directory: Path, comm: MPI.Intracomm = MPI.COMM_SELF) -> None:
    """Run all checks of a backend of another package; AssertionError if one fails. Collective."""
    access = Access(backend.name)
    own = directory / f"of rank {comm.rank}"
    own.mkdir()
    for lifetime in LIFETIMES:
        asked = replace(access, **lifetime)
        check_reading(backend, asked, own)
        check_lifetime(backend, asked, own)
        check_truncated(backend, asked, own)
        check_missing(backend, asked, own)
    for threads in THREADS:
        asked = replace(access, **threads)
        check_batches(backend, asked, directory, comm, files=1)
        check_batches(backend, asked, directory, comm)
        check_stopping_early(backend, asked, directory, comm)
        check_cut_batch(backend, asked, directory, comm)
    if backend.writer is not None:
        check_writing(backend, access, directory, comm)
        check_unwritable(backend, access, directory, comm)
        check_full(backend, access, own)


# ---- one reader ---------------------------------------------------------------------------------------------------


def check_reading(backend: Backend, access: Access, directory: Path) -> None:
    """Check that calls fill their bytes and no others, that the meter counts them, and that nothing is left open.

    For `access` without `transfer`, so that a call is a sample.
    """
    contents, handles = fixtures.write_files(directory), _count_descriptors()
    one, into = fixtures.make_reader(backend, access, directory), allocate(200_000)
    for _ in range(2):
        one.begin_epoch()
        for rows in fixtures.BATCHES:
            into[:] = b"\xa5" * len(into)
            size = sum(row[2] for row in rows)
            assert one.read(fixtures.make_calls([rows]), into) == size, "a read returns the bytes of its calls"
            assert into[:size] == fixtures.call_contents(contents, rows), "the bytes of each call are where it says"
            assert into[size : size + 4096] == b"\xa5" * 4096, "nothing else is written to"
        one.end_epoch()
    meter, calls = one.meter, sum(map(len, fixtures.BATCHES))
    assert meter.moved == 2 * sum(row[2] for rows in fixtures.BATCHES for row in rows), "`moved` counts the bytes read"
    opens = {"each sample": 2 * calls, "each epoch": 2 * fixtures.FILES, "once": fixtures.FILES}[access.open]
    assert meter.opens == opens, f"`open {access.open}` opens {opens} times, not {meter.opens}"
    assert meter.open_ns > 0, "`open_ns` is the time that opening took"
    assert 0 < meter.calls <= 2 * calls, "`calls` counts calls"
    taken = meter.take_latencies()
    assert len(taken) == meter.calls, f"{meter.calls} calls have {len(taken)} latencies"
    assert (taken >= 0).all(), "no call takes less than no time"
    assert one.active_hints() == {} or access.is_mpi, "there are no hints"
    one.close()
    one.close()
    assert _count_descriptors() <= handles, "files stay open after `close`"


def check_lifetime(backend: Backend, access: Access, directory: Path) -> None:
    """Check that a replaced file is seen when `open` says so: by the next sample, or the next epoch."""
    rows, into = [(0, 10, 500), (1, 0, 500)], allocate(1000)
    old = fixtures.write_files(directory)
    one = fixtures.make_reader(backend, access, directory)

    def read() -> bytes:
        one.read(fixtures.make_calls([rows]), into)
        return bytes(into)

    one.begin_epoch()
    assert read() == fixtures.call_contents(old, rows)
    new = [content[::-1] for content in old]
    for file, content in enumerate(new):
        aside = directory / "aside"
        aside.write_bytes(content)
        aside.rename(directory / fixtures.fixture_name(file))
    by_sample = access.open == "each sample"
    assert read() == fixtures.call_contents(new if by_sample else old, rows), f"`open {access.open}` within an epoch"
    one.end_epoch()
    one.begin_epoch()
    assert read() == fixtures.call_contents(old if access.open == "once" else new, rows), (
        f"`open {access.open}` in the next epoch"
    )
    one.end_epoch()
    one.close()


def check_truncated(backend: Backend, access: Access, directory: Path) -> list[ExecutionError]:
    """Check that a call that meets the end of its file is an error [R401] with file and offset; return the errors."""
    fixtures.write_files(directory)
    os.truncate(directory / fixtures.fixture_name(1), 6000)
    os.truncate(directory / fixtures.fixture_name(3), 0)
    handles, found = _count_descriptors(), []
    cases: list[fixtures.Rows] = [[(0, 0, 10), (1, 4096, 4096), (0, 0, 10)], [(0, 0, 10), (1, 7000, 100)], [(3, 0, 1)]]
    for rows in cases:
        file, offset, _ = rows[len(rows) // 2]
        one = fixtures.make_reader(backend, access, directory)
        error = _catch_error(one.read, fixtures.make_calls([rows]), allocate(5000))
        assert error.code == "R401", f"a file that is too short has code R401: {error}"
        _check_message(error, str(directory / fixtures.fixture_name(file)), f"offset {offset}")
        one.close()
        found.append(error)
    assert _count_descriptors() <= handles, "files stay open after an error and `close`"
    return found


def check_missing(backend: Backend, access: Access, directory: Path) -> list[ExecutionError]:
    """Check the errors of a missing file, a link and a directory: they name the path, and the reader can continue.

    The first two have code R401. Returns the errors.
    """
    [content, *_] = fixtures.write_files(directory)
    for file in (1, 2, 3):
        (directory / fixtures.fixture_name(file)).unlink()
    (directory / fixtures.fixture_name(2)).symlink_to(fixtures.fixture_name(0))
    (directory / fixtures.fixture_name(3)).mkdir()
    handles, into, found = _count_descriptors(), allocate(30), []
    for file in (1, 2, 3):
        one = fixtures.make_reader(backend, access, directory)
        calls = fixtures.make_calls([[(0, 0, 10), (file, 0, 10), (0, 0, 10)]])
        error = _catch_error(one.read, calls, into)
        assert error.code == "R401" or file == 3, f"data that are not what was prepared have code R401: {error}"
        _check_message(error, str(directory / fixtures.fixture_name(file)))
        assert one.read(fixtures.make_calls([[(0, 5, 10)]]), into) == 10, (
            "no earlier call is still running after an error"
        )
        assert into[:10] == content[5:15], "the reader can continue with the files that are there"
        one.close()
        found.append(error)
    assert _count_descriptors() <= handles, "files stay open after an error and `close`"
    (directory / fixtures.fixture_name(2)).unlink()
    (directory / fixtures.fixture_name(3)).rmdir()
    return found


# ---- the readers of a rank, as an epoch uses them ------------------------------------------------------------------


def check_batches(
    backend: Backend, access: Access, directory: Path, comm: MPI.Intracomm, files: int = fixtures.FILES
) -> dict[str, str]:
    """Check that two epochs are whole, batch by batch, with any threads; return the hints that files were opened with.

    With one file, all ranks share it. Collective.
    """
    contents = fixtures.write_files(directory, comm)[:files]
    steps = fixtures.random_steps(comm.rank, files)
    calls = fixtures.make_calls(steps)
    with fixtures.open_batches(backend, access, directory, calls, comm, files == 1) as batches:
        for _ in range(2):
            fixtures.begin_batches(batches, access, calls, comm)
            for step, rows in enumerate(steps):
                slot, got = batches.wait(step)
                whole = fixtures.call_contents(contents, rows)
                assert got == len(whole), f"step {step} has {got} bytes, not {len(whole)}"
                assert slot[:got] == whole, f"the bytes of step {step}"
            batches.end()
        meters = [reader.meter for reader in batches.readers]
        asked, moved = 2 * int(calls.length.sum()), sum(meter.moved for meter in meters)
        assert moved <= asked if access.collective else moved == asked, f"`moved` is {moved} of {asked}"
        in_turn = len(meters) == 1 and not meters[0].spans
        together, latencies = MeterGroup(meters), Histogram()
        busy = together.collect_busy(latencies) + together.collect_rest()
        assert latencies.count == sum(meter.calls for meter in meters), "each call has a latency"
        # With one reader, `busy` is the time of its calls, without opening files and setting views.
        assert busy == latencies.sum_ns if in_turn else busy <= latencies.sum_ns, "calls overlap within a reader"
        assert asked == 0 or busy > 0, "calls take time"
        assert busy <= sum(meter.read_ns for meter in meters), "`read_ns` has all calls: see `Meter.add_run`"
        return {key: value for reader in batches.readers for key, value in reader.active_hints().items()}


def check_stopping_early(backend: Backend, access: Access, directory: Path, comm: MPI.Intracomm) -> None:
    """Check that an epoch may end at any step, and another may follow. Collective."""
    fixtures.write_files(directory, comm)
    calls = fixtures.make_calls(fixtures.random_steps(comm.rank, 1))
    with fixtures.open_batches(backend, access, directory, calls, comm) as batches:
        for _ in range(2):
            fixtures.begin_batches(batches, access, calls, comm)
            batches.wait(0)
            assert batches.run(lambda: comm.rank) == comm.rank
            batches.end()


def check_cut_batch(
    backend: Backend, access: Access, directory: Path, comm: MPI.Intracomm
) -> tuple[ExecutionError, ...]:
    """Check that a rank that reads beyond the end of a file fails in that step alone, and the others continue.

    Returns the error, on the last rank. Collective.
    """
    fixtures.write_files(directory, comm)
    last = comm.rank == comm.size - 1
    rows = [(0, 0, 100), (0, fixtures.SIZE - 50, 100)] if last else [(0, 0, 100)]
    calls = fixtures.make_calls([[(0, 5, 10)], rows, [(0, 9, 10)], []])
    failures = {}
    with fixtures.open_batches(backend, access, directory, calls, comm) as batches:
        fixtures.begin_batches(batches, access, calls, comm)
        for step in range(4):
            try:
                batches.wait(step)
            except ExecutionError as error:
                failures[step] = error
        batches.end()
    assert list(failures) == ([1] if last else []), f"steps {list(failures)} failed"
    for failure in failures.values():
        assert failure.code == "R401", f"a file that is too short has code R401: {failure}"
        _check_message(failure, fixtures.fixture_name(0), f"offset {fixtures.SIZE - 50}")
    return tuple(failures.values())


# ---- writers ------------------------------------------------------------------------------------------------------


def check_writing(backend: Backend, access: Access, directory: Path, comm: MPI.Intracomm) -> None:
    """Check that ranks write a file together, one of them fewer bytes, and that the old content is gone. Collective."""
    path, piece = directory / "written", 1000
    if comm.rank == 0:
        path.write_bytes(b"x" * 100_000)
    comm.Barrier()
    handles = _count_descriptors()
    writer = make_writer(backend, access, path, comm)
    written = 0
    for turn in (2, 0, 1):
        data = bytes([turn * 16 + comm.rank]) * piece
        if turn == 1 and comm.rank == comm.size - 1:
            data = b""
        writer.write((turn * comm.size + comm.rank) * piece, memoryview(data))
        written += len(data)
    writer.sync()
    writer.close()
    writer.close()
    assert _count_descriptors() <= handles or access.is_mpi, "the file stays open after `close`"
    meter = writer.meter
    assert writer.path == path, "`path` is the file"
    assert meter.sync_ns > 0, "`sync_ns` is the time that syncing took"
    assert meter.opens == 1, "`opens` counts the file"
    assert meter.calls == len(meter.call_ns) > 0, f"{meter.calls} calls have {len(meter.call_ns)} latencies"
    assert meter.moved == written, f"`moved` is {meter.moved} of {written} bytes written"
    comm.Barrier()
    whole = bytearray(3 * comm.size * piece)
    for turn, rank in product(range(3), range(comm.size)):
        if (turn, rank) != (1, comm.size - 1):
            at = (turn * comm.size + rank) * piece
            whole[at : at + piece] = bytes([turn * 16 + rank]) * piece
    assert path.read_bytes() == whole, "the bytes are at their offsets"
    comm.Barrier()
    make_writer(backend, access, path, comm, create=False).close()
    comm.Barrier()
    assert path.read_bytes() == whole, "opening a file that is there leaves it as it is"


def check_unwritable(backend: Backend, access: Access, directory: Path, comm: MPI.Intracomm) -> None:
    """Check that a missing directory and a link are errors with path and reason, on every rank. Collective."""
    target, link = directory / "target", directory / "link"
    if comm.rank == 0:
        target.write_bytes(b"as it was")
        link.symlink_to(target)
    comm.Barrier()
    for path, reason in [(directory / "no" / "where", "No such file"), (link, "symbolic link")]:
        error = _catch_error(make_writer, backend, access, path, comm)
        _check_message(error, str(path), reason)
        assert error.shared == (comm.size > 1), "every rank raises it"
        if backend.writer is not None and not access.is_mpi:
            _check_message(_catch_error(backend.writer, access, path, comm), str(path))
    comm.Barrier()
    assert target.read_bytes() == b"as it was", "nothing is written through a link"
    comm.Barrier()
    if comm.rank == 0:
        link.unlink()
    comm.Barrier()


def check_full(backend: Backend, access: Access, directory: Path) -> ExecutionError:
    """Check that a write without room is an error [R402] with file and offset; return the error."""
    path = directory / "full"
    writer = make_writer(backend, access, path, MPI.COMM_SELF)
    with Path("/dev/full").open("wb") as full:
        for own in list(Path("/proc/self/fd").iterdir()):
            # The open file is full from now on: replaced after opening, since a writer may refuse a device.
            if own.is_symlink() and own.readlink() == path.resolve():
                os.dup2(full.fileno(), int(own.name))
    error = _catch_error(writer.write, 9, memoryview(b"abc"))
    assert error.code == "R402", f"where there is no room the code is R402: {error}"
    _check_message(error, str(path), "offset 9")
    writer.close()
    return error


def _count_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _catch_error(action: Callable[..., object], *arguments: object) -> ExecutionError:
    try:
        action(*arguments)
    except ExecutionError as error:
        return error.with_traceback(None)  # the traceback's frames would keep files open
    raise AssertionError("no ExecutionError was raised")


def _check_message(error: ExecutionError, *texts: str) -> None:
    for text in texts:
        assert text in error.message, f"an error names `{text}`: {error}"
