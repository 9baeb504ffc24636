"""How many samples a rank reads and how many steps an epoch has, without drawing an order.

With N samples, R ranks and a batch of B: `by sample` gives the rank the positions (step * R + rank) * B + slot of the
order, `by block` the contiguous range [rank * N // R, (rank + 1) * N // R), `by file` the files f with f % R == rank
(file f holds the samples i with i * files // N == f, unless `Dataset.counts` says how many), and `off` everything.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dliosim.lazy_numpy import np
from dliosim.model.dataset import Dataset, rank_sample_counts
from dliosim.model.verbs import Loop

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_TABLE: Final = 1 << 22
"""Rows of any table that a plan is made of; a step of a rank has no more samples, and no more calls."""


def samples_of_rank(loop: Loop, dataset: Dataset, ranks: int, rank: int) -> int:
    """Samples of one rank's shard in one pass, before `last batch` and `steps` apply."""
    return int(samples_of_ranks(loop, dataset, ranks, np.array([rank]))[0])


def samples_of_ranks(loop: Loop, dataset: Dataset, ranks: int, rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same of each of some ranks.

    O(log files) for each; `by file` with counts, once for each number of ranks, O(files).
    """
    total = dataset.samples
    if loop.shard == "off":
        return np.full_like(rank, total)
    if loop.shard == "by block":
        each, more = divmod(total, ranks)
        return each + (rank + 1) * more // ranks - rank * more // ranks
    if loop.shard == "by sample":
        rounds, rest = divmod(total, ranks * loop.batch)
        return rounds * loop.batch + np.clip(rest - rank * loop.batch, 0, loop.batch)
    if dataset.counts is not None:
        return np.array(rank_sample_counts(dataset.counts, ranks))[rank]
    return _file_shards(total, dataset.layout.files, ranks, rank)


def shard_bounds(loop: Loop, dataset: Dataset, ranks: int) -> tuple[int, int]:
    """The fewest and the most samples that any rank has in one pass."""
    if loop.shard == "off":
        return dataset.samples, dataset.samples
    if loop.shard == "by block":
        return dataset.samples // ranks, -(-dataset.samples // ranks)
    if loop.shard == "by sample":
        rounds, rest = divmod(dataset.samples, ranks * loop.batch)
        last, first = max(0, rest - (ranks - 1) * loop.batch), min(rest, loop.batch)
        return rounds * loop.batch + last, rounds * loop.batch + first
    if dataset.counts is not None:
        dealt = rank_sample_counts(dataset.counts, ranks)
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
    size = max(1.0, drawn.low or 0.0, min(drawn.nonnegative_mean(), drawn.high or math.inf))
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


def has_order_dependent_shards(loop: Loop, dataset: Dataset) -> bool:
    """Whether files of different numbers of samples are dealt out shuffled.

    Then each order would give ranks other numbers of samples, and each epoch another number of steps.
    """
    return dataset.counts is not None and loop.shard == "by file" and loop.shuffle.files == "globally"


@lru_cache(maxsize=64)
def _file_shard_bounds(samples: int, files: int, ranks: int) -> tuple[int, int]:
    counts = _file_shards(samples, files, ranks, np.arange(ranks))
    return int(counts.min()), int(counts.max())


def _file_shards(samples: int, files: int, ranks: int, rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples of some of the ranks by whom files are dealt out; of at most 2^31 files, and as many ranks."""
    whole, rest = divmod(samples, files)
    dealt: NDArray[np.int64] = np.maximum(files - rank + ranks - 1, 0) // ranks
    # File f holds `whole` and ceil((f + 1) rest / F) - ceil(f rest / F) more; ceil(a / F) is floor((a + F - 1) / F).
    ends = _floor_sum(dealt, files, ranks * rest, (rank + 1) * rest + files - 1)
    return dealt * whole + ends - _floor_sum(dealt, files, ranks * rest, rank * rest + files - 1)


def _floor_sum(count: NDArray[np.int64], divisor: int, factor: int, constant: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sums of floor((factor * k + constant) / divisor) for k in [0, count), modulo 2^64.

    By the Euclidean algorithm, on which `count` and `constant` go together: each where it has not ended is swapped.
    """
    total = np.zeros_like(count)
    while count.any():
        # The product of a number and the one before it is even; half of it is taken before it wraps around.
        pairs = np.where(count % 2, (count - 1) // 2 * count, count // 2 * (count - 1))
        total += pairs * (factor // divisor) + count * (constant // divisor)
        factor %= divisor
        reach = factor * count + constant % divisor
        count, constant = reach // divisor, reach % divisor
        factor, divisor = divisor, factor
    return total
