"""The ranges of files that an epoch reads from storage, in order; a run and its forecast both use them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.model.access import Access
from dliosim.model.dataset import Dataset
from dliosim.plan.samples.io_requests import Extents, ReadRanges
from dliosim.plan.samples.places import Places


def plan_reads(extents: Extents, access: Access, kept: NDArray[np.int64], places: Places) -> ReadRanges:
    """Return the ranges that calls read for the samples of `extents`, in the same steps; a step may have none.

    `kept` are the samples, sorted, that `cache memory` holds: they are not read again. With `order by offset` a batch
    is read in the order of the files. Collective calls always read like this: offsets in a file view must not decrease.
    The batch has this order in memory too, so nothing is reordered. A unit of several samples is read once a step.

    Raises PlanError: [E211] where `cache memory` cannot keep samples, as they are several ranges or share one; [E216]
    where a library would have to read samples without a fixed size.
    """
    if access.memory and access.through == "direct" and not places.has_single_ranges:
        text = f"`cache memory` does not keep samples of `{places.dataset.name}`: in their files they are several"
        raise PlanError(f"{text} ranges each, or share what is encoded as one; use `cache page`", "E211")
    if len(kept):
        place = np.searchsorted(kept, extents.sample)
        place[place == len(kept)] = 0
        extents = extents.select(kept[place] != extents.sample)
    stored = _library_ranges(extents, places) if access.through == "library" else places.read_ranges(extents)
    return stored.sort_by_file() if access.is_file_ordered else stored


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


def _library_ranges(extents: Extents, places: Places) -> ReadRanges:
    """Return what a library is asked for: the library finds samples itself, in the contents of a file, row after row.

    Offsets are offsets in contents, not in files: sample k of a file begins at k times a sample's bytes.
    """
    dataset, file = places.dataset, places.files_of(extents.sample)
    within, size = extents.sample - places.first_samples(file), places.library_bytes(extents.sample)
    if not size.all():
        text = f"samples of `{dataset.name}` in {dataset.format} have no fixed size: its library cannot read one"
        raise PlanError(f"{text}; name other `datasets`, or use `through direct`", "E216")
    zeros = np.zeros(len(size), np.int64)
    rows = Extents(extents.sample, file, within * size, size, extents.step_start)
    return ReadRanges(rows, zeros, zeros, zeros if dataset.source else size, zeros, zeros)
