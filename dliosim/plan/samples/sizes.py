"""Sizes of samples in memory and in files, drawn by counter, and the sums that place samples in shared files.

Sizes are cheap to draw. So only the totals of blocks of 64 samples are kept (one copy a node, passed in by the caller);
the sizes before a sample in its block are drawn again.
"""

from __future__ import annotations

import numpy as np

from dliosim.formats.protocols import Format, Framed, Ints
from dliosim.formats.registry import bind
from dliosim.model.counter_rng import draw, key
from dliosim.model.dataset import LARGEST_SAMPLE, Dataset
from dliosim.plan.samples.sample_to_file import align_values, files_of, prefix_sum


def sample_strides(form: Framed, sizes: Ints) -> Ints:
    """Return the bytes from the beginning of each sample to that of the next one, for samples of these sizes."""
    return align_values(form.stride(sizes), form.align)


BLOCK = 64
# Blocks whose sizes are drawn at a time: 2 MiB of sizes.
BLOCKS_AT_ONCE = 4096
# Largest number of samples for which one process keeps a sum for each sample, 40 MB: no block is drawn again.
SUMS_OF_SAMPLES = 5_000_000


def sample_sizes(dataset: Dataset, samples: Ints) -> Ints:
    """Return the bytes of each sample, rounded, at least 1: a function of (seed, data set, sample or file). int64."""
    if dataset.constant_size is not None:
        return np.full(len(samples), dataset.constant_size, np.int64)
    drawn = files_of(samples, dataset.samples, dataset.layout.files) if dataset.sizes == "by file" else samples
    values = draw(dataset.size, key(dataset.seed, "size", dataset.name), drawn)
    np.rint(values, out=values)
    np.clip(values, 1.0, LARGEST_SAMPLE, out=values)
    return values.astype(np.int64)


def bind_file(form: Format, first: int) -> Format:
    """Return the format of one file, whose samples have one size; `first` is any of them."""
    if form.dataset.constant_size is not None:
        return form
    return bind(form.dataset.fix_size(int(sample_sizes(form.dataset, np.array([first]))[0])))


def needs_totals(dataset: Dataset) -> bool:
    """Return whether the offset of a sample depends on other sizes: sizes vary, and several samples share a file."""
    return dataset.constant_size is None and dataset.layout.files < dataset.samples and not bind(dataset).needs_index


def block_count(dataset: Dataset) -> int:
    """Return the number of blocks of 64 samples; the last block may be shorter."""
    return -(-dataset.samples // BLOCK)


def block_totals(form: Framed, first: int, last: int) -> Ints:
    """Return the bytes that samples of blocks [first, last) take in files, framing included; int64 (blocks,)."""
    totals = np.empty(last - first, np.int64)
    for begin in range(first, last, BLOCKS_AT_ONCE):
        end = min(begin + BLOCKS_AT_ONCE, last)
        samples = np.arange(begin * BLOCK, min(end * BLOCK, form.dataset.samples))
        sizes = sample_strides(form, sample_sizes(form.dataset, samples))
        totals[begin - first : end - first] = np.add.reduceat(sizes, np.arange(0, len(sizes), BLOCK))
    return totals


def local_prefix_sums(form: Framed) -> Ints:
    """Return the sums that `FramedPlaces` needs, in one process: for each sample of a few, else for each block."""
    dataset = form.dataset
    if dataset.samples > SUMS_OF_SAMPLES:
        return prefix_sum(block_totals(form, 0, block_count(dataset)))
    step, result = BLOCKS_AT_ONCE * BLOCK, np.zeros(dataset.samples + 1, np.int64)
    for first in range(0, dataset.samples, step):
        samples = np.arange(first, min(first + step, dataset.samples))
        result[first + 1 : first + 1 + len(samples)] = sample_strides(form, sample_sizes(form.dataset, samples))
    np.cumsum(result, out=result)
    return result
