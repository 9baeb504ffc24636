"""Reading by MPI-IO: one read_at for each call, or one view and one read_at_all for all calls of a step."""

from __future__ import annotations

from operator import length_hint
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import CallBufferCache, CallBuffers, FileReader, Files, time_call
from dliosim.execute.backends.mpiio_files import Spec, close_file, get_hints, mpiio_error, open_file
from dliosim.execute.io_errors import truncation_error
from dliosim.execute.mpi.shared_memory import wait
from dliosim.execute.mpi.world import run_on_first_rank
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.calls import Call


class _MpiReader(FileReader):
    """A reader of files that all ranks of a communicator open by MPI-IO."""

    def __init__(self, access: Access, files: Files, comm: MPI.Intracomm) -> None:
        super().__init__(access, files)
        self._comm = comm
        self._hints = access.hints
        self._granted: dict[str, str] = {}
        self._table: dict[int, MPI.File] = {}

    def active_hints(self) -> dict[str, str]:
        """Return the hints of the file opened first."""
        return self._granted

    def _open(self, file: int) -> MPI.File:
        with time_call(self.meter, "open_ns", Call.MPI_OPEN, file):
            # Only one rank resolves a link: all ranks open the file that it leads to, or none does.
            path = run_on_first_rank(self._comm, lambda: self._files.path(file))
            handle = open_file(self._comm, path, MPI.MODE_RDONLY, self._hints)
        self.meter.opens += 1
        if not self._granted:
            self._granted = get_hints(handle)
        return handle

    def _close_files(self) -> None:
        while self._table:
            file, handle = self._table.popitem()
            self._close_handle(handle, file)

    def _close_handle(self, handle: MPI.File, file: int) -> None:
        with time_call(self.meter, "close_ns", Call.MPI_CLOSE, file):
            close_file(handle, lambda: self._files.path(file))


