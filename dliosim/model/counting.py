"""How many samples a rank reads and how many steps an epoch has, without drawing an order.

With N samples, R ranks and a batch of B: `by sample` gives the rank the positions (step * R + rank) * B + slot of the
order, `by block` the contiguous range [rank * N // R, (rank + 1) * N // R), `by file` the files f with f % R == rank
(file f holds the samples i with i * files // N == f, unless `Dataset.counts` says how many), and `off` everything.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from dliosim.model.counts import dealt_by_file
from dliosim.model.dataset import Dataset
from dliosim.model.verbs import Loop

LARGEST_TABLE: Final = 1 << 22
"""Rows of any table that a plan is made of; a step of a rank has no more samples, and no more calls."""

_CHUNK = 1 << 20  # files counted at once
_CLOSED_FORM_COST = 500  # files that are counted in the time of one rank's closed form


def samples_of_rank(loop: Loop, dataset: Dataset, ranks: int, rank: int) -> int:
    """Samples of one rank's shard in one pass, before `last batch` and `steps` apply.

    O(log samples); `by file` with counts, once for each number of ranks, O(files).
    """
    total = dataset.samples
    if loop.shard == "off":
        return total
    if loop.shard == "by block":
        return (rank + 1) * total // ranks - rank * total // ranks
    if loop.shard == "by sample":
        rounds, rest = divmod(total, ranks * loop.batch)
        return rounds * loop.batch + min(max(rest - rank * loop.batch, 0), loop.batch)
    if dataset.counts is not None:
        return dealt_by_file(dataset.counts, ranks)[rank]
    return _of_files(total, dataset.layout.files, ranks, rank)


def shard_bounds(loop: Loop, dataset: Dataset, ranks: int) -> tuple[int, int]:
    """The fewest and the most samples that any rank has in one pass."""
    if loop.shard == "off":
        return dataset.samples, dataset.samples
    if loop.shard == "by block":
        return dataset.samples // ranks, -(-dataset.samples // ranks)
    if loop.shard == "by sample":
        return samples_of_rank(loop, dataset, ranks, ranks - 1), samples_of_rank(loop, dataset, ranks, 0)
    if dataset.counts is not None:
        dealt = dealt_by_file(dataset.counts, ranks)
        return min(dealt), max(dealt)
    return _file_shard_bounds(dataset.samples, dataset.layout.files, ranks)


def steps_of_epoch(loop: Loop, dataset: Dataset, ranks: int) -> int:
    """Steps of one pass, the same on every rank: `last batch` decides, and `steps` caps them."""
    fewest, most = shard_bounds(loop, dataset, ranks)
    steps = fewest // loop.batch if loop.last_batch == "drop" else -(-most // loop.batch)
    return steps if loop.steps is None else min(steps, loop.steps)


def ranges_of_sample(loop: Loop, dataset: Dataset) -> int:
    """Calls that reading a sample of the mean size takes, or ranges of its file that it is made of; roughly."""
    drawn, pieces = dataset.size, 1.0
    size = max(1.0, drawn.low or 0.0, min(drawn.mean_from_zero(), drawn.high or math.inf))
    if loop.access.transfer is not None and loop.access.through == "direct":
        pieces = size / loop.access.transfer
    if dataset.chunk is not None and dataset.chunk.unit == "bytes":
        pieces = max(pieces, size / dataset.chunk.number)
    return max(dataset.parts, math.ceil(pieces))


def files_in_table(loop: Loop, dataset: Dataset, ranks: int) -> int:
    """Files of which a rank's order needs a table, 0 where closed forms give it."""
    files, each = dataset.layout.files, dataset.samples / dataset.layout.files
    if loop.shard == "by file":
        return 0 if each == int(each) else -(-files // ranks)
    if loop.shuffle.files != "within shard" or each == 1:
        return 0
    return -(-files // ranks) if loop.shard == "by block" else files


def order_decides_shares(loop: Loop, dataset: Dataset) -> bool:
    """Whether files of different numbers of samples are dealt out shuffled.

    Then each order would give ranks other numbers of samples, and each epoch another number of steps.
    """
    return dataset.counts is not None and loop.shard == "by file" and loop.shuffle.files == "globally"


@lru_cache(maxsize=64)
def _file_shard_bounds(samples: int, files: int, ranks: int) -> tuple[int, int]:
    whole, rest = divmod(samples, files)
    if rest == 0:
        return files // ranks * whole, -(-files // ranks) * whole
    if ranks * _CLOSED_FORM_COST < files:
        counts = [_of_files(samples, files, ranks, rank) for rank in range(ranks)]
        return min(counts), max(counts)
    dealt = np.zeros(ranks, np.int64)
    stride = max(1, _CHUNK // ranks) * ranks
    for first in range(0, files, stride):
        file = np.arange(first, min(first + stride, files) + 1, dtype=np.int64)
        extra = np.diff(-(-file * rest // files))
        rows = np.zeros(-(-len(extra) // ranks) * ranks, np.int64)
        rows[: len(extra)] = whole + extra
        dealt += rows.reshape(-1, ranks).sum(axis=0)
    return int(dealt.min()), int(dealt.max())


@lru_cache(maxsize=1 << 17)
def _of_files(samples: int, files: int, ranks: int, rank: int) -> int:
    """Samples in the files rank, rank + ranks, rank + 2 ranks, ..."""
    dealt = -(-(files - rank) // ranks) if rank < files else 0
    # File f holds ceil((f + 1) N / F) - ceil(f N / F) samples; ceil(a / F) is floor((a + F - 1) / F).
    ends = _floor_sum(dealt, files, ranks * samples, (rank + 1) * samples + files - 1)
    return ends - _floor_sum(dealt, files, ranks * samples, rank * samples + files - 1)


def _floor_sum(count: int, divisor: int, factor: int, constant: int) -> int:
    """The sum of floor((factor * k + constant) / divisor) for k in [0, count), by the Euclidean algorithm."""
    total = 0
    while True:
        total += count * (count - 1) // 2 * (factor // divisor) + count * (constant // divisor)
        factor %= divisor
        constant %= divisor
        reach = factor * count + constant
        if reach < divisor:
            return total
        count, constant = reach // divisor, reach % divisor
        factor, divisor = divisor, factor
