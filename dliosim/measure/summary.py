"""Figures over all ranks from the records of each, by reductions alone: rank 0 holds one rank's worth of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dliosim.measure import dlio
from dliosim.measure.figures import BoundBy, EpochSummary, Spread, VerbSummary
from dliosim.measure.histogram import PACKED, Histogram
from dliosim.measure.records import CAUSES, EpochRecord, VerbRecord, unpacked_arrivals, unpacked_waits
from dliosim.measure.reductions import Reducer

_COUNTS = (
    "samples",
    "bytes",
    "bytes_moved",
    "unchecked_bytes",
    "calls",
    "opens",
    "call_ns",
    "steady_samples",
    "oversleep_ns",
    "compute_ns",
    "flush_steps",
    "flush_steps_ns",
    "flush_data_wait_ns",
    "clear_steps",
    "clear_steps_ns",
    "clear_data_wait_ns",
)
# What a rank may not know, and then is -1: of an epoch and of a verb, and of an epoch alone.
_UNCERTAIN = ("rchar", "read_bytes", "distinct_bytes")
_CORE_WAITS = ("core_wait_ns", "reader_core_wait_ns")
_TIMES = (
    "wall_ns",
    "loop_ns",
    "steady_ns",
    "data_wait_ns",
    "io_busy_ns",
    "open_ns",
    "view_ns",
    "compute_ns",
    "sync_wait_ns",
    "arrival_wait_ns",
    "checkpoint_ns",
    "processing_ns",
    "tool_ns",
    "decode_ns",
    "preprocess_ns",
    "content_ns",
)
_VERB_COUNTS = (
    "bytes",
    "bytes_moved",
    "files",
    "uncounted_files",
    "calls",
    "opens",
    "resident_bytes",
    "examined_bytes",
    "drain_bytes",
    "partner_bytes",
)
_VERB_TIMES = (
    "wall_ns",
    "call_ns",
    "content_ns",
    "encode_ns",
    "send_ns",
    "open_ns",
    "view_ns",
    "file_sync_ns",
    "rename_ns",
    "delete_ns",
    "serialize_ns",
    "plan_ns",
    "broadcast_ns",
    "commit_ns",
    "directory_sync_ns",
    "manifest_ns",
    "stall_ns",
    "wait_ns",
    "stage_ns",
    "flush_ns",
    "drain_ns",
    "partner_ns",
)

#: Columns of `gather_ranks`, in order; those that end in _ns are nanoseconds.
RANK_COLUMNS = (
    "epoch",
    "steps",
    "samples",
    "bytes",
    "bytes_moved",
    "calls",
    "opens",
    *_TIMES,
    "steady_samples",
    "nominal_ns",
    "oversleep_ns",
    "call_ns",
    "rchar",
    "read_bytes",
    *_CORE_WAITS,
    "batch_latency_max_ns",
    "call_latency_max_ns",
    "request_latency_max_ns",
)

# Ratios and rates are added up over ranks as whole multiples of these, in the same reduction as the counts.
_RATIO_UNIT = 2.0**-40
_RATE_UNIT = 2.0**-20
_NOTHING = int(np.iinfo(np.int64).min)


def summarise(record: EpochRecord, reducer: Reducer) -> EpochSummary | None:
    """The figures of an epoch over all ranks at the root, None elsewhere. Collective: two reductions."""
    blocks = record.blocks
    ratio = record.utilization
    au = None if record.open_loop else dlio.utilization(blocks)
    rate = dlio.samples_per_second(blocks, record.batch)
    sums = {name: getattr(record, name) for name in (*_COUNTS, *_TIMES)}
    sums |= {
        "ranks": 1,
        "order_low": record.order_hash & 0xFFFFFFFF,
        "order_high": record.order_hash >> 32,
        "extent_low": record.extent_hash & 0xFFFFFFFF,
        "extent_high": record.extent_hash >> 32,
        "ratio": round((ratio or 0.0) / _RATIO_UNIT),
        "ratios": ratio is not None,
        "au": round((au or 0.0) / _RATIO_UNIT),
        "aus": au is not None,
        "rate": round((rate or 0.0) / _RATE_UNIT),
        "rates": rate is not None,
        **_uncertain(record, (*_UNCERTAIN, *_CORE_WAITS)),
    }
    maxima = _extremes(record, (*_TIMES, *_CORE_WAITS)) | {
        "steps": record.steps,
        "-steps": -record.steps,
        "ratio": _NOTHING if ratio is None else round(ratio / _RATIO_UNIT),
        "-ratio": _NOTHING if ratio is None else -round(ratio / _RATIO_UNIT),
    }
    histograms = [record.batch_latency, record.call_latency, record.request_latency]
    # The first to arrive last: a minimum, reduced as the maximum of what is below zero.
    reduced = _reduced(sums, maxima, histograms, -record.last_arrival, reducer)
    if reduced is None:
        return None
    total, most, (batch, call, request), arrivals = reduced
    ranks = total["ranks"]
    bound_by, slowest, slowest_share = _last_ranks(-arrivals)
    nominal = total["compute_ns"] - total["oversleep_ns"]
    called, device, distinct = (_known(name, total) for name in _UNCERTAIN)
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
        utilization=total["ratio"] * _RATIO_UNIT / total["ratios"] if total["ratios"] else None,
        utilization_min=-most["-ratio"] * _RATIO_UNIT if total["ratios"] else None,
        utilization_max=most["ratio"] * _RATIO_UNIT if total["ratios"] else None,
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
        least_sync_wait_seconds=float(unpacked_waits(-arrivals).sum()) * 1e-9 if len(arrivals) else None,
        oversleep_share=total["oversleep_ns"] / nominal if nominal > 0 else None,
        amplification=called / total["bytes"] if called is not None and total["bytes"] else None,
        storage_amplification=device / total["bytes"] if device is not None and total["bytes"] else None,
        distinct_bytes=distinct,
        depth=total["call_ns"] / total["io_busy_ns"] if total["io_busy_ns"] else None,
        dlio_au=total["au"] * _RATIO_UNIT / total["aus"] if total["aus"] else None,
        dlio_samples_per_second=total["rate"] * _RATE_UNIT if total["rates"] == ranks else None,
        order_hash=(total["order_low"] + (total["order_high"] << 32)) % 2**64,
        extent_hash=(total["extent_low"] + (total["extent_high"] << 32)) % 2**64,
        null=record.null,
        unchecked_bytes=total["unchecked_bytes"],
        content_seconds=_spread("content_ns", total, most),
        core_wait_seconds=_known_spread("core_wait_ns", total, most),
        reader_core_wait_seconds=_known_spread("reader_core_wait_ns", total, most),
        flush_steps=total["flush_steps"],
        flush_step_seconds=_mean("flush_steps_ns", "flush_steps", total),
        flush_data_wait_seconds=_mean("flush_data_wait_ns", "flush_steps", total),
        clear_steps=total["clear_steps"],
        clear_step_seconds=_mean("clear_steps_ns", "clear_steps", total),
        clear_data_wait_seconds=_mean("clear_data_wait_ns", "clear_steps", total),
    )


def summarise_verb(record: VerbRecord, reducer: Reducer) -> VerbSummary | None:
    """The figures of a verb over all ranks at the root, None elsewhere. Collective: two reductions."""
    sums = {name: getattr(record, name) for name in (*_VERB_COUNTS, *_VERB_TIMES)}
    sums |= {"ranks": 1, **_uncertain(record, _UNCERTAIN)}
    nobody = np.empty(0, np.int64)
    reduced = _reduced(sums, _extremes(record, _VERB_TIMES), [record.call_latency], nobody, reducer)
    if reduced is None:
        return None
    total, most, (call,), _ = reduced
    called, device, distinct = (_known(name, total) for name in _UNCERTAIN)
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


def rank_row(record: EpochRecord) -> NDArray[np.int64]:
    """The `RANK_COLUMNS` of one epoch of this rank: all that need be kept of its record, which has 66 kB of buckets."""
    latencies = [record.batch_latency.max_ns, record.call_latency.max_ns, record.request_latency.max_ns]
    return np.array([*(getattr(record, name) for name in RANK_COLUMNS[: -len(latencies)]), *latencies], np.int64)


def gather_ranks(rows: Sequence[NDArray[np.int64]], reducer: Reducer) -> NDArray[np.int64] | None:
    """The figures of every rank in every epoch of a phase, int64 (ranks, epochs, `RANK_COLUMNS`), at the root.

    Collective: one gathering, with as many rows (`rank_row`) on every rank.
    """
    return reducer.gather(np.array(rows, np.int64).reshape(len(rows), len(RANK_COLUMNS)))


def _extremes(record: EpochRecord | VerbRecord, names: Sequence[str]) -> dict[str, int]:
    """What to maximise over ranks for the greatest and, negated, the least of each figure."""
    return {name: getattr(record, name) for name in names} | {f"-{name}": -getattr(record, name) for name in names}


def _reduced(
    sums: dict[str, int],
    maxima: dict[str, int],
    histograms: Sequence[Histogram],
    vector: NDArray[np.int64],
    reducer: Reducer,
) -> tuple[dict[str, int], dict[str, int], list[Histogram], NDArray[np.int64]] | None:
    """Sums and maxima by name, histograms of all ranks, and `vector` maximised: everything in two reductions.

    Two because each may cost a second where ranks outnumber cores.
    """
    added = reducer.reduce(
        np.concatenate([np.array(list(sums.values()), np.int64), *(one.packed_sums() for one in histograms)]), "sum"
    )
    greatest = reducer.reduce(
        np.concatenate(
            [np.array(list(maxima.values()), np.int64), *(one.packed_maxima() for one in histograms), vector]
        ),
        "max",
    )
    if added is None or greatest is None:
        return None
    whole = [
        Histogram.unpacked(
            added[len(sums) + PACKED * i : len(sums) + PACKED * (i + 1)],
            greatest[len(maxima) + 2 * i : len(maxima) + 2 * (i + 1)],
        )
        for i in range(len(histograms))
    ]
    total = dict(zip(sums, added[: len(sums)].tolist(), strict=True))
    most = dict(zip(maxima, greatest[: len(maxima)].tolist(), strict=True))
    return total, most, whole, greatest[len(maxima) + 2 * len(histograms) :]


def _uncertain(record: EpochRecord | VerbRecord, names: Sequence[str]) -> dict[str, int]:
    """What to add up of what a rank may not know, and of how many ranks do."""
    values = {name: getattr(record, name) for name in names}
    known = {f"{name} known": value >= 0 for name, value in values.items()}
    return {name: max(value, 0) for name, value in values.items()} | known


def _known(name: str, total: dict[str, int]) -> int | None:
    """The sum of what all ranks know; None where one does not."""
    return total[name] if total[f"{name} known"] == total["ranks"] else None


def _spread(name: str, total: dict[str, int], most: dict[str, int]) -> Spread:
    return Spread(total[name] * 1e-9 / total["ranks"], -most[f"-{name}"] * 1e-9, most[name] * 1e-9)


def _known_spread(name: str, total: dict[str, int], most: dict[str, int]) -> Spread | None:
    return None if _known(name, total) is None else _spread(name, total, most)


def _mean(times: str, count: str, total: dict[str, int]) -> float | None:
    """Seconds each, over all ranks; None where there are none."""
    return total[times] * 1e-9 / total[count] if total[count] else None


def _last_ranks(words: NDArray[np.int64]) -> tuple[BoundBy | None, int | None, float | None]:
    """Why steps ended late, the rank most often last, and the share of steps in which it was."""
    if len(words) == 0:
        return None, None, None
    ranks, causes = unpacked_arrivals(words)
    times = np.bincount(ranks)
    slowest = int(times.argmax())
    shares = np.bincount(causes, minlength=len(CAUSES)) / len(words)
    bound_by = BoundBy(**dict(zip(CAUSES, shares.tolist(), strict=True)))
    return bound_by, slowest, float(times[slowest] / len(words))
