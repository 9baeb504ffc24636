"""What a reader or writer has done, added to the record of a verb."""

from __future__ import annotations

from dliosim.execute.backends.contract import Writer
from dliosim.measure.meter import Meter
from dliosim.measure.records import VerbRecord


def finish(writer: Writer, record: VerbRecord) -> None:
    """Close a file that was written, and add to the record what was done to it. Collective where opening it was."""
    try:
        if record.hints is None:
            record.hints = writer.granted()
    finally:
        writer.close()
        account(writer.meter, record)


def account(meter: Meter, record: VerbRecord) -> None:
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
