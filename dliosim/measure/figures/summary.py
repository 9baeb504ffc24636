"""Figures over all ranks, from the records of each by reductions alone, so that rank 0 holds the numbers of one rank.

Rank 0 alone computes the figures, and it alone imports the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from dliosim.measure.rank.histogram import PACKED, Histogram
from dliosim.measure.rank.records import EpochRecord, SourceRecord, StepBlock, VerbRecord, column_names
from dliosim.measure.rank.step_times import limit_steps
from dliosim.measure.reducer import RATE_UNIT, RATIO_UNIT, Ints, Reducer

if TYPE_CHECKING:
    from dliosim.measure.figures.declaration import Reduced
    from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary

#: Types of the columns that ranks.h5 has.
_SAVED = ("Column", "PartColumn")

#: Columns that follow from those that a rank measures.
_REMAINDERS = ("loop_ns", "tool_ns", "call_ns")

_LATENCIES = column_names(EpochRecord, "Histogram")

#: Columns of `gather_ranks`, in order; those that end in _ns are nanoseconds.
RANK_COLUMNS = (*column_names(EpochRecord, *_SAVED), *_REMAINDERS, *(f"{name}_max_ns" for name in _LATENCIES))

#: Times of a rank in a verb.
_VERB_TIMES = tuple(name for name in column_names(VerbRecord, "Column") if name.endswith("_ns"))

#: Arrivals and times of steps of a verb that has none.
_NO_STEPS = np.empty(0, np.int64), np.empty((0, 2), np.int64)


def summarise(record: EpochRecord, reducer: Reducer) -> EpochSummary | None:
    """Return the figures of an epoch over all ranks at the root, None elsewhere.

    Collective: two reductions, and two more for a loop over several data sets.
    """
    reduced = reduce_epoch(record, reducer)
    sources = _reduce_sources(record.sources, reducer) if record.sources else []
    if reduced is None:
        return None
    from dliosim.measure.figures.declaration import make_summary
    from dliosim.measure.figures.epoch_summaries import EpochSummary, SourceSummary

    seconds = reduced.most["loop_ns"] * 1e-9
    made = (
        SourceSummary(
            name=one.name,
            samples=one.samples,
            bytes=one.bytes,
            samples_per_second=one.samples / seconds if seconds > 0 else None,
            bytes_per_second=one.bytes / seconds if seconds > 0 and not record.null else None,
            call_latency=one.call_latency,
            order_hash=one.order_hash,
        )
        for one in sources
    )
    return make_summary(EpochSummary, replace(reduced, sources=tuple(made)))


def _reduce_sources(sources: Sequence[SourceRecord], reducer: Reducer) -> list[SourceRecord]:
    """Return the records of each data set over all ranks at the root, none elsewhere. Collective: two reductions."""
    rows = [
        np.append([one.samples, one.bytes, *divmod(one.order_hash, 1 << 32)], one.call_latency.pack_sums())
        for one in sources
    ]
    added = reducer.reduce(np.concatenate(rows).astype(np.int64), "sum")
    tops = reducer.reduce(np.concatenate([one.call_latency.pack_maxima() for one in sources]), "max")
    if added is None or tops is None:
        return []
    found = []
    for one, sums, greatest in zip(
        sources, added.reshape(len(sources), -1), tops.reshape(len(sources), -1), strict=True
    ):
        samples, size, high, low = sums[:4].tolist()
        latency = Histogram.unpack_histogram(sums[4:], greatest)
        found.append(SourceRecord(one.name, samples, size, (low + (high << 32)) % 2**64, latency))
    return found


def reduce_epoch(record: EpochRecord, reducer: Reducer) -> Reduced | None:
    """Return the records of all ranks, reduced, at the root, None elsewhere. Collective: two reductions."""
    au = None if record.is_open_loop else dlio_utilization(record.blocks)
    rate = dlio_samples_per_second(record.blocks, record.batch)
    columns = _column_values(record) | {
        **{name: getattr(record, name) for name in _REMAINDERS},
        "null": record.null,
        "utilization": _count_units(record.utilization, RATIO_UNIT),
        "dlio_au": _count_units(au, RATIO_UNIT),
        "dlio_rate": _count_units(rate, RATE_UNIT),
    }
    for name in ("order_hash", "extent_hash"):
        columns[f"{name}_high"], columns[name] = divmod(getattr(record, name), 1 << 32)
    return _reduce_columns(columns, record, record.last_arrival, record.storage_ns, reducer)


def summarise_verb(record: VerbRecord, reducer: Reducer) -> VerbSummary | None:
    """Return the figures of a verb over all ranks at the root, None elsewhere.

    Collective: two reductions, and a gather of a row a rank.
    """
    reduced = _reduce_columns(_column_values(record), record, *_NO_STEPS, reducer)
    times = reducer.gather(np.array([getattr(record, name) for name in _VERB_TIMES], np.int64))
    if reduced is None or times is None:
        return None
    from dliosim.measure.figures.declaration import make_summary
    from dliosim.measure.figures.epoch_summaries import VerbSummary

    slowest = times[times[:, _VERB_TIMES.index("wall_ns")].argmax()].tolist()
    seconds = {f"{name[:-3]}_seconds": ns * 1e-9 for name, ns in zip(_VERB_TIMES, slowest, strict=True)}
    return make_summary(VerbSummary, replace(reduced, slowest=seconds))


def rank_row(record: EpochRecord) -> Ints:
    """Return the `RANK_COLUMNS` of one epoch of this rank, int64.

    Only this row is kept: the record itself has 66 kB of buckets.
    """
    latencies = [getattr(record, name).max_ns for name in _LATENCIES]
    return np.array([*(getattr(record, name) for name in RANK_COLUMNS[: -len(latencies)]), *latencies], np.int64)


def gather_ranks(rows: Sequence[Ints], reducer: Reducer) -> Ints | None:
    """Return the figures of every rank in every epoch of a phase, int64 (ranks, epochs, `RANK_COLUMNS`), at the root.

    Collective: one gather, with the same number of rows (`rank_row`) on every rank.
    """
    return reducer.gather(np.array(rows, np.int64).reshape(len(rows), len(RANK_COLUMNS)))


def _column_values(record: EpochRecord | VerbRecord) -> dict[str, int | None]:
    """Return what a rank measured; None for what it does not know."""
    found = [(one, getattr(record, one.name)) for one in fields(record) if one.type in (*_SAVED, "InnerColumn")]
    return {one.name: None if one.default == -1 and value < 0 else value for one, value in found}


def _count_units(value: float | None, unit: float) -> int | None:
    return None if value is None else round(value / unit)


def _reduce_columns(
    columns: Mapping[str, int | None], record: EpochRecord | VerbRecord, arrivals: Ints, storage: Ints, reducer: Reducer
) -> Reduced | None:
    """Return columns and histograms of all ranks, the least arrivals and the greatest times, in two reductions.

    Only two, because each may take a second if there are more ranks than cores.
    """
    values = np.array([value or 0 for value in columns.values()], np.int64)
    known, count = np.array([value is not None for value in columns.values()]), len(columns)
    latencies = column_names(type(record), "Histogram")
    histograms: list[Histogram] = [getattr(record, name) for name in latencies]
    packed = [one.pack_sums() for one in histograms]
    added = reducer.reduce(np.concatenate([values, known, *packed]), "sum")
    # The least is the greatest with the sign changed.
    tops = np.where(known, [values, -values], np.iinfo(np.int64).min)
    packed = [one.pack_maxima() for one in histograms]
    greatest = reducer.reduce(np.concatenate([*tops, *packed, -arrivals, storage.ravel()]), "max")
    if added is None or greatest is None:
        return None
    from dliosim.measure.figures.declaration import Reduced

    def name_values(values: Ints) -> dict[str, int]:
        return dict(zip(columns, values.tolist(), strict=True))

    sums = added[2 * count :].reshape(-1, PACKED)
    ends, least, times = np.split(greatest[2 * count :], np.cumsum([2 * len(histograms), len(arrivals)]))
    wholes = map(Histogram.unpack_histogram, sums, ends.reshape(-1, 2))
    return Reduced(
        name_values(added[:count]),
        name_values(added[count : 2 * count]),
        name_values(greatest[:count]),
        name_values(-greatest[count : 2 * count]),
        dict(zip(latencies, wholes, strict=True)),
        -least,
        limit_steps(times.reshape(-1, 3)),
    )


def dlio_utilization(blocks: Sequence[StepBlock]) -> float | None:
    """Return DLIO's AU of one rank and epoch, a ratio: mean of compute / time of each block, weighted by steps.

    Both leave out the first step of a block. None if there are no steps, or if a block has no time besides its
    first step.
    """
    return _step_weighted(blocks, [block.compute_ns for block in blocks])


def dlio_samples_per_second(blocks: Sequence[StepBlock], batch: int) -> float | None:
    """Return DLIO's throughput of one rank and epoch: samples of all steps but two / the time of `dlio_utilization`.

    DLIO subtracts two steps for any number of excluded ones, so a block of one step counts as negative. This is kept,
    so that the figure equals DLIO's; None if it would not be above 0.
    """
    rate = _step_weighted(blocks, [(block.steps - 2) * batch * 1e9 for block in blocks])
    return rate if rate is not None and rate > 0 else None


def _step_weighted(blocks: Sequence[StepBlock], amounts: Sequence[float]) -> float | None:
    """Return the mean of amount / ns over blocks, weighted by steps; the ns leave out the first step."""
    totals = [block.elapsed_ns - block.first_ns for block in blocks]
    steps = sum(block.steps for block in blocks)
    if steps == 0 or min(totals) <= 0:
        return None
    return sum(b.steps * amount / total for b, amount, total in zip(blocks, amounts, totals, strict=True)) / steps
