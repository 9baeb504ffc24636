"""The ranges of files that an epoch reads from storage, in order; a run and its forecast both use them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.model.access import Access
from dliosim.model.dataset import Dataset
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.sample_index import DataIndex, Places, locate_ranges
from dliosim.plan.samples.sample_to_file import files_of, first_samples
from dliosim.plan.samples.sizes import require_framed, sample_sizes


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Ranges of files that calls read, a row each, in order, in the steps that need them. int64 (rows,).

    Row i holds, from its byte `at` on, `held` bytes of its sample's contents, from byte `begin` of the contents on.
    """

    extents: Extents  #: file ranges, with their samples and steps
    at: NDArray[np.int64]  #: first byte of the contents in the range
    begin: NDArray[np.int64]  #: first byte of the contents that it holds
    held: NDArray[np.int64]  #: bytes of the contents; 0 where this is not known, as in an encoded unit
    column: NDArray[np.int64]  #: column of the index
    piece: NDArray[np.int64]  #: number of an encoded unit among those of its sample in `column`


def plan_reads(
    extents: Extents, access: Access, kept: NDArray[np.int64], dataset: Dataset, places: Places
) -> ReadRanges:
    """Return the ranges that calls read for the samples of `extents`, in the same steps; a step may have none.

    `kept` are the samples, sorted, that `cache memory` holds: they are not read again. With `order by offset` a batch
    is read in the order of the files. Collective calls always read like this: offsets in a file view must not decrease.
    The batch has this order in memory too, so nothing is reordered. A unit of several samples is read once a step.

    Raises PlanError: [E211] where `cache memory` cannot keep samples, as they are several ranges or share one; [E216]
    where a library would have to read samples without a fixed size.
    """
    if (
        access.memory
        and isinstance(places, DataIndex)
        and access.through == "direct"
        and not places.has_disjoint_samples
    ):
        text = f"`cache memory` does not keep samples of `{dataset.name}`: in their files they are several ranges each"
        raise PlanError(f"{text}, or share what is encoded as one; use `cache page`", "E211")
    if len(kept):
        place = np.searchsorted(kept, extents.sample)
        place[place == len(kept)] = 0
        extents = _select_extents(extents, kept[place] != extents.sample)
    if access.through == "library":
        stored = _library_ranges(extents, dataset, places)
    elif isinstance(places, DataIndex):
        stored = _index_ranges(extents, dataset, places)
    else:
        stored = _single_ranges(extents, dataset)
    return _sort_by_file(stored) if access.is_file_ordered else stored


def rows_to_keep(stored: Extents, memory: int) -> NDArray[np.bool_]:
    """Return which rows of the first epoch `cache memory` keeps: each sample once, up to the first too large one."""
    if not memory:
        return np.zeros(len(stored.sample), np.bool_)
    _, first = np.unique(stored.sample, return_index=True)
    rows = np.sort(first)
    keeps = np.zeros(len(stored.sample), np.bool_)
    keeps[rows[np.cumsum(stored.length[rows]) <= memory]] = True
    return keeps


def buffer_bytes(dataset: Dataset, needed: int) -> int:
    """Return the bytes that are allocated for a batch where the largest one of an epoch needs `needed`.

    Batches of varying size differ from epoch to epoch. A margin of 1/8 avoids most reopening of files for larger
    buffers.
    """
    fixed = dataset.constant_size is not None and not dataset.source and dataset.compress is None
    return needed if fixed else needed + needed // 8


def _single_ranges(extents: Extents, dataset: Dataset) -> ReadRanges:
    """Return samples as they are planned: one range each."""
    zeros = np.zeros(len(extents.sample), np.int64)
    if dataset.format == "raw":
        return ReadRanges(extents, zeros, zeros, extents.length, zeros, zeros)
    at, held = require_framed(dataset).content(sample_sizes(dataset, extents.sample))
    return ReadRanges(extents, at, zeros, held, zeros, zeros)


def _index_ranges(extents: Extents, dataset: Dataset, index: DataIndex) -> ReadRanges:
    """Return the ranges that the index of the files gives for samples."""
    found = locate_ranges(index, extents.sample)
    starts = np.searchsorted(found.row, extents.step_start)
    rows = Extents(extents.sample[found.row], extents.file[found.row], found.offset, found.length, starts)
    held = np.where((found.begin >= 0) & (not dataset.source), found.length, 0)
    zeros = np.zeros(len(held), np.int64)
    stored = ReadRanges(rows, zeros, np.maximum(found.begin, 0), held, found.column, found.piece)
    return _drop_duplicates(stored) if (found.begin < 0).any() else stored


def _library_ranges(extents: Extents, dataset: Dataset, places: Places) -> ReadRanges:
    """Return what a library is asked for: the library finds samples itself, in the contents of a file, row after row.

    Offsets are offsets in contents, not in files: sample k of a file begins at k times a sample's bytes.
    """
    if isinstance(places, DataIndex):
        file, first = places.files_of(extents.sample), places.first_sample
        within = extents.sample - first[file]
    else:
        file = files_of(extents.sample, dataset.samples, dataset.layout.files)
        within = extents.sample - first_samples(file, dataset.samples, dataset.layout.files)
    size = sample_sizes(dataset, extents.sample)
    if dataset.source and isinstance(places, DataIndex):
        size = places.sample_bytes[file]
        if not size.all():
            text = f"samples of `{dataset.name}` in {dataset.format} have no fixed size: its library cannot read one"
            raise PlanError(f"{text}; name other `datasets`, or use `through direct`", "E216")
    zeros = np.zeros(len(size), np.int64)
    rows = Extents(extents.sample, file, within * size, size, extents.step_start)
    return ReadRanges(rows, zeros, zeros, zeros if dataset.source else size, zeros, zeros)


def _drop_duplicates(stored: ReadRanges) -> ReadRanges:
    """Return each range once a step: samples may share a unit."""
    rows = stored.extents
    step = _row_steps(rows)
    order = np.lexsort((rows.offset, rows.file, step))
    again = np.zeros(len(order), np.bool_)
    same = [column[order][1:] == column[order][:-1] for column in (step, rows.file, rows.offset, rows.length)]
    again[order[1:]] = np.logical_and.reduce([*same, stored.held[order][1:] == 0])
    return _select_rows(stored, np.flatnonzero(~again), _select_extents(rows, ~again).step_start)


def _row_steps(rows: Extents) -> NDArray[np.int64]:
    """Return the step of each row."""
    return np.repeat(np.arange(rows.steps), np.diff(rows.step_start))


def _select_extents(extents: Extents, chosen: NDArray[np.bool_]) -> Extents:
    before = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(chosen, out=before[1:])
    return Extents(
        extents.sample[chosen],
        extents.file[chosen],
        extents.offset[chosen],
        extents.length[chosen],
        before[extents.step_start],
    )


def _select_rows(stored: ReadRanges, rows: NDArray[np.int64], step_start: NDArray[np.int64]) -> ReadRanges:
    """Return some rows, or all rows in another order, in steps that begin at their rows `step_start`."""
    old = stored.extents
    extents = Extents(old.sample[rows], old.file[rows], old.offset[rows], old.length[rows], step_start)
    others = [getattr(stored, each.name)[rows] for each in fields(ReadRanges)[1:]]
    return ReadRanges(extents, *others)


def _sort_by_file(stored: ReadRanges) -> ReadRanges:
    """Return the rows of each step in the order of the files' numbers, and within each file in the order of offsets."""
    rows = stored.extents
    return _select_rows(stored, np.lexsort((rows.offset, rows.file, _row_steps(rows))), rows.step_start)