class IndependentReader(_MpiReader):
    """Reads by MPI_File_read_at, one call a row.

    With `shared` there is one file, number 0, which all ranks of `comm` open in `begin_epoch`. Otherwise, and with
    `open each sample`, each rank opens its files for itself.
    """

    _recorded = Call.MPI_READ

    def __init__(self, access: Access, files: Files) -> None:
        self._shared = files.shared and access.open != "each sample"
        # Several threads may open files at the same time, and MPI forbids that on one communicator.
        super().__init__(access, files, files.comm if self._shared else MPI.COMM_SELF.Dup())
        self._pieces: CallBufferCache[Spec] = CallBufferCache(lambda piece, length: (piece, length, MPI.BYTE))
        self._statuses: list[MPI.Status] = []
        self._closed = False

    def begin_epoch(self) -> None:
        """Open the shared file, unless it is open; needed before `read`. Collective over `comm` if `shared`."""
        if self._shared and not self._table:
            self._table[0] = self._open(0)

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read every call by MPI_File_read_at; return the bytes. Raises ExecutionError."""
        if not len(calls.file):
            return 0
        files = calls.file.tolist()
        cut = self._pieces.cut_buffer(calls, into)
        if self._lifetime == "each sample":
            return self._open_and_read(calls, files, cut)
        table = self._table
        if not self._shared:
            for file in [file for file in dict.fromkeys(files) if file not in table]:
                table[file] = self._open(file)
        return self._read_rows(calls, files, calls.offset.tolist(), cut.pieces, cut.total)

    def close(self) -> None:
        """Close everything. Collective over `comm` if `shared`."""
        super().close()
        self._pieces.release_buffers()
        if not self._shared and not self._closed:
            self._comm.Free()
        self._closed = True

    def _read_rows(self, calls: Calls, files: list[int], offsets: list[int], specs: list[Spec], asked: int) -> int:
        """Read rows whose files are open, `asked` bytes in all; return the bytes."""
        count = len(files)
        # Status objects are kept from step to step: making one for each call would add to the time between calls.
        self._statuses.extend(MPI.Status() for _ in range(count - len(self._statuses)))
        statuses = self._statuses[:count]
        # `map` makes each call when the loop below asks for it: nothing but a clock reading runs between two calls. How
        # many offsets remain tells which call failed.
        remaining = iter(offsets)
        if self._shared:
            reads = map(self._table[0].Read_at, remaining, specs, statuses)
        else:
            reads = map(MPI.File.Read_at, [self._table[file] for file in files], remaining, specs, statuses)
        now = perf_counter_ns
        began = now()
        try:
            stamps = [now() for _ in reads]
        except MPI.Exception as error:
            row = count - length_hint(remaining) - 1
            where = f" of {specs[row][1]} bytes at offset {offsets[row]}"
            raise mpiio_error("MPI_File_read_at", self._files.path(files[row]), error, where) from error
        moved = sum(map(MPI.Status.Get_count, statuses))
        if moved != asked:
            got = [status.Get_count() for status in statuses]
            row = next(row for row in range(count) if got[row] != specs[row][1])
            path = self._files.path(files[row])
            raise truncation_error("MPI_File_read_at", path, offsets[row], specs[row][1], got[row])
        meter = self.meter
        meter.add_run(began, stamps, calls)
        meter.calls += count
        meter.moved += moved
        return moved

    def _open_and_read(self, calls: Calls, files: list[int], cut: CallBuffers[Spec]) -> int:
        """Open, read and close a file for each sample; the calls of one sample share the handle. Return the bytes."""
        offsets = calls.offset.tolist()
        moved = 0
        for first, last in self._sample_bounds(calls):
            self._table[files[first]] = self._open(files[first])
            rows = slice(first, last)
            lengths, part = cut.lengths[rows], calls.part(first, last)
            moved += self._read_rows(part, files[rows], offsets[rows], cut.pieces[rows], sum(lengths))
            self._close_files()
        return moved


class CollectiveReader(_MpiReader):
    """Reads the calls of a step (or of one round of it) by one view and one MPI_File_read_at_all.

    There is one file, number 0. The view has the calls in the order of the file, which MPI requires. If the buffer has
    the same order, the memory is one contiguous piece; otherwise a memory type puts each call at its place. Bytes that
    a step asks for twice (`last batch pad` wraps round) are read once and copied: MPICH 4.1.3's ROMIO ends the job for
    views that overlap. A rank without calls takes part with an empty view. Every method except `active_hints` is
    collective over `comm`, and no other thread may use `comm`.

    If a file ends too early, ROMIO's status shows it with some hints and not with others; only the file's size always
    shows it. The size is read when an epoch begins, and no read may go beyond it. It is read again when the epoch ends:
    if the file was cut in between, the buffer may still hold the same samples from before, and their check succeeds.
    """

    _recorded = Call.MPI_READ_ALL

    def __init__(self, access: Access, files: Files) -> None:
        super().__init__(access, files, files.comm)
        self._size = 0
        self._status = MPI.Status()
        self._file_type = _CachedDatatype()
        self._memory_type = _CachedDatatype()

    def begin_epoch(self) -> None:
        """Open the file, unless it is open, and read its size. Collective."""
        self._size = self._query_size(self._open_handle())

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read every call by one collective call; return the bytes. Collective. Raises ExecutionError.

        A call beyond the end of the file is an error only after the collective call: the other ranks wait in it.
        """
        handle = self._open_handle()
        # The time of the view goes into `view_ns`: it is no part of the latency of the read.
        began = perf_counter_ns()
        count, asked = len(calls.length), int(calls.length.sum())
        moved, end = asked, 0
        copies: list[tuple[int, int, int]] = []
        try:
            if count:
                # The displacements of a view may not decrease.
                order = np.argsort(calls.offset, kind="stable")
                offset, length, start = calls.offset[order], calls.length[order], calls.start[order]
                if (offset[1:] < offset[:-1] + length[:-1]).any():
                    offset, length, start, copies = _remove_overlaps(offset, length, start)
                    moved = int(length.sum())
                end = int(offset[-1] + length[-1])
                # Displacements count from the first call, so steps of the same shape at other places share one type.
                file_type = self._file_type.commit_type(offset - offset[0], length)
                memory = self._memory_spec(into, start, length, moved)
                handle.Set_view(int(offset[0]), MPI.BYTE, file_type)
            else:
                # Set_view and Read_at_all are collective: the other ranks would wait forever if this one left them out.
                memory = into, 0, MPI.BYTE
                handle.Set_view(0, MPI.BYTE, MPI.BYTE)
            viewed = perf_counter_ns()
            handle.Read_at_all(0, memory, self._status)
            ended = perf_counter_ns()
        except MPI.Exception as error:
            where = f" of {count} pieces, {asked} bytes"
            raise mpiio_error("MPI_File_read_at_all", self._files.path(0), error, where) from error
        meter = self.meter
        meter.view_ns += viewed - began
        if meter.log is not None and moved < asked:
            meter.log.add_short(0, moved, ended)
        meter.add_run(viewed, (ended,), calls)
        meter.calls += 1
        meter.moved += moved
        if end > self._size:
            row = int(np.argmax(calls.offset + calls.length > self._size))
            first, asked = int(calls.offset[row]), int(calls.length[row])
            got = max(0, self._size - first)
            raise truncation_error("MPI_File_read_at_all", self._files.path(0), first, asked, got)
        for source, target, size in copies:
            into[target : target + size] = into[source : source + size]
        return asked

    def _memory_spec(self, into: memoryview, start: NDArray[np.int64], length: NDArray[np.int64], total: int) -> Spec:
        """Return the memory for a view of `total` bytes, whose pieces of `length` bytes belong at `start` of `into`."""
        if (start[1:] == start[:-1] + length[:-1]).all():
            return into[int(start[0]) :], total, MPI.BYTE
        return into, 1, self._memory_type.commit_type(start, length)

    def end_epoch(self) -> None:
        """Check that the file was not cut short, and close it with `open each epoch`. Collective.

        Raises ExecutionError [R401].
        """
        size = self._query_size(self._open_handle())
        if size < self._size:
            text = f"MPI_File_get_size of {self._files.path(0)} gave {size} bytes, and {self._size} before"
            failure = ExecutionError(f"{text}: the file was cut short while it was read", "R401")
            failure.shared = self._comm.size > 1
            raise failure
        super().end_epoch()

    def close(self) -> None:
        """Close the file and free the datatypes. Collective."""
        super().close()
        self._file_type.free()
        self._memory_type.free()

    def _open_handle(self) -> MPI.File:
        if not self._table:
            self._table[0] = self._open(0)
        return self._table[0]

    def _query_size(self, handle: MPI.File) -> int:
        """Return the file's size in bytes. One rank asks, as each request goes to all servers of the file system."""
        size = np.zeros(1, np.int64)

        def get_size() -> None:
            try:
                size[0] = handle.Get_size()
            except MPI.Exception as error:
                raise mpiio_error("MPI_File_get_size", self._files.path(0), error) from error

        run_on_first_rank(self._comm, get_size)
        wait(self._comm.Ibcast(size), self._comm.size)
        return int(size[0])


