"""The protocols of backends: read the calls of a step into a buffer, write ranges of a file, meter both; buffers."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.measure.rank.meter import Meter, Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Access, Dataset
from dliosim.plan.samples.io_requests import Calls, sample_heads
from dliosim.trace.calls import Call
from dliosim.trace.recorder import count_unseen

if TYPE_CHECKING:
    from mpi4py import MPI  # reader processes have no MPI


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a reader, by number."""

    #: the directory of the files
    directory: Path
    #: returns the path of a file below `directory`
    name: Callable[[int], str]
    #: returns the planned bytes of a file
    size: Callable[[int], int]
    #: there is one file only, which all ranks of `comm` open together
    shared: bool
    #: the ranks that open together; with mpi-collective only the reading thread may use it. A reader process has none
    comm: MPI.Intracomm
    #: the data set of the files, for the format's library; None if they belong to no data set
    dataset: Dataset | None = None

    def path(self, file: int) -> str:
        """Return the path of a file."""
        return f"{self.directory}/{self.name(file)}"


class Reader(Protocol):
    """Reads for one thread of one rank, with its own handles, which it opens and closes as `Access.open` says.

    A backend makes a reader for one data set (or checkpoint) and one thread.
    """

    #: counts and times of this reader's calls; only the reader writes to it
    meter: Meter

    def begin_epoch(self) -> None:
        """Open the shared file, unless it is open. Collective if a shared file is read by MPI-IO."""

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read every call into `into[start:start + length]`; return the bytes that the calls returned.

        These are the bytes asked for; with O_DIRECT those of the widened calls, as far as the file reaches. A rank may
        have no calls in a step: then it opens and reads nothing, but takes part in what all ranks do together.
        Raises ExecutionError, naming file, offset and call, if a call fails or returns less than planned.
        """

    def end_epoch(self) -> None:
        """Close the files with `open each epoch`. Collective if `begin_epoch` is."""

    def active_hints(self) -> dict[str, str]:
        """Return the hints (MPI_Info) of the file opened last, or {}. Local."""
        return {}

    def close(self) -> None:
        """Close everything; safe to call twice. Collective if `begin_epoch` is."""


class FileReader(Reader, ABC):
    """A reader that opens files when it first needs them, and keeps them open as `Access.open` says."""

    #: the call that reads what is planned, in the trace of a run
    _recorded = Call.READ

    def __init__(self, access: Access, files: Files) -> None:
        """Prepare to read; open no file."""
        self.meter = Meter(files.path, self._recorded)
        self._files = files
        self._lifetime = access.open
        self._merged = access.transfer is not None

    def begin_epoch(self) -> None:
        """Do nothing: a file is opened when it is first read."""

    def end_epoch(self) -> None:
        """Close the files with `open each epoch`."""
        if self._lifetime == "each epoch":
            self._close_files()

    def close(self) -> None:
        """Close every file."""
        self._close_files()

    @abstractmethod
    def _close_files(self) -> None:
        """Close the files that are open."""

    def _sample_bounds(self, calls: Calls) -> Iterator[tuple[int, int]]:
        """Return the calls of each sample as [first, last): with `open each sample` they share an open file."""
        heads = np.flatnonzero(sample_heads(calls, self._merged)).tolist()
        return pairwise([*heads, len(calls.file)])


@runtime_checkable
class OverlappingReader(Reader, Protocol):
    """A reader that may begin a batch while the one before is not complete. One thread calls all of its methods."""

    @property
    def has_room(self) -> bool:
        """True if another batch should begin now, if there is one."""

    def begin(self, calls: Calls, into: memoryview) -> None:
        """Begin to read the calls, as `read` would."""

    def advance(self) -> bool:
        """Continue for a while; return whether the oldest batch is complete.

        Raises ExecutionError if no batch can ever be complete.
        """

    def complete(self) -> int:
        """Return or raise for the oldest batch what `read` would."""


class Writer(Protocol):
    """Writes one file, which it has created or opened. A backend makes it."""

    #: counts and times of this writer's calls
    meter: Meter
    #: the file
    path: Path

    def write(self, offset: int, data: memoryview) -> None:
        """Write `data` at `offset` (bytes) in one call. In a collective round `data` may be empty.

        Raises ExecutionError, naming file, offset and call, if it fails or writes less.
        """

    def sync(self) -> None:
        """Make the file durable (fsync or MPI_File_sync); its time is in `meter.sync_ns`, not in the write calls."""

    def active_hints(self) -> dict[str, str]:
        """Return the hints (MPI_Info) of the open file, or {}. Local."""

    def close(self) -> None:
        """Close the file; safe to call twice."""


def close_writer(writer: Writer, record: VerbRecord) -> None:
    """Close a file that was written, and add its hints and meter to `record`. Collective if opening it was."""
    try:
        if record.hints is None:
            record.hints = writer.active_hints()
    finally:
        writer.close()
        record_meter(writer.meter, record)


def record_meter(meter: Meter, record: VerbRecord) -> None:
    """Add the counts and times of a reader or writer to `record`."""
    if meter.log is None:
        count_unseen(meter.calls)
    else:
        meter.log.make_room()
    record.opens += meter.opens
    record.calls += meter.calls
    record.bytes_moved += meter.moved
    record.open_ns += meter.open_ns + meter.close_ns
    record.view_ns += meter.view_ns
    record.file_sync_ns += meter.sync_ns
    latencies = meter.take_latencies()
    record.call_ns += int(latencies.sum())
    record.call_latency.add(latencies)


@contextmanager
def time_call(meter: Meter, column: str, call: Call, file: int = 0) -> Iterator[None]:
    """Add the time of a block to a column of the meter, and record the call that it makes unless that fails."""
    began = perf_counter_ns()
    with Stopwatch(meter, column):
        yield
    meter.log_call(call, began, file)


T = TypeVar("T")

# Layouts whose pieces are kept: one for each slot and group of readers, and those of the last, shorter batches.
_KEPT = 64


def allocate(size: int) -> memoryview:
    """Allocate `size` bytes of private memory, page-aligned (as O_DIRECT needs) and touched; at least one page.

    Raises ExecutionError [R402] if the kernel has no memory.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    try:
        return memoryview(mmap.mmap(-1, max(size, 1), flags=flags))[:size]
    except (OSError, OverflowError, MemoryError) as error:
        raise ExecutionError(f"cannot allocate a buffer of {size} bytes: {error}", "R402") from error


