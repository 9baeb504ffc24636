"""Hashes of a rank's reads that add up over steps and ranks modulo 2**64, in any order of ranks and steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.model.counter_rng import CHUNK, key, mix
from dliosim.plan.samples.io_requests import Extents

_FACTORS = tuple(np.uint64(key(0, "digest", i) | 1) for i in range(4))


def order_hash(rank: int, extents: Extents, first_step: int, last_step: int, epoch: int = 0, salt: int = 0) -> int:
    """Return a sum of hashes of (salt, epoch, step, rank, sample, length), over the rows of some steps."""
    rows = np.diff(extents.step_start[first_step : last_step + 1])
    step = np.repeat(np.arange(first_step, last_step), rows)
    first, last = int(extents.step_start[first_step]), int(extents.step_start[last_step])
    return _sum_hashes(key(salt, "order", epoch, rank), step, extents.sample[first:last], extents.length[first:last])


def extent_hash(extents: Extents, first_step: int, last_step: int, salt: int = 0) -> int:
    """Return a sum of hashes of (salt, file, offset, length), over rows of steps [first_step, last_step)."""
    first, last = int(extents.step_start[first_step]), int(extents.step_start[last_step])
    columns = extents.file[first:last], extents.offset[first:last], extents.length[first:last]
    return _sum_hashes(key(salt, "extents"), *columns)


def _sum_hashes(start: int, *columns: NDArray[np.int64]) -> int:
    total = 0
    for begin in range(0, len(columns[0]), CHUNK):
        word = np.full(len(columns[0][begin : begin + CHUNK]), start, np.uint64)
        for column, factor in zip(columns, _FACTORS, strict=False):
            # Mixed after each column: a weighted sum of all would be the same for rows that exchange their values.
            word += column[begin : begin + CHUNK].view(np.uint64) * factor
            mix(word)
        total += int(word.sum(dtype=np.uint64))
    return total & (2**64 - 1)
