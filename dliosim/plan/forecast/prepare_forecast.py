"""Forecasts of preparing a data set."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.formats.protocols import Preallocated
from dliosim.formats.registry import bind
from dliosim.model.dataset import Dataset
from dliosim.model.verbs import Prepare
from dliosim.plan.forecast.forecast_types import PhaseForecast, RankMemory, RankSpread, spread_of, uniform_spread
from dliosim.plan.forecast.layout_forecast import AFFORDABLE, Placement, estimate_mean
from dliosim.plan.samples.io_requests import file_sizes
from dliosim.plan.samples.prepare_partition import SAMPLES_AT_ONCE
from dliosim.plan.samples.sample_index import DataIndex
from dliosim.plan.samples.sample_to_file import files_of, first_samples
from dliosim.plan.samples.sizes import bytes_before, header_bytes, is_framed, local_prefix_sums, require_framed

_SAMPLED_FILES = 65_536

_Column: TypeAlias = "NDArray[np.int64]"

#: Samples, bytes, files and calls of a rank.
_Counts: TypeAlias = "tuple[RankSpread, RankSpread, RankSpread, RankSpread]"


def forecast_prepare(placement: Placement, verb: Prepare, ranks: int, times: int) -> PhaseForecast:
    """Forecast writing a data set: whole files dealt over the ranks, or a share of the samples for each rank."""
    dataset = placement.dataset
    transfer = verb.access.transfer
    if isinstance(placement.places, DataIndex):
        samples, written, files, calls = _count_library_files(placement.places, ranks, transfer)
    elif dataset.layout.files < ranks and require_framed(dataset).checksum is None:
        samples, written, files, calls = _count_shared_files(placement, ranks, transfer)
    elif dataset.layout.files <= AFFORDABLE:
        samples, written, files, calls = _count_whole_files(placement, ranks, transfer)
    else:
        samples, written, files, calls = _count_many_files(dataset, ranks, transfer)
    if verb.access.collective:
        calls = uniform_spread(calls.maximum, ranks, calls.estimated)
    if is_framed(dataset) and dataset.format != "raw":
        written, files, calls = _mark_frame_estimates(dataset, transfer, written, files, calls)
    # With O_DIRECT one call becomes up to three: its whole pages, and the bytes before and after them.
    calls = replace(calls, estimated=calls.estimated or verb.access.page > 1)
    around = header_bytes(dataset) + 2 * require_framed(dataset).align if is_framed(dataset) else 0
    largest = transfer or _largest_sample(dataset) + around
    memory = RankMemory(buffers=int(min(largest, written.maximum)))
    opens = _count_opens(dataset, verb, ranks, files)
    return PhaseForecast("prepare", dataset.name, times, 1, samples, written, files, opens, calls, memory)


def _count_opens(dataset: Dataset, verb: Prepare, ranks: int, files: RankSpread) -> RankSpread:
    """Count the opens of a rank: a library opens a file that it lays out, and it is opened again to write samples."""
    form = bind(dataset)
    laid_out = isinstance(form, Preallocated)
    # With MPI-IO all ranks open one file together, also those that write nothing to it. One rank alone opens it by the
    # library, and opens its sidecars.
    if verb.access.is_mpi and dataset.layout.files == 1 and (laid_out or is_framed(dataset)):
        return spread_of(1 + (np.arange(ranks) == 0) * (laid_out + count_with_sidecars(dataset) - 1), ranks, False)
    return files.scale(1 + laid_out)


def _count_whole_files(placement: Placement, ranks: int, transfer: int | None) -> _Counts:
    """Count samples, bytes, files and calls of a rank that writes files rank, rank + R, ..."""
    dataset = placement.dataset
    files = np.arange(dataset.layout.files)
    starts = first_samples(np.append(files, len(files)), dataset.samples, len(files))
    sizes, samples = file_sizes(dataset, placement.places, files), np.diff(starts)
    # A file without samples still has its header to write.
    calls = np.maximum(samples, sizes > 0) if transfer is None else -(-sizes // transfer)
    if transfer is None and require_framed(dataset).checksum is not None:
        # The header is written again when the checksum is known, unless one call writes the whole file.
        again = samples > 1
        calls, sizes = calls + again, sizes + again * header_bytes(dataset)
    known = transfer is None or (placement.exact and int(samples.max()) <= SAMPLES_AT_ONCE)
    return _deal_files(ranks, (samples, sizes, calls), (False, not placement.exact, False, not known))


def _deal_files(
    ranks: int, columns: tuple[_Column, _Column, _Column], guessed: tuple[bool, bool, bool, bool]
) -> _Counts:
    """Return what ranks have of files that are dealt in turn, from samples, bytes and calls of each file."""
    (samples, sizes, calls), owner = columns, np.arange(len(columns[0])) % ranks
    counted = (np.bincount(owner, column, ranks) for column in (samples, sizes, None, calls))
    made, written, files, issued = (spread_of(one, ranks, guess) for one, guess in zip(counted, guessed, strict=True))
    return made, written, files, issued


def _mark_frame_estimates(
    dataset: Dataset, transfer: int | None, written: RankSpread, files: RankSpread, calls: RankSpread
) -> tuple[RankSpread, RankSpread, RankSpread]:
    """Return bytes, files and calls for a format that frames samples: estimates of all that depends on sizes.

    Whole samples are made at a time, so calls are shorter than `transfer`. Sidecars are opened and written, too.
    """
    form = require_framed(dataset)
    sidecar_count = count_with_sidecars(dataset) - 1
    again = form.checksum is not None and transfer is not None
    return (
        replace(written, estimated=written.estimated or sidecar_count > 0 or again),
        replace(files.scale(1 + sidecar_count), estimated=files.estimated or sidecar_count > 0),
        replace(calls, estimated=calls.estimated or sidecar_count > 0 or transfer is not None),
    )


def count_with_sidecars(dataset: Dataset) -> int:
    """Return the number of files for each data file: the file itself and its sidecars."""
    return 1 + (len(require_framed(dataset).sidecars) if is_framed(dataset) else 0)


def _count_library_files(index: DataIndex, ranks: int, transfer: int | None) -> _Counts:
    """Count the same for files that a library makes whole, or lays out: estimates."""
    samples = np.diff(index.first_sample)
    calls = samples if transfer is None else -(-index.size // transfer)
    few = len(index.size) < ranks
    return _deal_files(ranks, (samples, index.size, calls), (few, True, few, True))


def _count_many_files(dataset: Dataset, ranks: int, transfer: int | None) -> _Counts:
    """Count the same for too many files to handle each: by the mean of an even sample of files."""
    total, files = dataset.samples, dataset.layout.files
    some = np.arange(0, files, files // _SAMPLED_FILES)
    sizes = file_sizes(dataset, None, some)
    held = (files - np.arange(ranks) + ranks - 1) // ranks
    uneven = total % files != 0
    calls = total / files if transfer is None else float((-(-sizes // transfer)).mean())
    return (
        spread_of(held * (total / files), ranks, uneven),
        spread_of(held * float(sizes.mean()), ranks, uneven or dataset.constant_size is None),
        spread_of(held, ranks, False),
        spread_of(held * calls, ranks, uneven or (transfer is not None and dataset.constant_size is None)),
    )


def _count_shared_files(placement: Placement, ranks: int, transfer: int | None) -> _Counts:
    """Count the same where each rank writes a contiguous share of the samples of few files."""
    dataset = placement.dataset
    total, files = dataset.samples, dataset.layout.files
    edges = np.array([rank * total // ranks for rank in range(ranks + 1)], np.int64)
    starts = first_samples(np.arange(files + 1), total, files)
    filled = np.diff(starts) > 0
    # The rank of a file's first sample writes the header, that of the last the trailer; without samples rank f % R.
    owner = np.where(filled, np.searchsorted(edges, starts[:-1], side="right") - 1, np.arange(files) % ranks)
    closer = np.where(filled, np.searchsorted(edges, starts[1:]) - 1, owner)
    before = None if isinstance(placement.places, DataIndex) else placement.places
    if before is None and dataset.constant_size is None:  # a file for each of few samples: there are no sums yet
        before = local_prefix_sums(dataset)
    written: NDArray[np.int64] = np.diff(bytes_before(dataset, before, edges))
    header = header_bytes(dataset)
    sizes = file_sizes(dataset, before, np.arange(files))
    trailer = sizes - header - np.diff(bytes_before(dataset, before, starts))
    np.add.at(written, owner, header)
    np.add.at(written, closer, trailer)
    held = np.bincount(owner[~filled], minlength=ranks)
    busy = edges[:-1] < edges[1:]
    filled_before = np.append(0, np.cumsum(filled))
    first, last = files_of(edges[:-1][busy], total, files), files_of(edges[1:][busy] - 1, total, files)
    held[busy] += filled_before[last + 1] - filled_before[first]
    samples = np.diff(edges)
    empty = np.bincount(owner[~filled & (sizes > 0)], minlength=ranks)
    # A file without bytes is made, but not written.
    filled_by = held - np.bincount(owner[sizes == 0], minlength=ranks)
    calls = samples + empty if transfer is None else np.maximum(filled_by, -(-written // transfer))
    # A share in several files ends each of them with a shorter call.
    known = placement.exact and int(held.max()) <= 1 and int(samples.max()) <= SAMPLES_AT_ONCE
    return (
        spread_of(samples, ranks, False),
        spread_of(written, ranks, not placement.exact),
        spread_of(held, ranks, False),
        spread_of(calls, ranks, transfer is not None and not known),
    )


def _largest_sample(dataset: Dataset) -> float:
    """Return the bytes of the largest sample, or four times the mean where there is no limit."""
    if dataset.constant_size is not None:
        return dataset.constant_size
    return dataset.size.high if dataset.size.high is not None else 4 * estimate_mean(dataset.size)
