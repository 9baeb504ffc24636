"""The protocols of backends: read the calls of a step into a buffer, write ranges of a file, and account for both."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from dliosim.measure.meter import Meter
from dliosim.measure.records import VerbRecord
from dliosim.plan.samples.io_requests import Calls


class Reader(Protocol):
    """Reads for one thread of one rank; holds its own handles, opened and closed as `Access.open` says.

    A reader is made by its backend for one data set (or checkpoint) and one thread. It records into `meter`, which
    nobody else writes to.
    """

    meter: Meter

    def begin_epoch(self) -> None:
        """Open what all ranks open together, unless it is open. Collective where a shared file is read by MPI-IO."""
        ...

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read every call into `into[start:start + length]`; return the bytes that the calls returned.

        Those are the bytes asked, and with O_DIRECT those of the widened calls, less what lies beyond the file's end. A
        step may have no calls on a rank: then nothing is opened or read, but what all ranks do together.
        Raises ExecutionError, naming file, offset and call, when one fails or returns less than was planned.
        """
        ...

    def end_epoch(self) -> None:
        """Close what `open each epoch` closes. Collective where `begin_epoch` is."""
        ...

    def active_hints(self) -> dict[str, str]:
        """The hints (MPI_Info) of the file opened last, or nothing. Local."""
        ...

    def close(self) -> None:
        """Close everything; safe to call twice. Collective where `begin_epoch` is."""
        ...


@runtime_checkable
class OverlappingReader(Reader, Protocol):
    """A reader that may begin a batch while the one before is not complete; all of this on one thread."""

    @property
    def has_room(self) -> bool:
        """Whether it is time to begin another batch, if there is one."""
        ...

    def begin(self, calls: Calls, into: memoryview) -> None:
        """Begin to read what `read` would."""
        ...

    def advance(self) -> bool:
        """Go on for a while; whether the batch begun first is complete. Raises ExecutionError if none will ever be."""
        ...

    def complete(self) -> int:
        """What `read` would return, or raise, for the batch begun first."""
        ...


class Writer(Protocol):
    """Writes one file that it created or opened; made by its backend."""

    meter: Meter
    path: Path

    def write(self, offset: int, data: memoryview) -> None:
        """Write `data` at `offset` in one call (one of a collective round: `data` may be empty).

        Raises ExecutionError, naming file, offset and call, when it fails or writes less.
        """
        ...

    def sync(self) -> None:
        """Make the file durable (fsync or MPI_File_sync); timed in `meter.sync_ns`, apart from the writes."""
        ...

    def active_hints(self) -> dict[str, str]:
        """The hints (MPI_Info) of the file while it is open, or nothing. Local."""
        ...

    def close(self) -> None:
        """Close; safe to call twice."""
        ...


def close_writer(writer: Writer, record: VerbRecord) -> None:
    """Close a file that was written, and add to the record what was done to it. Collective where opening it was."""
    try:
        if record.hints is None:
            record.hints = writer.active_hints()
    finally:
        writer.close()
        record_meter(writer.meter, record)


def record_meter(meter: Meter, record: VerbRecord) -> None:
    """Add to the record what the reader or writer of one or more files has done."""
    record.opens += meter.opens
    record.calls += meter.calls
    record.bytes_moved += meter.moved
    record.open_ns += meter.open_ns + meter.close_ns
    record.view_ns += meter.view_ns
    record.file_sync_ns += meter.sync_ns
    latencies = meter.take_latencies()
    record.call_ns += int(latencies.sum())
    record.call_latency.add(latencies)
