"""Samples of a rank and steps of an epoch, computed without an order of samples.

With N samples, R ranks and a batch of B, rank r reads: `by sample`, the positions (step * R + r) * B + slot of the
order; `by block`, the contiguous range [r * N // R, (r + 1) * N // R); `by file`, the files f with f % R == r; `off`,
all samples. File f holds the samples i with i * files // N == f, unless `Dataset.counts` has the samples of each file.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dliosim.lazy_numpy import np
from dliosim.model.dataset import Dataset, rank_sample_counts
from dliosim.model.joined import JoinedDataset
from dliosim.model.verbs import Loop

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Largest number of rows of any table of a plan. It limits the samples and the calls in one step of a rank.
LARGEST_TABLE: Final = 1 << 22


def samples_of_rank(loop: Loop, dataset: Dataset, ranks: int, rank: int) -> int:
    """Return the samples of one rank's shard in one pass, before `last batch` and `steps` apply."""
    return int(samples_of_ranks(loop, dataset, ranks, np.array([rank]))[0])


def find_shard(loop: Loop, dataset: Dataset, ranks: int, rank: int) -> tuple[int, int]:
    """Return the rank whose shard a rank reads, and its samples: as `shifted by` says, but never an empty shard to pad.

    PyTorch's DistributedSampler too repeats all samples as often as ranks need them.
    """
    reader = (rank + loop.shift) % ranks
    own = samples_of_rank(loop, dataset, ranks, reader)
    if not own and pads_all_ranks(loop):
        if loop.shard == "by sample":
            reader %= -(-dataset.samples // loop.batch)
        else:  # the rank that has one of the samples
            reader = -(-(reader % dataset.samples + 1) * ranks // dataset.samples) - 1
        own = samples_of_rank(loop, dataset, ranks, reader)
    return reader, own


def pads_all_ranks(loop: Loop) -> bool:
    """Return whether `last batch pad` fills the batches of all ranks, even of ranks without samples."""
    return loop.last_batch == "pad" and loop.shard != "by file"


def samples_of_ranks(loop: Loop, dataset: Dataset, ranks: int, rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the samples of the shards of some ranks, as `samples_of_rank`; int64, the shape of `rank`.

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
    """Return the fewest and the most samples that any rank has in one pass."""
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


def steps_of_epoch(loop: Loop, dataset: Dataset | None, ranks: int) -> int:
    """Return the steps of one pass, the same on every rank: `last batch` decides, and `steps` limits them.

    If nothing is read (None), these are all.
    """
    if dataset is None:
        return loop.steps or 0
    fewest, most = shard_bounds(loop, dataset, ranks)
    steps = fewest // loop.batch if loop.last_batch == "drop" else -(-most // loop.batch)
    return steps if loop.steps is None else min(steps, loop.steps)


def rows_of_step(loop: Loop, dataset: Dataset) -> int:
    """Return about how many rows the largest table of a step has: its samples, or their ranges if these are more.

    A sample of the mean size takes the ranges that its calls, chunks and parts make; samples share those of an encoded
    unit, such as a row group.
    """
    if isinstance(dataset, JoinedDataset):
        if not (weights := dataset.sources.weights):
            return sum(rows_of_step(loop, one) for one in dataset.joined)
        parts = [replace(loop, batch=max(1, math.ceil(loop.batch * weight / sum(weights)))) for weight in weights]
        most = max(rows_of_step(replace(loop, batch=1), one) for one in dataset.joined)
        return min(sum(map(rows_of_step, parts, dataset.joined)), loop.batch * most)
    drawn, pieces, units = dataset.size, 1.0, float(loop.batch)
    size = max(1.0, drawn.low or 0.0, min(drawn.nonnegative_mean(), drawn.high or math.inf))
    if loop.access.transfer is not None and loop.access.through == "direct":
        pieces = size / loop.access.transfer
    if (shared := dataset.samples_of_unit(size)) > 1:
        each_file = max(1.0, dataset.samples / dataset.layout.files)
        among = dataset.samples if loop.shuffle.samples != "off" else units
        units = min(units, among / min(shared, each_file) + among / each_file + 2)  # a file ends with a part of a unit
    each_unit = max(dataset.parts, math.ceil(max(pieces, dataset.chunks_of_sample(size))))
    return max(loop.batch, math.ceil(units) * each_unit)


def files_in_table(loop: Loop, dataset: Dataset, ranks: int) -> int:
    """Return the number of files for which a rank's order needs a table; 0 if closed forms give it."""
    files, each = dataset.layout.files, dataset.samples / dataset.layout.files
    if loop.shard == "by file":
        return 0 if each == int(each) else -(-files // ranks)
    if loop.shuffle.files != "within shard" or each == 1:
        return 0
    return -(-files // ranks) if loop.shard == "by block" else files


def has_order_dependent_shards(loop: Loop, dataset: Dataset) -> bool:
    """Return whether files with different numbers of samples are shuffled and then dealt to ranks.

    Then each order would give a rank another number of samples, and each epoch another number of steps.
    """
    return dataset.counts is not None and loop.shard == "by file" and loop.shuffle.files == "globally"


@lru_cache(maxsize=64)
def _file_shard_bounds(samples: int, files: int, ranks: int) -> tuple[int, int]:
    counts = _file_shards(samples, files, ranks, np.arange(ranks))
    return int(counts.min()), int(counts.max())


def _file_shards(samples: int, files: int, ranks: int, rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the samples of some ranks, int64, if files are dealt to ranks; at most 2^31 files and 2^31 ranks."""
    whole, rest = divmod(samples, files)
    dealt: NDArray[np.int64] = np.maximum(files - rank + ranks - 1, 0) // ranks
    # File f holds `whole` and ceil((f + 1) rest / F) - ceil(f rest / F) more; ceil(a / F) is floor((a + F - 1) / F).
    ends = _floor_sum(dealt, files, ranks * rest, (rank + 1) * rest + files - 1)
    return dealt * whole + ends - _floor_sum(dealt, files, ranks * rest, rank * rest + files - 1)


def _floor_sum(count: NDArray[np.int64], divisor: int, factor: int, constant: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums of floor((factor * k + constant) / divisor) for k in [0, count), modulo 2^64.

    By the Euclidean algorithm, in which `count` and `constant` advance together; elements that have ended add 0.
    """
    total = np.zeros_like(count)
    while count.any():
        # count * (count - 1) is even. The even factor is halved first, so that the product does not overflow earlier.
        pairs = np.where(count % 2, (count - 1) // 2 * count, count // 2 * (count - 1))
        total += pairs * (factor // divisor) + count * (constant // divisor)
        factor %= divisor
        reach = factor * count + constant % divisor
        count, constant = reach // divisor, reach % divisor
        factor, divisor = divisor, factor
    return total


def moves_samples(loop: Loop) -> bool:
    """Return whether a rank reads other samples in each epoch."""
    shuffle = loop.shuffle
    samples = shuffle.samples == "globally" and not shuffle.samples_once and loop.shard != "by file"
    return samples or (shuffle.files == "globally" and not shuffle.files_once)
