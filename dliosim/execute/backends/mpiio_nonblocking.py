"""Reading by MPI-IO with several calls in flight: MPI_File_iread_at (`engine queued` with `api mpi-independent`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI

from dliosim.execute.backends.contract import CallBuffers, Files
from dliosim.execute.backends.mpiio_files import Spec, mpiio_error
from dliosim.execute.backends.mpiio_reader import IndependentReader
from dliosim.execute.io_errors import truncation_error
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls, sample_heads
from dliosim.trace.calls import Call


def keep_in_flight(
    count: int, depth: int, issue: Callable[[int], MPI.Request], back: Callable[[int, MPI.Status, int], None]
) -> None:
    """Issue requests 0 to `count` - 1 with at most `depth` in flight, and wait for all.

    `issue` makes a request; `back` gets its number, its status and the time of its completion (perf_counter_ns). An
    error of either, and the MPI.Exception of a request that failed, are raised only when nothing is in flight: until
    then requests still fill their buffers.
    """
    requests: list[MPI.Request] = []
    numbers: list[int] = []
    statuses = [MPI.Status() for _ in range(min(depth, count))]
    issued = 0
    try:
        while issued < count or requests:
            while issued < count and len(requests) < depth:
                requests.append(issue(issued))
                numbers.append(issued)
                issued += 1
            done = MPI.Request.Waitsome(requests, statuses[: len(requests)]) or []
            now = perf_counter_ns()
            for at, status in zip(done, statuses, strict=False):
                back(numbers[at], status, now)
            left = [at for at, request in enumerate(requests) if request != MPI.REQUEST_NULL]
            requests, numbers = [requests[at] for at in left], [numbers[at] for at in left]
    except BaseException:
        for request in requests:
            with suppress(MPI.Exception):
                request.Wait()
        raise


_CALL = "MPI_File_iread_at"


class QueuedIndependentReader(IndependentReader):
    """Reads by MPI_File_iread_at, one call a row, with up to `Access.depth` calls in flight.

    With `open each sample` as many files are open as calls are in flight.
    """

    _recorded = Call.MPI_QUEUED_READ

    def __init__(self, access: Access, files: Files) -> None:
        """Prepare to read, as `IndependentReader` does, at the depth of `access`."""
        super().__init__(access, files)
        self._depth = access.depth
        self.meter.how = f"queued by {_CALL}"

    def _read_rows(self, calls: Calls, files: list[int], offsets: list[int], specs: list[Spec], asked: int) -> int:
        """Read rows whose files are open; return the bytes."""
        table = self._table
        return self._read_queued(calls, offsets, specs, lambda row: table[files[row]], lambda row: None)

    def _open_and_read(self, calls: Calls, files: list[int], cut: CallBuffers[Spec]) -> int:
        """Open each sample's file with its first call, and close it when all of its calls are complete."""
        sample = np.cumsum(sample_heads(calls, self._merged)) - 1
        left: list[int] = np.bincount(sample).tolist()
        of_row: list[int] = sample.tolist()
        opened: dict[int, MPI.File] = {}

        def open_sample(row: int) -> MPI.File:
            if of_row[row] not in opened:
                opened[of_row[row]] = self._open(files[row])
            return opened[of_row[row]]

        def close_sample(row: int) -> None:
            left[of_row[row]] -= 1
            if not left[of_row[row]]:
                self._close_handle(opened.pop(of_row[row]), files[row])

        try:
            return self._read_queued(calls, calls.offset.tolist(), cut.pieces, open_sample, close_sample)
        finally:
            # Files are left here only after an error; nothing is in flight then.
            for number, kept in opened.items():
                self._close_handle(kept, files[of_row.index(number)])

    def _read_queued(
        self,
        calls: Calls,
        offsets: list[int],
        specs: list[Spec],
        handle: Callable[[int], MPI.File],
        release: Callable[[int], None],
    ) -> int:
        """Read all rows and return the bytes; `handle` gives a row's open file, `release` gets each complete row."""
        files: list[int] = calls.file.tolist()
        began, ended = np.zeros((2, len(files)), np.int64)
        got: list[int] = [0] * len(files)

        def issue(row: int) -> MPI.Request:
            file = handle(row)
            began[row] = perf_counter_ns()
            return file.Iread_at(offsets[row], specs[row])

        def complete_row(row: int, status: MPI.Status, now: int) -> None:
            ended[row] = now
            got[row] = status.Get_count()
            piece, length, kind = specs[row]
            if 0 < got[row] < length:
                # ROMIO makes one system call for the request, which moves less than 2 GiB.
                rest = piece[got[row] :], length - got[row], kind
                handle(row).Read_at(offsets[row] + got[row], rest, status)
                got[row] += status.Get_count()
                self.meter.calls += 1
            release(row)

        try:
            keep_in_flight(len(files), self._depth, issue, complete_row)
        except MPI.Exception as error:
            where = f", one of {len(files)} of up to {max(spec[1] for spec in specs)} bytes,"
            place = self._files.path(files[0]) if len(set(files)) == 1 else str(self._files.directory)
            raise mpiio_error(_CALL, place, error, where) from error
        meter = self.meter
        meter.add_overlapping(began, ended, rows=calls)
        meter.calls += len(files)
        meter.moved += sum(got)
        for row, spec in enumerate(specs):
            if got[row] != spec[1]:
                raise truncation_error(_CALL, self._files.path(files[row]), offsets[row], spec[1], got[row])
        return sum(got)
