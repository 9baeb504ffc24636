"""Formulas of an epoch or verb, from sums and maxima over all ranks; they include DLIO's own figures. Rank 0 only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.epoch_summaries import BoundShares, EpochSummary, TimeSpread, VerbSummary
from dliosim.measure.records import CAUSES, UNCERTAIN, EpochRecord, ReduceResult, unpack_arrivals, unpack_waits
from dliosim.measure.reducer import RATE_UNIT, RATIO_UNIT


def epoch_summary(record: EpochRecord, reduced: ReduceResult) -> EpochSummary:
    """Return the figures of an epoch; `record` is rank 0's own."""
    total, most, arrivals = reduced.total, reduced.most, reduced.vector
    batch, call, request = reduced.histograms
    ranks = total["ranks"]
    bound_by, slowest, slowest_share = _find_slowest_rank(-arrivals)
    nominal = total["compute_ns"] - total["oversleep_ns"]
    called, device, distinct = (_sum_if_known(name, total) for name in UNCERTAIN)
    return EpochSummary(
        epoch=record.epoch,
        ranks=ranks,
        steps=most["steps"],
        fewest_steps=-most["-steps"],
        samples=total["samples"],
        bytes=total["bytes"],
        bytes_moved=total["bytes_moved"],
        calls=total["calls"],
        opens=total["opens"],
        seconds=most["wall_ns"] * 1e-9,
        loop_seconds=most["loop_ns"] * 1e-9,
        steady_seconds=most["steady_ns"] * 1e-9,
        steady_samples=total["steady_samples"],
        utilization=total["ratio"] * RATIO_UNIT / total["ratios"] if total["ratios"] else None,
        utilization_min=-most["-ratio"] * RATIO_UNIT if total["ratios"] else None,
        utilization_max=most["ratio"] * RATIO_UNIT if total["ratios"] else None,
        data_wait_seconds=_spread("data_wait_ns", total, most),
        io_busy_seconds=_spread("io_busy_ns", total, most),
        open_seconds=_spread("open_ns", total, most),
        view_seconds=_spread("view_ns", total, most),
        compute_seconds=_spread("compute_ns", total, most),
        sync_wait_seconds=_spread("sync_wait_ns", total, most),
        arrival_wait_seconds=_spread("arrival_wait_ns", total, most),
        checkpoint_seconds=_spread("checkpoint_ns", total, most),
        processing_seconds=_spread("processing_ns", total, most),
        tool_seconds=_spread("tool_ns", total, most),
        decode_seconds=_spread("decode_ns", total, most),
        preprocess_seconds=_spread("preprocess_ns", total, most),
        batch_latency=batch,
        call_latency=call,
        request_latency=request,
        bound_by=bound_by,
        slowest_rank=slowest,
        slowest_rank_share=slowest_share,
        least_sync_wait_seconds=float(unpack_waits(-arrivals).sum()) * 1e-9 if len(arrivals) else None,
        oversleep_share=total["oversleep_ns"] / nominal if nominal > 0 else None,
        amplification=called / total["bytes"] if called is not None and total["bytes"] else None,
        storage_amplification=device / total["bytes"] if device is not None and total["bytes"] else None,
        distinct_bytes=distinct,
        depth=total["call_ns"] / total["io_busy_ns"] if total["io_busy_ns"] else None,
        dlio_au=total["au"] * RATIO_UNIT / total["aus"] if total["aus"] else None,
        dlio_samples_per_second=total["rate"] * RATE_UNIT if total["rates"] == ranks else None,
        order_hash=(total["order_low"] + (total["order_high"] << 32)) % 2**64,
        extent_hash=(total["extent_low"] + (total["extent_high"] << 32)) % 2**64,
        null=record.null,
        unchecked_bytes=total["unchecked_bytes"],
        content_seconds=_spread("content_ns", total, most),
        core_wait_seconds=_spread_if_known("core_wait_ns", total, most),
        reader_core_wait_seconds=_spread_if_known("reader_core_wait_ns", total, most),
        flush_steps=total["flush_steps"],
        flush_step_seconds=_mean_seconds("flush_steps_ns", "flush_steps", total),
        flush_data_wait_seconds=_mean_seconds("flush_data_wait_ns", "flush_steps", total),
        clear_steps=total["clear_steps"],
        clear_step_seconds=_mean_seconds("clear_steps_ns", "clear_steps", total),
        clear_data_wait_seconds=_mean_seconds("clear_data_wait_ns", "clear_steps", total),
    )


