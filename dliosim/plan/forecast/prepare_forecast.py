"""Forecasts of preparing and of converting a data set: the ranks' reads, and the files that they write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.formats.protocols import Format, Ints
from dliosim.formats.registry import bind
from dliosim.model import Access, Convert, Dataset, Job, Prepare, Stage
from dliosim.plan.forecast.forecast_types import PhaseForecast, RankSpread, spread_of, uniform_spread
from dliosim.plan.forecast.layout_forecast import AFFORDABLE, Placement
from dliosim.plan.forecast.rank_memory import RankMemory, prepare_memory, prepares_whole_files
from dliosim.plan.samples.io_requests import plan_calls, sample_heads
from dliosim.plan.samples.places import SAMPLES_AT_ONCE, FramedPlaces, Places
from dliosim.plan.samples.read_ranges import plan_part, plan_reads
from dliosim.plan.samples.sample_to_file import first_samples, local_prefix_sums, sample_sizes

_SAMPLED_FILES = 65_536

#: Sidecars that are made for an estimate of their bytes, and the most samples of each.
_SIDECARS, _SIDECAR_SAMPLES = 64, 4096

#: Samples, bytes and calls of each file.
_Columns: TypeAlias = "tuple[Ints, Ints, Ints]"

#: Samples, bytes, files and calls of a rank.
_Counts: TypeAlias = "tuple[RankSpread, RankSpread, RankSpread, RankSpread]"


def forecast_prepare(placement: Placement, verb: Prepare, ranks: int, times: int) -> PhaseForecast:
    """Forecast writing a data set: whole files dealt over the ranks, or a share of the samples for each rank."""
    dataset, places = placement.dataset, placement.places
    transfer = verb.access.transfer
    if isinstance(places, FramedPlaces):
        count = _count_whole_files if dataset.layout.files <= AFFORDABLE else _count_many_files
        if dataset.layout.files < ranks and not prepares_whole_files(places.form, verb):
            count = _count_shared_files
        samples, written, files, calls = count(places, placement.exact, ranks, transfer)
        if not places.form.bare:  # all that depends on the sizes of frames and of sidecars is an estimate
            sidecar_count = len(places.form.sidecars)
            again = places.form.checksum is not None and transfer is not None
            written = replace(written, estimated=written.estimated or sidecar_count > 0 or again)
            # Sidecars are opened and written, too. Whole samples are made at a time: calls are shorter than `transfer`.
            files = replace(files.scale(1 + sidecar_count), estimated=files.estimated or sidecar_count > 0)
            calls = replace(calls, estimated=calls.estimated or sidecar_count > 0 or transfer is not None)
    else:
        few = dataset.layout.files < ranks and not isinstance(verb, Convert)
        samples, written, files, calls = _deal_files(ranks, _count_files(places, transfer), (few, True, few, True))
    if verb.access.collective:
        calls = uniform_spread(calls.maximum, ranks, calls.estimated)
    # With O_DIRECT one call becomes up to three: its whole pages, and the bytes before and after them.
    calls = replace(calls, estimated=calls.estimated or verb.access.page > 1)
    opens, form = _count_opens(places.form, verb, ranks, files), bind(dataset)
    memory = prepare_memory(form, verb, 0)
    each = np.zeros(ranks, np.int64)
    each[: dataset.layout.files if prepares_whole_files(form, verb) else dataset.samples] = memory.total
    figures = samples, written, files, opens, calls, memory
    return PhaseForecast("prepare", dataset.name, times, 1, *figures, rank_memory=each)


def _count_opens(form: Format, verb: Prepare, ranks: int, files: RankSpread) -> RankSpread:
    """Count the opens of a rank: a library opens a file that it lays out, and it is opened again to write samples."""
    # With MPI-IO all ranks open one file together, also those that write nothing to it. One rank alone opens it by the
    # library, and opens its sidecars.
    if verb.access.is_mpi and form.dataset.layout.files == 1 and form.shares_open:
        return spread_of(1 + (np.arange(ranks) == 0) * (form.opens - 1 + len(form.sidecars)), ranks, False)
    return files.scale(form.opens)


def _count_files(places: Places, transfer: int | None) -> _Columns:
    """Count samples, bytes and calls of each file."""
    files = np.arange(places.dataset.layout.files)
    sizes, samples = places.file_sizes(files), np.diff(places.first_samples(np.append(files, len(files))))
    return samples, sizes, samples if transfer is None else -(-sizes // transfer)


def _count_whole_files(places: FramedPlaces, exact: bool, ranks: int, transfer: int | None) -> _Counts:
    """Count samples, bytes, files and calls of a rank that writes files rank, rank + R, ..."""
    samples, sizes, calls = _count_files(places, transfer)
    if transfer is None:
        calls = np.maximum(calls, sizes > 0)  # a file without samples still has its header to write
        if places.form.checksum is not None:
            # The header is written again when the checksum is known, unless one call writes the whole file.
            again = samples > 1
            calls, sizes = calls + again, sizes + again * places.form.header
    known = transfer is None or (exact and int(samples.max()) <= SAMPLES_AT_ONCE)
    return _deal_files(ranks, (samples, sizes, calls), (False, not exact, False, not known))


def _deal_files(ranks: int, columns: _Columns, guessed: tuple[bool, bool, bool, bool]) -> _Counts:
    """Return what ranks have of files that are dealt in turn, from samples, bytes and calls of each file."""
    (samples, sizes, calls), owner = columns, np.arange(len(columns[0])) % ranks
    counted = (np.bincount(owner, column, ranks) for column in (samples, sizes, None, calls))
    return _spread_counts(ranks, counted, guessed)


def _spread_counts(ranks: int, counted: Iterable[NDArray[Any]], guessed: tuple[bool, bool, bool, bool]) -> _Counts:
    made, written, files, issued = (spread_of(one, ranks, guess) for one, guess in zip(counted, guessed, strict=True))
    return made, written, files, issued


def _count_many_files(places: FramedPlaces, _: bool, ranks: int, transfer: int | None) -> _Counts:
    """Count the same for too many files to handle each: by the mean of an even sample of files."""
    dataset = places.dataset
    total, files = dataset.samples, dataset.layout.files
    some = np.arange(0, files, files // _SAMPLED_FILES)
    sizes = places.file_sizes(some)
    held = (files - np.arange(ranks) + ranks - 1) // ranks
    uneven = total % files != 0
    calls = total / files if transfer is None else float((-(-sizes // transfer)).mean())
    varies = uneven or dataset.constant_size is None
    columns = held * (total / files), held * float(sizes.mean()), held, held * calls
    return _spread_counts(ranks, columns, (uneven, varies, False, uneven if transfer is None else varies))


def _count_shared_files(places: FramedPlaces, exact: bool, ranks: int, transfer: int | None) -> _Counts:
    """Count the same where each rank writes a contiguous share of the samples of few files."""
    dataset = places.dataset
    total, files = dataset.samples, dataset.layout.files
    edges = np.array([rank * total // ranks for rank in range(ranks + 1)], np.int64)
    starts = places.first_samples(np.arange(files + 1))
    filled = np.diff(starts) > 0
    # The rank of a file's first sample writes the header, that of the last the trailer; without samples rank f % R.
    owner = np.where(filled, np.searchsorted(edges, starts[:-1], side="right") - 1, np.arange(files) % ranks)
    closer = np.where(filled, np.searchsorted(edges, starts[1:]) - 1, owner)
    if places.prefix is None and dataset.constant_size is None:  # a file for each of few samples: no sums yet
        places = replace(places, prefix=local_prefix_sums(places.form))
    written: Ints = np.diff(places.bytes_before(edges))
    header = places.form.header
    sizes = places.file_sizes(np.arange(files))
    trailer = sizes - header - np.diff(places.bytes_before(starts))
    np.add.at(written, owner, header)
    np.add.at(written, closer, trailer)
    held = np.bincount(owner[~filled], minlength=ranks)
    busy = edges[:-1] < edges[1:]
    filled_before = np.append(0, np.cumsum(filled))
    first, last = places.files_of(edges[:-1][busy]), places.files_of(edges[1:][busy] - 1)
    held[busy] += filled_before[last + 1] - filled_before[first]
    samples = np.diff(edges)
    empty = np.bincount(owner[~filled & (sizes > 0)], minlength=ranks)
    # A file without bytes is made, but not written.
    filled_by = held - np.bincount(owner[sizes == 0], minlength=ranks)
    calls = samples + empty if transfer is None else np.maximum(filled_by, -(-written // transfer))
    # A share in several files ends each of them with a shorter call.
    known = exact and int(held.max()) <= 1 and int(samples.max()) <= SAMPLES_AT_ONCE
    guessed = False, not exact, False, transfer is not None and not known
    return _spread_counts(ranks, (samples, written, held, calls), guessed)


def sum_sidecars(dataset: Dataset, suffix: str) -> tuple[float, bool]:
    """Return the bytes of the sidecars of a data set, and whether they are an estimate.

    The sidecars of a few files, made for their first samples, stand for the others.
    """
    form, files = bind(dataset), dataset.layout.files
    some = np.arange(0, files, -(-files // _SIDECARS))
    firsts, ends = (first_samples(some + each, dataset.samples, files) for each in (0, 1))
    made, whole = 0, 0
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        taken = min(end - first, _SIDECAR_SAMPLES)
        whole += taken
        sizes = sample_sizes(dataset, np.arange(first, first + taken))
        made += sum(len(piece) for piece in form.write_sidecar(suffix, first, sizes))
    is_all = len(some) == files and whole == dataset.samples
    return (made, False) if is_all else (made * dataset.samples / max(whole, 1), True)


#: Bytes of a call that stages data.
COPY_CALL: Final = 4 << 20


def forecast_stage(placement: Placement, verb: Stage, job: Job, times: int) -> PhaseForecast:
    """Forecast the copies of all nodes, whose ranks deal the files; shares are estimated as equal."""
    dataset, places, ranks = placement.dataset, placement.places, job.ranks
    files, count = dataset.layout.files, min(dataset.layout.files, AFFORDABLE)
    sizes = places.file_sizes(np.arange(count)) if count == files else np.full(count, places.total_bytes / files)
    columns = np.empty((3, ranks))
    for first in range(0, ranks, job.ranks_per_node):
        there = min(job.ranks_per_node, ranks - first)
        owner = np.arange(count) % there
        for row, amounts in enumerate((sizes, None, -(-sizes // COPY_CALL))):
            columns[row, first : first + there] = np.bincount(owner, amounts, there)
    is_share = verb.holds == "own share"
    columns *= files / count / (job.nodes if is_share else 1)
    known = placement.exact and not is_share and count == files
    copied, made, calls = (spread_of(column, ranks, not known) for column in columns)
    memory, none = RankMemory(buffers=COPY_CALL), uniform_spread(0, ranks)
    return PhaseForecast("stage", dataset.name, times, 1, none, copied, made, made, calls, memory)


#: The most samples whose reads are planned, and of a file that is written; with more, these stand for all.
_PLANNED: Final = 1 << 20

_NONE: Final = np.empty(0, np.int64)


def forecast_conversion_reads(
    source: Placement, placement: Placement, verb: Convert, ranks: int, times: int
) -> PhaseForecast:
    """Forecast the reads of each rank, for files rank, rank + R, ... that it writes."""
    dataset, access = source.dataset, verb.reading_loop(source.dataset).access
    files = placement.dataset.layout.files
    bounds = first_samples(np.arange(files + 1), dataset.samples, files)
    planned, most, known = files, _PLANNED, source.exact
    if dataset.samples > _PLANNED:  # the first files of each rank are planned, and the first `most` samples of each
        planned = min(files, max(ranks, int(np.searchsorted(bounds[1:], _PLANNED))))
        most, known = max(_PLANNED // planned, 1), False
    counts, largest = np.zeros((4, ranks)), 0
    opened: list[list[Ints]] = [[] for _ in range(ranks)]
    for file in range(planned):
        first, last = bounds[file : file + 2].tolist()
        if first == last:
            continue
        found, step, touched = _count_part(source, access, first, last, most)
        counts[:, file % ranks] += found
        opened[file % ranks].append(touched)
        largest = max(largest, step)
    if access.open == "once":  # a file that a rank has opened stays open
        counts[3] = [len(np.unique(np.concatenate(those))) if those else 0 for those in opened]
    if planned < files:
        done = np.bincount(np.arange(planned) % ranks, minlength=ranks)
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


def _count_part(
    source: Placement, access: Access, first: int, last: int, most: int
) -> tuple[NDArray[np.float64], int, Ints]:
    """Return samples, bytes, calls and opens of the reads of samples, the largest step, and the files read.

    The first `most` samples stand for all.
    """
    until = min(last, first + most)
    share = (last - first) / (until - first)
    stored = plan_reads(plan_part(source.places, first, until), access, _NONE, source.places).extents
    calls = plan_calls(stored, access.transfer, access.page)
    opens = int(sample_heads(calls, access.transfer is not None).sum())
    counts = np.array([until - first, stored.length.sum(), len(calls.length), opens]) * share
    return counts, calls.buffer_size, np.unique(stored.file)
