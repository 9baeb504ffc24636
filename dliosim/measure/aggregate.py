"""Figures of several epochs of a loop together; None where one of them has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dliosim.measure.epoch_summaries import EpochSummary, TimeSpread
from dliosim.measure.histogram import Quantiles, merge_histograms


@dataclass(frozen=True, slots=True)
class Latencies:
    """The quantiles of a loop's latencies of each kind, None where there were none."""

    batch: Quantiles | None
    call: Quantiles | None
    request: Quantiles | None


def utilization(epochs: Sequence[EpochSummary]) -> float | None:
    """The mean of theirs, a ratio."""
    known = [epoch.utilization for epoch in epochs if epoch.utilization is not None]
    return sum(known) / len(known) if known and len(known) == len(epochs) else None


def bytes_per_second(epochs: Sequence[EpochSummary]) -> float | None:
    """All their bytes by all their time; None where nothing was read."""
    seconds = sum(epoch.loop_seconds for epoch in epochs)
    if seconds <= 0 or any(epoch.null for epoch in epochs):
        return None
    return sum(epoch.bytes for epoch in epochs) / seconds


def samples_per_second(epochs: Sequence[EpochSummary]) -> float | None:
    """All their samples by all their time."""
    seconds = sum(epoch.loop_seconds for epoch in epochs)
    return sum(epoch.samples for epoch in epochs) / seconds if seconds > 0 else None


def latencies(epochs: Sequence[EpochSummary]) -> Latencies:
    """Of the latencies of all epochs together: one histogram, not a mean or a median of quantiles."""
    return Latencies(
        merge_histograms(epoch.batch_latency for epoch in epochs).quantiles(),
        merge_histograms(epoch.call_latency for epoch in epochs).quantiles(),
        merge_histograms(epoch.request_latency for epoch in epochs).quantiles(),
    )


def main_latency(epochs: Sequence[EpochSummary]) -> tuple[str, Quantiles | None]:
    """`request` where there are requests, else `batch` (what steps waited for data), and those latencies together."""
    found = latencies(epochs)
    return ("request", found.request) if found.request is not None else ("batch", found.batch)


def core_wait_share(epochs: Sequence[EpochSummary]) -> float | None:
    """What of the time of these steps a rank waited for a core on average; None where a kernel does not count it."""
    return _loop_share([epoch.core_wait_seconds for epoch in epochs], epochs)


def reader_core_wait_share(epochs: Sequence[EpochSummary], readers: int) -> float | None:
    """As `core_wait_share`, of each of a rank's `readers`; None without any."""
    share = _loop_share([epoch.reader_core_wait_seconds for epoch in epochs], epochs)
    return None if share is None or not readers else share / readers


def _loop_share(times: Sequence[TimeSpread | None], epochs: Sequence[EpochSummary]) -> float | None:
    known, seconds = [time.mean for time in times if time is not None], sum(epoch.loop_seconds for epoch in epochs)
    return sum(known) / seconds if seconds > 0 and len(known) == len(times) else None


def processing_share(epochs: Sequence[EpochSummary], readers: int) -> float:
    """What of the time that reading, decoding and preprocessing took whoever reads went into the latter two.

    I/O busy is of all `readers` (0: the step itself) together, so that it counts for as many of them as had calls in
    flight. 0 where nothing was decoded.
    """
    processed = sum(epoch.decode_seconds.mean + epoch.preprocess_seconds.mean for epoch in epochs)
    reading = sum(epoch.io_busy_seconds.mean * min(max(epoch.depth or 1.0, 1.0), max(readers, 1)) for epoch in epochs)
    return processed / (processed + reading) if processed > 0 else 0.0
