"""What the readers of a loop have counted, of which an epoch is the difference."""

from __future__ import annotations

from dataclasses import dataclass

from dliosim.execute.batches.prefetch import Batches
from dliosim.execute.loop.epoch_plan import EpochSource
from dliosim.measure.records import EpochRecord
from dliosim.measure.time_series import EpochSeries


@dataclass(frozen=True, slots=True)
class MeterSnapshot:
    """Sums of all readers' meters at one moment."""

    calls: int
    moved: int
    opens: int
    open_ns: int
    view_ns: int

    @classmethod
    def read_meters(cls, batches: Batches) -> MeterSnapshot:
        """Those of the readers of a loop, now."""
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
    """Enter into the record what an epoch's readers have done between two moments, and into the series when."""
    record.io_busy_ns += source.meters.collect_busy(record.call_latency, series) + source.meters.collect_rest(series)
    record.calls = after.calls - before.calls
    record.bytes_moved = after.moved - before.moved
    record.opens = after.opens - before.opens
    record.open_ns = after.open_ns - before.open_ns
    record.view_ns = after.view_ns - before.view_ns
    record.unchecked_bytes = source.unchecked
