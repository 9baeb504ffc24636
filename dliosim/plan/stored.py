"""What of an epoch is read from storage, and in which order; a run and its forecast both ask here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.model.access import Access
from dliosim.model.dataset import Dataset
from dliosim.plan.extents import Extents


def stored_rows(extents: Extents, access: Access, kept: NDArray[np.int64]) -> Extents:
    """The rows that calls read, in their order and in the same steps, some of which may be left without any.

    `kept` has the samples, sorted, that `cache memory` holds: they are not read again. With `order by offset` a batch
    is read in the order of the files, as it always is by collective calls: a view must go forward in its file. With the
    batch in the same order in memory nothing needs to be put right.
    """
    if len(kept):
        place = np.searchsorted(kept, extents.sample)
        place[place == len(kept)] = 0
        extents = _chosen(extents, kept[place] != extents.sample)
    return _in_file_order(extents) if access.in_file_order else extents


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
    return needed if dataset.fixed_size is not None else needed + needed // 8


def _chosen(extents: Extents, chosen: NDArray[np.bool_]) -> Extents:
    before = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(chosen, out=before[1:])
    return Extents(
        extents.sample[chosen],
        extents.file[chosen],
        extents.offset[chosen],
        extents.length[chosen],
        before[extents.step_start],
    )


def _in_file_order(extents: Extents) -> Extents:
    """The rows of each step in the order of the files' numbers, and within each file in that of their places."""
    step = np.repeat(np.arange(extents.steps), np.diff(extents.step_start))
    order = np.lexsort((extents.offset, extents.file, step))
    return Extents(
        extents.sample[order],
        extents.file[order],
        extents.offset[order],
        extents.length[order],
        extents.step_start,
    )