def address_of(buffer: memoryview) -> int:
    """Return the memory address of a buffer."""
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


@dataclass(frozen=True, slots=True)
class CallBuffers(Generic[T]):
    """The buffer of a step in pieces, one for each call, in order."""

    #: the object that the backend passes to each call
    pieces: list[T]
    #: bytes of each call
    lengths: list[int]
    #: bytes of all calls
    total: int


class CallBufferCache(Generic[T]):
    """Cuts a step's buffer into one object a call, and keeps these for steps with the same pieces.

    Making a slice costs as much as a tenth of a 4 KiB read. If all samples have one size, the slices are the same in
    every step.
    """

    def __init__(self, make: Callable[[memoryview, int], T]) -> None:
        """Keep `make`, which turns a piece and its length into the object that the backend passes to its call."""
        self._make = make
        self._kept: dict[tuple[int, bytes, bytes], tuple[memoryview, CallBuffers[T]]] = {}

    def cut_buffer(self, calls: Calls, into: memoryview) -> CallBuffers[T]:
        """Return the pieces of `into` that the calls fill."""
        length = calls.length
        if length[0] != length[-1]:  # of varying size: hardly any step has the pieces of another
            return self._slice_buffer(calls, into)
        layout = (id(into), calls.start.tobytes(), length.tobytes())
        kept = self._kept.get(layout)
        if kept is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            # The buffer is kept with its pieces: its id is the key, and no other object may get the same id.
            kept = self._kept[layout] = into, self._slice_buffer(calls, into)
        return kept[1]

    def _slice_buffer(self, calls: Calls, into: memoryview) -> CallBuffers[T]:
        make, lengths = self._make, calls.length.tolist()
        starts = calls.start.tolist()
        pieces = [make(into[start : start + length], length) for start, length in zip(starts, lengths, strict=True)]
        return CallBuffers(pieces, lengths, sum(lengths))

    def release_buffers(self) -> None:
        """Drop all references to buffers."""
        self._kept.clear()


def only_file(calls: Calls) -> int | None:
    """Return the file that all calls read, or None if there are several. There must be a call."""
    files = calls.file
    first = int(files[0])
    # Not `all`, which takes three times as long.
    return first if len(files) == 1 or np.count_nonzero(files == first) == len(files) else None
