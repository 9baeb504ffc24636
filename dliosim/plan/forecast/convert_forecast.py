"""Forecasts of converting a data set: what ranks read of one, and the whole files of the other that they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.model.access import Access
from dliosim.model.verbs import Convert
from dliosim.plan.forecast.forecast_types import PhaseForecast, spread_of
from dliosim.plan.forecast.layout_forecast import Placement
from dliosim.plan.forecast.prepare_forecast import forecast_prepare
from dliosim.plan.forecast.rank_memory import RankMemory
from dliosim.plan.samples.convert_reads import plan_part
from dliosim.plan.samples.io_requests import plan_calls, sample_heads
from dliosim.plan.samples.read_ranges import plan_reads
from dliosim.plan.samples.sample_to_file import first_samples

#: The most samples whose reads are planned, and of a file that is written; with more, these stand for all.
_PLANNED: Final = 1 << 20

_NONE: Final = np.empty(0, np.int64)


def forecast_convert(
    source: Placement, placement: Placement, verb: Convert, ranks: int, times: int
) -> Iterator[PhaseForecast]:
    """Yield the forecasts of reading and of writing; `source` and `placement` are the places of both data sets."""
    yield _forecast_reads(source, placement, verb, ranks, times)
    yield replace(forecast_prepare(placement, verb, ranks, times), verb="convert")


def _forecast_reads(source: Placement, placement: Placement, verb: Convert, ranks: int, times: int) -> PhaseForecast:
    """Forecast the reads of each rank, for files rank, rank + R, ... that it writes."""
    dataset, access = source.dataset, verb.reading_loop(source.dataset).access
    files = placement.dataset.layout.files
    bounds = first_samples(np.arange(files + 1), dataset.samples, files)
    planned = _choose_files(np.diff(bounds), ranks)
    known = len(planned) == files and source.exact
    counts, largest = np.zeros((4, ranks)), 0
    opened: list[list[NDArray[np.int64]]] = [[] for _ in range(ranks)]
    for file in planned:
        first, last = bounds[file : file + 2].tolist()
        if first == last:
            continue
        found, step, touched = _count_part(source, access, first, last)
        counts[:, file % ranks] += found
        opened[file % ranks].append(touched)
        largest = max(largest, step)
    if access.open == "once":  # a file that a rank has opened stays open
        counts[3] = [len(np.unique(np.concatenate(those))) if those else 0 for those in opened]
    if len(planned) < files:
        done = np.bincount(np.array(planned) % ranks, minlength=ranks)
        whole = (files - np.arange(ranks) + ranks - 1) // ranks
        counts *= whole / np.maximum(done, 1)
    samples, size, calls, opens = (spread_of(column, ranks, not known) for column in counts)
    return PhaseForecast(
        "convert",
        placement.dataset.name,
        times,
        1,
        samples,
        size,
        opens,
        opens,
        calls,
        RankMemory(buffers=largest),
        when=f"reading {dataset.name}",
        rank_memory=np.where(np.arange(ranks) < files, largest, 0),
    )


def _choose_files(samples: NDArray[np.int64], ranks: int) -> Sequence[int]:
    """Return the files whose reads are planned: all, or the first ones of each rank where they have many samples."""
    total = np.cumsum(samples)
    if total[-1] <= _PLANNED:
        return range(len(samples))
    return range(min(len(samples), max(ranks, int(np.searchsorted(total, _PLANNED)))))


def _count_part(
    source: Placement, access: Access, first: int, last: int
) -> tuple[NDArray[np.float64], int, NDArray[np.int64]]:
    """Return samples, bytes, calls and opens of the reads of some samples, the largest step, and the files read."""
    until = min(last, first + _PLANNED)
    share = (last - first) / (until - first)
    stored = plan_reads(plan_part(source.places, first, until), access, _NONE, source.places).extents
    calls = plan_calls(stored, access.transfer, access.page)
    opens = int(sample_heads(calls, access.transfer is not None).sum())
    counts = np.array([until - first, stored.length.sum(), len(calls.length), opens]) * share
    return counts, calls.buffer_size, np.unique(stored.file)