class _CachedDatatype:
    """An indexed datatype of bytes. It is made again only if its shape differs from the last one."""

    def __init__(self) -> None:
        self._shape: tuple[bytes, bytes] | None = None
        self._type = MPI.DATATYPE_NULL

    def commit_type(self, displacement: NDArray[np.int64], length: NDArray[np.int64]) -> MPI.Datatype:
        """Return the committed type whose pieces have these displacements and lengths, bytes, shape (n,) both."""
        shape = displacement.tobytes(), length.tobytes()
        if shape != self._shape:
            self.free()
            # Lists, because numpy arrays take nearly twice as long here.
            if (length == length[0]).all():
                made = MPI.BYTE.Create_hindexed_block(int(length[0]), displacement.tolist())
            else:
                made = MPI.BYTE.Create_hindexed(length.tolist(), displacement.tolist())
            self._type, self._shape = made.Commit(), shape
        return self._type

    def free(self) -> None:
        """Free the type, if there is one."""
        if self._shape is not None:
            self._type.Free()
            self._shape = None


def _remove_overlaps(
    offset: NDArray[np.int64], length: NDArray[np.int64], start: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], list[tuple[int, int, int]]]:
    """Cut from each call the bytes that an earlier one reads; return offset, length and start of the rest, and copies.

    Calls are in the order of the file. Copies are (source, target, bytes) in the buffer, to be made in order.
    """
    kept: list[tuple[int, int, int]] = []
    copies: list[tuple[int, int, int]] = []
    reached = from_start = 0  # the farthest byte so far; the place in the buffer less that in the file, for its call
    for at, size, target in zip(offset.tolist(), length.tolist(), start.tolist(), strict=True):
        had = max(0, min(size, reached - at))
        if had:
            copies.append((at + from_start, target, had))
        if had < size:
            kept.append((at + had, size - had, target + had))
            reached, from_start = at + size, target - at
    rows = np.array(kept, np.int64)
    return rows[:, 0], rows[:, 1], rows[:, 2], copies
