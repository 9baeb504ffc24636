"""One pass of one variant as figures: what raw rows hold, and what all statistics are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dliosim.measure import aggregate
from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.histogram import Histogram, merge_histograms
from dliosim.measure.phase import PhaseSummary
from dliosim.measure.summary import RANK_COLUMNS

#: Of a rank that reads less than this share of what it asked for, somebody else has read the rest.
_READ_BY_OTHERS = 0.5


@dataclass(frozen=True, slots=True)
class LoopPass:
    """A whole pass of the loop compared. Block 0 is the warm-up; `position` counts all passes in the order they ran.

    `core_wait_share` is what of the time of its steps a rank waited for a core, None where no kernel counts that.
    Times are seconds: `seconds` the wall time of the slowest rank over all epochs, blocking checkpoints included; the
    parts are means over ranks, added up over epochs; `decode` and `preprocess` are whoever read's, `processing` what of
    both lay in the steps themselves. Latencies are what steps waited for a batch. `amplification` is
    bytes through read calls, and `storage_amplification` bytes from the device, by bytes asked. `device_share` is bytes
    from the device by the different bytes that calls asked for, None where either is unknown or 0. `two_phase` is
    `engaged`, `not engaged` or `unknown` where ranks read collectively, and empty elsewhere.
    """

    block: int
    position: int
    variant: int
    seconds: float
    samples: int
    bytes: int
    bytes_moved: int
    calls: int
    opens: int
    data_wait: float
    compute: float
    sync_wait: float
    arrival_wait: float
    checkpoint: float
    processing: float
    tool: float
    io_busy: float
    decode: float
    preprocess: float
    open_close: float
    view: float
    utilization: float | None
    amplification: float | None
    storage_amplification: float | None
    device_share: float | None
    depth: float | None
    resident_share: float | None
    two_phase: str
    order_hash: int
    extent_hash: int
    latency: Histogram
    core_wait_share: float | None = None

    @property
    def comparison_time(self) -> float:
        """Seconds a sample: passes of variants that leave out another rest of the samples still can be compared."""
        return self.seconds / self.samples

    @property
    def samples_per_second(self) -> float:
        """Samples of all ranks by `seconds`."""
        return self.samples / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """Bytes of all ranks by `seconds`."""
        return self.bytes / self.seconds


def make_loop_pass(
    phase: PhaseSummary, rank_rows: NDArray[np.int64] | None, together: int, block: int, position: int, variant: int
) -> LoopPass:
    """The figures of a loop's phase.

    `rank_rows` are as `measure.summary.gather_ranks` gives them; so many ranks opened a shared file `together`.
    """
    epochs = phase.epochs
    io_busy = sum(epoch.io_busy_seconds.mean for epoch in epochs)
    busy = [epoch.utilization for epoch in epochs if epoch.utilization is not None]
    calls = merge_histograms(epoch.call_latency for epoch in epochs)
    ranks = epochs[0].ranks
    return LoopPass(
        block=block,
        position=position,
        variant=variant,
        seconds=sum(epoch.seconds for epoch in epochs),
        samples=sum(epoch.samples for epoch in epochs),
        bytes=sum(epoch.bytes for epoch in epochs),
        bytes_moved=sum(epoch.bytes_moved for epoch in epochs),
        calls=sum(epoch.calls for epoch in epochs),
        opens=sum(epoch.opens for epoch in epochs),
        data_wait=sum(epoch.data_wait_seconds.mean for epoch in epochs),
        compute=sum(epoch.compute_seconds.mean for epoch in epochs),
        sync_wait=sum(epoch.sync_wait_seconds.mean for epoch in epochs),
        arrival_wait=sum(epoch.arrival_wait_seconds.mean for epoch in epochs),
        checkpoint=sum(epoch.checkpoint_seconds.mean for epoch in epochs),
        processing=sum(epoch.processing_seconds.mean for epoch in epochs),
        tool=sum(epoch.tool_seconds.mean for epoch in epochs),
        io_busy=io_busy,
        decode=sum(epoch.decode_seconds.mean for epoch in epochs),
        preprocess=sum(epoch.preprocess_seconds.mean for epoch in epochs),
        open_close=sum(epoch.open_seconds.mean for epoch in epochs),
        view=sum(epoch.view_seconds.mean for epoch in epochs),
        utilization=sum(busy) / len(busy) if busy and len(busy) == len(epochs) else None,
        amplification=_mean_by_bytes(epochs, [epoch.amplification for epoch in epochs]),
        storage_amplification=_mean_by_bytes(epochs, [epoch.storage_amplification for epoch in epochs]),
        device_share=_device_share(epochs),
        depth=calls.sum_ns * 1e-9 / (io_busy * ranks) if io_busy > 0 else None,
        resident_share=phase.resident_share,
        two_phase=find_two_phase_state(phase, rank_rows, together),
        order_hash=sum(epoch.order_hash for epoch in epochs) % 2**64,
        extent_hash=sum(epoch.extent_hash for epoch in epochs) % 2**64,
        latency=merge_histograms(epoch.batch_latency for epoch in epochs),
        core_wait_share=aggregate.core_wait_share(epochs),
    )


def find_two_phase_state(phase: PhaseSummary, rank_rows: NDArray[np.int64] | None, together: int) -> str:
    """Whether aggregators read for other ranks, in a loop that so many ranks read collectively `together`.

    What ROMIO was granted decides where it says so. Where it decides by itself (`automatic`, its default), somebody has
    read for others if a rank's own read calls brought less than it asked for. All ranks being aggregators leaves that
    unknown.
    """
    if phase.api != "mpi-collective":
        return ""
    if together < 2:
        return "not engaged"  # whatever was granted, there is nobody to read for
    hints = dict(phase.hints_granted)
    asked = hints.get("romio_cb_read", "").strip().lower()
    if asked == "disable":
        return "not engaged"
    if asked == "enable":
        return "engaged"
    if rank_rows is None:
        return "unknown"
    through_calls = rank_rows[:, :, RANK_COLUMNS.index("rchar")]
    wanted = rank_rows[:, :, RANK_COLUMNS.index("bytes")].sum(axis=1)
    if (through_calls < 0).any():
        return "unknown"
    if (through_calls.sum(axis=1) < _READ_BY_OTHERS * wanted).any():
        return "engaged"
    aggregators = hints.get("cb_nodes", "")
    return "not engaged" if aggregators.isdigit() and int(aggregators) < together else "unknown"


def _device_share(epochs: Sequence[EpochSummary]) -> float | None:
    known = [epoch.device_bytes for epoch in epochs if epoch.device_bytes is not None]
    different = sum(epoch.unique_bytes for epoch in epochs)
    return sum(known) / different if different and len(known) == len(epochs) else None


def _mean_by_bytes(epochs: Sequence[EpochSummary], ratios: Sequence[float | None]) -> float | None:
    known = [(ratio, epoch.bytes) for ratio, epoch in zip(ratios, epochs, strict=True) if ratio is not None]
    total = sum(size for _, size in known)
    return sum(ratio * size for ratio, size in known) / total if total and len(known) == len(epochs) else None
