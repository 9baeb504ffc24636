"""Figures over several epochs of a loop; None if one of the epochs lacks the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dliosim.measure.figures.declaration import TimeSpread, latency_kinds, name_part, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.rank.histogram import Quantiles, merge_histograms

#: Quantiles of the latencies of each kind (`figures.latency_kinds`); None if there are none.
Latencies: TypeAlias = dict[str, Quantiles | None]


def utilization(epochs: Sequence[EpochSummary]) -> float | None:
    """Return the mean utilization of the epochs, a ratio."""
    known = [epoch.utilization for epoch in epochs if epoch.utilization is not None]
    return sum(known) / len(known) if known and len(known) == len(epochs) else None


def bytes_per_second(epochs: Sequence[EpochSummary]) -> float | None:
    """Return all bytes / all time in the loop, in bytes/s; None if nothing was read."""
    seconds, whole = sum(epoch.loop_seconds for epoch in epochs), sum(epoch.bytes for epoch in epochs)
    return whole / seconds if whole and seconds > 0 and not any(epoch.null for epoch in epochs) else None


def samples_per_second(epochs: Sequence[EpochSummary]) -> float | None:
    """Return all samples / all time in the loop, in samples/s; None without samples."""
    seconds, samples = sum(epoch.loop_seconds for epoch in epochs), sum(epoch.samples for epoch in epochs)
    return samples / seconds if samples and seconds > 0 else None


def mean_by_bytes(figure: str, epochs: Sequence[EpochSummary]) -> float | None:
    """Return the mean of a ratio to the bytes asked, weighted by these; None without any bytes."""
    known = [(getattr(epoch, figure), epoch.bytes) for epoch in epochs if epoch.bytes]
    if not known or any(ratio is None for ratio, _ in known):
        return None
    return float(sum(ratio * weight for ratio, weight in known) / sum(weight for _, weight in known))


def latencies(epochs: Sequence[EpochSummary]) -> Latencies:
    """Return the quantiles of the latencies of all epochs.

    They come from one merged histogram, since a mean or median of quantiles is no quantile.
    """
    return {
        kind: merge_histograms(getattr(epoch, f"{kind}_latency") for epoch in epochs).quantiles()
        for kind in latency_kinds(EpochSummary)
    }


def time_shares(epochs: Sequence[EpochSummary]) -> dict[str, float]:
    """Return the share of each part but checkpoints in the time of all ranks."""
    parts = {
        name_part(name): sum(getattr(one, name).mean for one in epochs)
        for name in time_parts(EpochSummary)
        if name != "checkpoint_seconds"
    }
    whole = sum(parts.values())
    return {part: time / whole for part, time in parts.items()} if whole > 0 else {}


def core_wait_share(epochs: Sequence[EpochSummary]) -> float | None:
    """Return the mean share of the loop time in which a rank waited for a core.

    None if the kernel does not count it.
    """
    return _loop_share([epoch.core_wait_seconds for epoch in epochs], epochs)


def reader_core_wait_share(epochs: Sequence[EpochSummary], readers: int) -> float | None:
    """Return the mean share of the loop time in which each of a rank's `readers` waited for a core.

    None without readers, and if the kernel does not count it.
    """
    share = _loop_share([epoch.reader_core_wait_seconds for epoch in epochs], epochs, max(readers, 1))
    return None if share is None or not readers else share


def _loop_share(times: Sequence[TimeSpread | None], epochs: Sequence[EpochSummary], threads: int = 1) -> float | None:
    known, seconds = [time.mean for time in times if time is not None], sum(epoch.loop_seconds for epoch in epochs)
    if seconds <= 0 or len(known) < len(times):
        return None
    # The kernel's count begins before the loop's clock and ends after it, by the time of reading it.
    return min(sum(known) / seconds / threads, 1.0)


def processing_share(epochs: Sequence[EpochSummary], readers: int) -> float:
    """Return the share of decoding and preprocessing in the time of reading, decoding and preprocessing.

    I/O busy is the union over all `readers` (0: the step itself reads), so it is multiplied by the calls in flight. 0
    if nothing was decoded or preprocessed.
    """
    processed = sum(epoch.decode_seconds.mean + epoch.preprocess_seconds.mean for epoch in epochs)
    reading = sum(epoch.io_busy_seconds.mean * min(max(epoch.depth or 1.0, 1.0), max(readers, 1)) for epoch in epochs)
    return processed / (processed + reading) if processed > 0 else 0.0