def verb_summary(reduced: ReduceResult) -> VerbSummary:
    """Return the figures of a verb."""
    total, most, (call,) = reduced.total, reduced.most, reduced.histograms
    called, device, distinct = (_sum_if_known(name, total) for name in UNCERTAIN)
    counted = not total["uncounted_files"]
    return VerbSummary(
        ranks=total["ranks"],
        bytes=total["bytes"],
        bytes_moved=total["bytes_moved"] if counted else None,
        files=total["files"],
        calls=total["calls"] if counted else None,
        opens=total["opens"],
        seconds=most["wall_ns"] * 1e-9,
        call_seconds=_spread("call_ns", total, most),
        content_seconds=_spread("content_ns", total, most),
        encode_seconds=_spread("encode_ns", total, most),
        send_seconds=_spread("send_ns", total, most),
        open_seconds=_spread("open_ns", total, most),
        view_seconds=_spread("view_ns", total, most),
        file_sync_seconds=_spread("file_sync_ns", total, most),
        rename_seconds=_spread("rename_ns", total, most),
        delete_seconds=_spread("delete_ns", total, most),
        serialize_seconds=_spread("serialize_ns", total, most),
        plan_seconds=_spread("plan_ns", total, most),
        broadcast_seconds=_spread("broadcast_ns", total, most),
        commit_seconds=_spread("commit_ns", total, most),
        directory_sync_seconds=_spread("directory_sync_ns", total, most),
        manifest_seconds=_spread("manifest_ns", total, most),
        stall_seconds=_spread("stall_ns", total, most),
        wait_seconds=_spread("wait_ns", total, most),
        stage_seconds=_spread("stage_ns", total, most),
        flush_seconds=_spread("flush_ns", total, most),
        drain_seconds=_spread("drain_ns", total, most),
        partner_seconds=_spread("partner_ns", total, most),
        call_latency=call,
        resident_bytes=total["resident_bytes"],
        examined_bytes=total["examined_bytes"],
        drain_bytes=total["drain_bytes"],
        partner_bytes=total["partner_bytes"],
        read_call_bytes=called,
        device_bytes=device,
        distinct_bytes=distinct,
    )


def _sum_if_known(name: str, total: dict[str, int]) -> int | None:
    """Return the sum over all ranks; None where one rank does not know its value."""
    return total[name] if total[f"{name} known"] == total["ranks"] else None


def _spread(name: str, total: dict[str, int], most: dict[str, int]) -> TimeSpread:
    return TimeSpread(total[name] * 1e-9 / total["ranks"], -most[f"-{name}"] * 1e-9, most[name] * 1e-9)


def _spread_if_known(name: str, total: dict[str, int], most: dict[str, int]) -> TimeSpread | None:
    return None if _sum_if_known(name, total) is None else _spread(name, total, most)


def _mean_seconds(times: str, count: str, total: dict[str, int]) -> float | None:
    """Return the mean time in seconds, over all ranks; None where the count is 0."""
    return total[times] * 1e-9 / total[count] if total[count] else None


def _find_slowest_rank(words: NDArray[np.int64]) -> tuple[BoundShares | None, int | None, float | None]:
    """Return the causes of late steps, the rank that was last most often, and its share of the steps."""
    if len(words) == 0:
        return None, None, None
    ranks, causes = unpack_arrivals(words)
    times = np.bincount(ranks)
    slowest = int(times.argmax())
    shares = np.bincount(causes, minlength=len(CAUSES)) / len(words)
    bound_by = BoundShares(**dict(zip(CAUSES, shares.tolist(), strict=True)))
    return bound_by, slowest, float(times[slowest] / len(words))
