"""Sizes of samples in memory and in files, drawn by counter, and the sums that place samples in shared files.

Sizes are cheap to draw. So only the totals of blocks of 64 samples are kept (one copy a node, passed in by the caller);
the sizes before a sample in its block are drawn again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Framed
from dliosim.formats.registry import bind
from dliosim.model.counter_rng import draw, key
from dliosim.model.dataset import Dataset
from dliosim.plan.samples.sample_to_file import align_values


def is_framed(dataset: Dataset) -> bool:
    """Return whether every byte of the data set's files has its place before it is written."""
    return not dataset.source and isinstance(bind(dataset), Framed)


def require_framed(dataset: Dataset) -> Framed:
    """Return the format of a framed data set; PlanError where only the files know the places of samples."""
    form = bind(dataset)
    if not isinstance(form, Framed):
        raise PlanError(f"data set `{dataset.name}`: only its files know where samples are in {dataset.format}")
    return form


def header_bytes(dataset: Dataset) -> int:
    """Return the bytes before sample 0 of every file."""
    return require_framed(dataset).header


def sample_strides(dataset: Dataset, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes from the beginning of each sample to that of the next one, for samples of these sizes."""
    form = require_framed(dataset)
    return align_values(form.stride(sizes), form.align)


def has_sample_overlap(dataset: Dataset) -> bool:
    """Return whether reading a sample reads bytes of the next one too: neighbours in `indexed` share a token."""
    sizes = np.array([dataset.constant_size or 1])
    return bool((require_framed(dataset).length(sizes) > sample_strides(dataset, sizes)).any())


BLOCK = 64
# Blocks whose sizes are drawn at a time: 2 MiB of sizes.
_BLOCKS_AT_ONCE = 4096
# Largest number of samples for which one process keeps a sum for each sample, 40 MB: no block is drawn again.
SUMS_OF_SAMPLES = 5_000_000
_LARGEST = float(1 << 53)


def sample_sizes(dataset: Dataset, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of each sample, rounded, at least 1: a function of (seed, data set, sample). int64."""
    if dataset.constant_size is not None:
        return np.full(len(samples), dataset.constant_size, np.int64)
    values = draw(dataset.size, key(dataset.seed, "size", dataset.name), samples)
    np.rint(values, out=values)
    np.clip(values, 1.0, _LARGEST, out=values)
    return values.astype(np.int64)


def needs_totals(dataset: Dataset) -> bool:
    """Return whether the offset of a sample depends on other sizes: sizes vary, and several samples share a file."""
    return dataset.constant_size is None and dataset.layout.files < dataset.samples and is_framed(dataset)


def block_count(dataset: Dataset) -> int:
    """Return the number of blocks of 64 samples; the last block may be shorter."""
    return -(-dataset.samples // BLOCK)


def block_totals(dataset: Dataset, first: int, last: int) -> NDArray[np.int64]:
    """Return the bytes that samples of blocks [first, last) take in files, framing included; int64 (blocks,)."""
    totals = np.empty(last - first, np.int64)
    for begin in range(first, last, _BLOCKS_AT_ONCE):
        end = min(begin + _BLOCKS_AT_ONCE, last)
        samples = np.arange(begin * BLOCK, min(end * BLOCK, dataset.samples))
        sizes = sample_strides(dataset, sample_sizes(dataset, samples))
        totals[begin - first : end - first] = np.add.reduceat(sizes, np.arange(0, len(sizes), BLOCK))
    return totals


def local_prefix_sums(dataset: Dataset) -> NDArray[np.int64]:
    """Return the sums that `bytes_before` needs, in one process: for each sample of a few, else for each block."""
    if dataset.samples > SUMS_OF_SAMPLES:
        return prefix_sum(block_totals(dataset, 0, block_count(dataset)))
    step, result = _BLOCKS_AT_ONCE * BLOCK, np.zeros(dataset.samples + 1, np.int64)
    for first in range(0, dataset.samples, step):
        samples = np.arange(first, min(first + step, dataset.samples))
        result[first + 1 : first + 1 + len(samples)] = sample_strides(dataset, sample_sizes(dataset, samples))
    np.cumsum(result, out=result)
    return result


def prefix_sum(totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes before each block, and after the last one: one entry more than `totals`."""
    result = np.zeros(len(totals) + 1, np.int64)
    np.cumsum(totals, out=result[1:])
    return result


def bytes_before(dataset: Dataset, prefix: NDArray[np.int64] | None, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes that all samples before each of `samples` take in their files; a sample may be N, for all.

    `prefix`, the bytes before each block or each sample, is needed where sizes vary; PlanError without it.
    """
    if dataset.constant_size is not None:
        return samples * int(sample_strides(dataset, np.array([dataset.constant_size]))[0])
    if prefix is None:
        raise PlanError(f"data set {dataset.name}: block totals are needed to place samples of varying size")
    if len(prefix) > dataset.samples:
        return prefix[samples]
    result = np.empty(len(samples), np.int64)
    for first in range(0, len(samples), _BLOCKS_AT_ONCE):
        piece = samples[first : first + _BLOCKS_AT_ONCE]
        result[first : first + len(piece)] = prefix[piece // BLOCK] + _bytes_before_in_block(dataset, piece)
    return result


def _bytes_before_in_block(dataset: Dataset, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    blocks, row = np.unique(samples // BLOCK, return_inverse=True)
    members = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    sizes = sample_strides(dataset, sample_sizes(dataset, members)).reshape(-1, BLOCK)
    before = np.zeros((len(blocks), BLOCK), np.int64)
    np.cumsum(sizes[:, :-1], axis=1, out=before[:, 1:])
    result: NDArray[np.int64] = before[row, samples % BLOCK]
    return result
