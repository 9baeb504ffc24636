"""What of an epoch is read from storage, and in which order; a run and its forecast both ask here."""

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
    """Ranges of files that calls read: a row each, in order, in the steps that need them. int64.

    Row i holds, from its byte `at` on, `held` bytes of the contents of its sample, from their byte `begin` on. `held`
    is 0 where that is not known, as in an encoded unit, which is `piece` of those of its sample in `column`.
    """

    extents: Extents
    at: NDArray[np.int64]
    begin: NDArray[np.int64]
    held: NDArray[np.int64]
    column: NDArray[np.int64]
    piece: NDArray[np.int64]


def plan_reads(
    extents: Extents, access: Access, kept: NDArray[np.int64], dataset: Dataset, places: Places
) -> ReadRanges:
    """The ranges that calls read of the samples of `extents`, in the same steps, of which some may be left without any.

    `kept` has the samples, sorted, that `cache memory` holds: they are not read again. With `order by offset` a batch
    is read in the order of the files, as it always is by collective calls: a view must go forward in its file. With the
    batch in the same order in memory nothing needs to be put right. A unit that several samples of a step lie in is
    read once.

    Raises PlanError: [E211] where `cache memory` cannot keep samples, as they are several ranges or share one; [E216]
    where a library would have to read samples of whatever size.
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
    """Which rows of the first epoch `cache memory` takes: each sample once, up to the first that does not fit."""
    if not memory:
        return np.zeros(len(stored.sample), np.bool_)
    _, first = np.unique(stored.sample, return_index=True)
    rows = np.sort(first)
    keeps = np.zeros(len(stored.sample), np.bool_)
    keeps[rows[np.cumsum(stored.length[rows]) <= memory]] = True
    return keeps


def buffer_bytes(dataset: Dataset, needed: int) -> int:
    """What is allocated for a batch where the largest of an epoch needs `needed`.

    Batches of varying size differ from epoch to epoch: some room saves most from opening anew.
    """
    fixed = dataset.constant_size is not None and not dataset.source and dataset.compress is None
    return needed if fixed else needed + needed // 8


def _single_ranges(extents: Extents, dataset: Dataset) -> ReadRanges:
    """Samples as they are planned: one range each."""
    zeros = np.zeros(len(extents.sample), np.int64)
    if dataset.format == "raw":
        return ReadRanges(extents, zeros, zeros, extents.length, zeros, zeros)
    at, held = require_framed(dataset).content(dataset, sample_sizes(dataset, extents.sample))
    return ReadRanges(extents, at, zeros, held, zeros, zeros)


def _index_ranges(extents: Extents, dataset: Dataset, index: DataIndex) -> ReadRanges:
    """The ranges that a file's index says samples have."""
    found = locate_ranges(index, extents.sample)
    starts = np.searchsorted(found.row, extents.step_start)
    rows = Extents(extents.sample[found.row], extents.file[found.row], found.offset, found.length, starts)
    held = np.where((found.begin >= 0) & (not dataset.source), found.length, 0)
    zeros = np.zeros(len(held), np.int64)
    stored = ReadRanges(rows, zeros, np.maximum(found.begin, 0), held, found.column, found.piece)
    return _drop_duplicates(stored) if (found.begin < 0).any() else stored


def _library_ranges(extents: Extents, dataset: Dataset, places: Places) -> ReadRanges:
    """What is asked of a library, which finds the samples itself: bytes of the file's samples as one row after another.

    That is offsets in contents, not in files: sample k of a file begins at k times a sample's bytes.
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
    """Each range once a step: samples may share a unit."""
    rows = stored.extents
    step = _row_steps(rows)
    order = np.lexsort((rows.offset, rows.file, step))
    again = np.zeros(len(order), np.bool_)
    same = [column[order][1:] == column[order][:-1] for column in (step, rows.file, rows.offset, rows.length)]
    again[order[1:]] = np.logical_and.reduce([*same, stored.held[order][1:] == 0])
    return _select_rows(stored, np.flatnonzero(~again), _select_extents(rows, ~again).step_start)


def _row_steps(rows: Extents) -> NDArray[np.int64]:
    """The step of each row."""
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
    """Some rows, or all in another order, in the steps that begin at `step_start` of them."""
    old = stored.extents
    extents = Extents(old.sample[rows], old.file[rows], old.offset[rows], old.length[rows], step_start)
    others = [getattr(stored, each.name)[rows] for each in fields(ReadRanges)[1:]]
    return ReadRanges(extents, *others)


def _sort_by_file(stored: ReadRanges) -> ReadRanges:
    """The rows of each step in the order of the files' numbers, and within each file in that of their places."""
    rows = stored.extents
    return _select_rows(stored, np.lexsort((rows.offset, rows.file, _row_steps(rows))), rows.step_start)
