"""Figures over all ranks, from the records of each, by reductions alone: rank 0 holds the numbers of one rank.

Rank 0 alone computes the figures, and it alone imports the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dliosim.measure import dlio_metrics
from dliosim.measure.histogram import PACKED, Histogram
from dliosim.measure.records import CORE_WAITS, UNCERTAIN, EpochRecord, ReduceResult, VerbRecord
from dliosim.measure.reducer import RATE_UNIT, RATIO_UNIT, Reducer

if TYPE_CHECKING:
    from dliosim.measure.epoch_summaries import EpochSummary, VerbSummary

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
    *CORE_WAITS,
    "batch_latency_max_ns",
    "call_latency_max_ns",
    "request_latency_max_ns",
)

_NOTHING = int(np.iinfo(np.int64).min)


def summarise(record: EpochRecord, reducer: Reducer) -> EpochSummary | None:
    """Return the figures of an epoch over all ranks at the root, None elsewhere. Collective: two reductions."""
    blocks = record.blocks
    ratio = record.utilization
    au = None if record.is_open_loop else dlio_metrics.utilization(blocks)
    rate = dlio_metrics.samples_per_second(blocks, record.batch)
    sums = {name: getattr(record, name) for name in (*_COUNTS, *_TIMES)}
    sums |= {
        "ranks": 1,
        "order_low": record.order_hash & 0xFFFFFFFF,
        "order_high": record.order_hash >> 32,
        "extent_low": record.extent_hash & 0xFFFFFFFF,
        "extent_high": record.extent_hash >> 32,
        "ratio": round((ratio or 0.0) / RATIO_UNIT),
        "ratios": ratio is not None,
        "au": round((au or 0.0) / RATIO_UNIT),
        "aus": au is not None,
        "rate": round((rate or 0.0) / RATE_UNIT),
        "rates": rate is not None,
        **_uncertain_sums(record, (*UNCERTAIN, *CORE_WAITS)),
    }
    maxima = _extremes(record, (*_TIMES, *CORE_WAITS)) | {
        "steps": record.steps,
        "-steps": -record.steps,
        "ratio": _NOTHING if ratio is None else round(ratio / RATIO_UNIT),
        "-ratio": _NOTHING if ratio is None else -round(ratio / RATIO_UNIT),
    }
    histograms = [record.batch_latency, record.call_latency, record.request_latency]
    # The rank that waited least has the minimum, which the reduction of maxima finds with the sign changed.
    reduced = _reduce_record(sums, maxima, histograms, -record.last_arrival, reducer)
    if reduced is None:
        return None
    from dliosim.measure.epoch_formulas import epoch_summary

    return epoch_summary(record, reduced)


def summarise_verb(record: VerbRecord, reducer: Reducer) -> VerbSummary | None:
    """Return the figures of a verb over all ranks at the root, None elsewhere. Collective: two reductions."""
    sums = {name: getattr(record, name) for name in (*_VERB_COUNTS, *_VERB_TIMES)}
    sums |= {"ranks": 1, **_uncertain_sums(record, UNCERTAIN)}
    nobody = np.empty(0, np.int64)
    reduced = _reduce_record(sums, _extremes(record, _VERB_TIMES), [record.call_latency], nobody, reducer)
    if reduced is None:
        return None
    from dliosim.measure.epoch_formulas import verb_summary

    return verb_summary(reduced)


def rank_row(record: EpochRecord) -> NDArray[np.int64]:
    """Return the `RANK_COLUMNS` of one epoch of this rank, int64.

    Only this row is kept: the record itself has 66 kB of buckets.
    """
    latencies = [record.batch_latency.max_ns, record.call_latency.max_ns, record.request_latency.max_ns]
    return np.array([*(getattr(record, name) for name in RANK_COLUMNS[: -len(latencies)]), *latencies], np.int64)


def gather_ranks(rows: Sequence[NDArray[np.int64]], reducer: Reducer) -> NDArray[np.int64] | None:
    """Return the figures of every rank in every epoch of a phase, int64 (ranks, epochs, `RANK_COLUMNS`), at the root.

    Collective: one gather, with the same number of rows (`rank_row`) on every rank.
    """
    return reducer.gather(np.array(rows, np.int64).reshape(len(rows), len(RANK_COLUMNS)))


def _extremes(record: EpochRecord | VerbRecord, names: Sequence[str]) -> dict[str, int]:
    """Return what ranks maximise for the greatest and, negated, the least of each figure."""
    return {name: getattr(record, name) for name in names} | {f"-{name}": -getattr(record, name) for name in names}


def _reduce_record(
    sums: dict[str, int],
    maxima: dict[str, int],
    histograms: Sequence[Histogram],
    vector: NDArray[np.int64],
    reducer: Reducer,
) -> ReduceResult | None:
    """Return sums and maxima by name, histograms of all ranks, and `vector` maximised, in two reductions.

    Only two, because each may take a second where there are more ranks than cores.
    """
    added = reducer.reduce(
        np.concatenate([np.array(list(sums.values()), np.int64), *(one.pack_sums() for one in histograms)]), "sum"
    )
    greatest = reducer.reduce(
        np.concatenate([np.array(list(maxima.values()), np.int64), *(one.pack_maxima() for one in histograms), vector]),
        "max",
    )
    if added is None or greatest is None:
        return None
    whole = [
        Histogram.unpack_histogram(
            added[len(sums) + PACKED * i : len(sums) + PACKED * (i + 1)],
            greatest[len(maxima) + 2 * i : len(maxima) + 2 * (i + 1)],
        )
        for i in range(len(histograms))
    ]
    total = dict(zip(sums, added[: len(sums)].tolist(), strict=True))
    most = dict(zip(maxima, greatest[: len(maxima)].tolist(), strict=True))
    return ReduceResult(total, most, whole, greatest[len(maxima) + 2 * len(histograms) :])


def _uncertain_sums(record: EpochRecord | VerbRecord, names: Sequence[str]) -> dict[str, int]:
    """Return what ranks add up of figures that a rank may not know, and of the number of ranks that know each."""
    values = {name: getattr(record, name) for name in names}
    known = {f"{name} known": value >= 0 for name, value in values.items()}
    return {name: max(value, 0) for name, value in values.items()} | known
