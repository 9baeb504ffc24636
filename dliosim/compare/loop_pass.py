"""The figures of one pass of a loop: a row of the raw table, and the input of all statistics."""

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

#: Where a rank reads less than this share of what it asked for, another rank has read the rest.
_READ_BY_OTHERS = 0.5


@dataclass(frozen=True, slots=True)
class LoopPass:
    """One whole pass of the loop that is compared.

    Times are seconds: means over ranks, summed over epochs, except `seconds`.
    """

    block: int  #: block of the pass; 0: the warm-up
    position: int  #: number among all passes, in the order in which they ran
    variant: int  #: index of the variant
    seconds: float  #: wall time of the slowest rank over all epochs, blocking checkpoints included
    samples: int  #: samples of all ranks
    bytes: int  #: bytes asked, of all ranks
    bytes_moved: int  #: bytes of all calls
    calls: int  #: read calls of all ranks
    opens: int  #: opens of files of all ranks
    data_wait: float  #: steps waiting for batches
    compute: float  #: computing
    sync_wait: float  #: waiting in syncs
    arrival_wait: float  #: waiting for requests
    checkpoint: float  #: saving checkpoints
    processing: float  #: the part of `decode` and `preprocess` that is inside steps
    tool: float  #: work of dliosim itself
    io_busy: float  #: time with a read call in flight
    decode: float  #: decoding, by the threads that read
    preprocess: float  #: preprocessing, by the threads that read
    open_close: float  #: opening and closing files
    view: float  #: setting file views
    utilization: float | None  #: mean over epochs; None where an epoch has none
    amplification: float | None  #: bytes of read calls divided by bytes asked
    storage_amplification: float | None  #: bytes from the device divided by bytes asked
    #: bytes from the device divided by the distinct bytes asked; None where either is unknown or 0
    device_share: float | None
    depth: float | None  #: mean number of calls in flight on a rank
    resident_share: float | None  #: share of the bytes in the page cache when it began; None: not known
    two_phase: str  #: `engaged`, `not engaged` or `unknown` for collective reads, else empty
    order_hash: int  #: hash of samples in their order, over all epochs
    extent_hash: int  #: hash of extents, over all epochs
    latency: Histogram  #: waits of steps for a batch
    #: share of the time of its steps that a rank waited for a core; None where the kernel does not count it
    core_wait_share: float | None = None

    @property
    def comparison_time(self) -> float:
        """Seconds a sample: variants that leave out different numbers of samples can be compared by it."""
        return self.seconds / self.samples

    @property
    def samples_per_second(self) -> float:
        """Samples of all ranks divided by `seconds`."""
        return self.samples / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """Bytes of all ranks divided by `seconds`."""
        return self.bytes / self.seconds


def make_loop_pass(
    phase: PhaseSummary, rank_rows: NDArray[np.int64] | None, together: int, block: int, position: int, variant: int
) -> LoopPass:
    """Return the figures of a loop's phase.

    `rank_rows` are those of `measure.summary.gather_ranks`; `together` is the number of ranks that open a shared file
    together.
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
    """Return whether aggregators read for other ranks, in a loop that `together` ranks read collectively.

    The hints that ROMIO granted decide where they say so. Where ROMIO decides itself (`automatic`, its default),
    another rank has read for a rank if the rank's own read calls brought less than it asked for. Where all ranks are
    aggregators the state stays unknown.
    """
    if phase.api != "mpi-collective":
        return ""
    if together < 2:
        return "not engaged"  # for any hints: there is no other rank to read for
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
