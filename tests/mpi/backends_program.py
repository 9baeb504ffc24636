"""Run by every rank of a job: the contract of the backends, each check for each of them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.registry import backend_of, open_readers
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.batches.prefetch import make_batches
from dliosim.execute.node.environment import mpi_io
from dliosim.execute.testing.backend_contract import (
    THREADS,
    check_batches,
    check_cut_batch,
    check_stopping_early,
    check_unwritable,
    check_writing,
)
from dliosim.execute.testing.contract_fixtures import (
    FILES,
    SIZE,
    STEPS,
    begin_batches,
    fixture_name,
    make_calls,
    open_batches,
    random_steps,
    write_files,
)
from dliosim.model import Access

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
FORMS = THREADS


def check_reading(comm: MPI.Intracomm, access: Access, directory: Path, files: int) -> None:
    granted = check_batches(backend_of(access.api), access, directory, comm, files)
    assert bool(granted) == (access.is_mpi and mpi_io({}, os.environ) != "OMPIO")  # which has no hints to grant
    assert not granted or all(granted[key] == value for key, value in access.hints)


def check_truncated(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    for failure in check_cut_batch(backend_of(access.api), access, directory, comm):
        assert "100 bytes at offset 39950 returned 50 on" in failure.message


def check_cut_short(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    """A file that is cut while a buffer holds the same bytes from before: all ranks hear of it when the epoch ends."""
    path = directory / "cut" / fixture_name(0)
    content = np.random.default_rng(5).bytes(SIZE)
    if comm.rank == 0:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    comm.Barrier()
    offset = SIZE - 100 * (comm.rank + 1)
    calls = make_calls([[(0, offset, 100)]])
    with open_batches(backend_of(access.api), access, path.parent, calls, comm) as batches:
        for cut in (False, True):
            begin_batches(batches, access, calls, comm)
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
                assert not cut, "no rank noticed"
        # What was cut before an epoch begins is found by the read that reaches beyond the end.
        begin_batches(batches, access, calls, comm)
        try:
            batches.wait(0)
        except ExecutionError as error:
            assert f"MPI_File_read_at_all of 100 bytes at offset {offset} returned 0 on {path}" in error.message
        else:
            raise AssertionError("no rank noticed")
        batches.end()


def check_missing(comm: MPI.Intracomm, access: Access, directory: Path) -> None:
    (directory / "absent").mkdir(exist_ok=True)
    link = directory / "linked"
    link.mkdir(exist_ok=True)
    if comm.rank == 0:
        (link / fixture_name(0)).symlink_to(directory / fixture_name(0))
    comm.Barrier()
    calls = make_calls([[(0, 0, 10)]])
    for where, reason in [(directory / "absent", ("o such file", "does not exist")), (link, ("symbolic link",))]:
        try:
            with open_batches(backend_of(access.api), access, where, calls, comm) as batches:
                begin_batches(batches, access, calls, comm)
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
        (link / fixture_name(0)).unlink()


def check_null(comm: MPI.Intracomm, directory: Path) -> None:
    """It opens nothing, counts what is asked, and records no latencies."""
    calls = make_calls(random_steps(comm.rank, 1))
    absent = Files(directory / "nothing here", fixture_name, lambda file: SIZE, True, comm)
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


def main(comm: MPI.Intracomm, where: str) -> None:
    directory = Path(where)
    write_files(directory, comm)
    for access, form in product(ACCESSES, FORMS):
        if comm.size > 2 and access.api == "mpi-collective" and form is not FORMS[1]:
            continue  # tens of milliseconds a step where ranks outnumber cores
        if comm.size > 2 and access is QUEUED_BY_MPI and form is not FORMS[0]:
            continue  # the MPI library's own threads come on top
        asked = replace(access, **form)
        print(comm.rank, asked, file=sys.stderr)
        check_reading(comm, asked, directory, 1)
        if comm.size <= 2 or not access.hints:
            check_stopping_early(backend_of(asked.api), asked, directory, comm)
            if access is not QUEUED_BY_MPI or mpi_io({}, os.environ) != "OMPIO":  # which never completes such a read
                check_truncated(comm, asked, directory)
        if access.api != "mpi-collective":
            check_reading(comm, asked, directory, FILES)
            check_reading(comm, replace(asked, open="each sample"), directory, FILES)
    for access, form in product([COLLECTIVE, replace(COLLECTIVE, hints=TUNED)], FORMS[:2]):
        check_cut_short(comm, replace(access, **form), directory)
    for access in [MAPPED, QUEUED, QUEUED_BY_MPI]:
        check_missing(comm, access, directory)
    for access in [Access(), Access(api="mpi-independent"), COLLECTIVE, replace(COLLECTIVE, readers=1, prefetch=2)]:
        check_missing(comm, access, directory)
        check_writing(backend_of(access.api), access, directory, comm)
        check_unwritable(backend_of(access.api), access, directory, comm)
    check_null(comm, directory)
    comm.Barrier()
    if comm.rank == 0:
        print("the contract is whole")


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
