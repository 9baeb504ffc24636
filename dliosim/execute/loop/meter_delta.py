"""Counts of a loop's readers; the figures of an epoch are the differences between its end and its start."""

from __future__ import annotations

from dataclasses import dataclass

from dliosim.execute.batches.prefetch import Batches
from dliosim.execute.loop.epoch_plan import EpochSource
from dliosim.measure.records import EpochRecord
from dliosim.measure.time_series import EpochSeries


@dataclass(frozen=True, slots=True)
class MeterSnapshot:
    """Sums over the meters of all readers at one moment."""

    #: read calls
    calls: int
    #: bytes that the calls moved
    moved: int
    #: files opened
    opens: int
    #: ns of opening and closing files
    open_ns: int
    #: ns of setting file views
    view_ns: int

    @classmethod
    def read_meters(cls, batches: Batches) -> MeterSnapshot:
        """Sum the meters of the readers of a loop now."""
        meters = [reader.meter for reader in batches.readers]
        return cls(
            sum(meter.calls for meter in meters),
            sum(meter.moved for meter in meters),
            sum(meter.opens for meter in meters),
            sum(meter.open_ns + meter.close_ns for meter in meters),
            sum(meter.view_ns for meter in meters),
        )


def record_epoch_delta(
    source: EpochSource, record: EpochRecord, series: EpochSeries, before: MeterSnapshot, after: MeterSnapshot
) -> None:
    """Enter the counts between two snapshots into `record`, and the times of the read calls into `series`."""
    record.io_busy_ns += source.meters.collect_busy(record.call_latency, series) + source.meters.collect_rest(series)
    record.calls = after.calls - before.calls
    record.bytes_moved = after.moved - before.moved
    record.opens = after.opens - before.opens
    record.open_ns = after.open_ns - before.open_ns
    record.view_ns = after.view_ns - before.view_ns
    record.unchecked_bytes = source.unchecked
