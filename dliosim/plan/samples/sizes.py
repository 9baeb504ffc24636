"""Sizes of samples in memory and in their files, drawn by counter, and the sums that place samples in shared files.

Sizes are cheap to draw, so only the totals of blocks of 64 samples are kept (one copy a node, passed in by the caller);
what is before a sample inside its block is drawn again.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Format, Framed
from dliosim.formats.raw import RAW
from dliosim.formats.registry import format_for
from dliosim.model.counter_rng import draw, key
from dliosim.model.dataset import Dataset
from dliosim.plan.samples.sample_to_file import align_values

#: Types of formats, and whether they are framed.
_KNOWN: dict[type[Format], bool] = {}


def is_framed(dataset: Dataset) -> bool:
    """Whether every byte of the data set's files has its place before it is written."""
    return not dataset.source and _cast_framed(format_for(dataset)) is not None


def require_framed(dataset: Dataset) -> Framed:
    """The format of such a data set; PlanError where only the files know."""
    if dataset.format == "raw":  # most plans, and the hottest path
        return RAW
    form = _cast_framed(format_for(dataset))
    if form is None:
        raise PlanError(f"data set `{dataset.name}`: only its files know where samples lie in {dataset.format}")
    return form


def _cast_framed(form: Format) -> Framed | None:
    """The format, if it is such a one."""
    kind = type(form)
    if kind not in _KNOWN:  # to look for all methods takes 20 us
        _KNOWN[kind] = isinstance(form, Framed)
    return cast(Framed, form) if _KNOWN[kind] else None


def header_bytes(dataset: Dataset) -> int:
    """Bytes before sample 0 of every file."""
    return require_framed(dataset).header(dataset)


def sample_strides(dataset: Dataset, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes from where samples of these sizes begin to where the next ones do."""
    form = require_framed(dataset)
    return align_values(form.stride(dataset, sizes), form.align(dataset))


def has_sample_overlap(dataset: Dataset) -> bool:
    """Whether reading a sample takes bytes of the next one, too: those of `indexed` have a token in common."""
    sizes = np.array([dataset.constant_size or 1])
    return bool((require_framed(dataset).length(dataset, sizes) > sample_strides(dataset, sizes)).any())


BLOCK = 64
# Blocks drawn at a time: 2 MiB of sizes.
_BLOCKS_AT_ONCE = 4096
SUMS_OF_SAMPLES = 5_000_000  # 40 MB of a process by itself; then no block is drawn again for each sample
_LARGEST = float(1 << 53)


def sample_sizes(dataset: Dataset, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of each sample, to the nearest byte and at least 1: a function of (seed, data set, sample)."""
    if dataset.constant_size is not None:
        return np.full(len(samples), dataset.constant_size, np.int64)
    values = draw(dataset.size, key(dataset.seed, "size", dataset.name), samples)
    np.rint(values, out=values)
    np.clip(values, 1.0, _LARGEST, out=values)
    return values.astype(np.int64)


def needs_totals(dataset: Dataset) -> bool:
    """Whether the place of a sample depends on the sizes of others: sizes vary and several samples share a file."""
    return dataset.constant_size is None and dataset.layout.files < dataset.samples and is_framed(dataset)


def block_count(dataset: Dataset) -> int:
    """Blocks of 64 samples, the last one perhaps shorter."""
    return -(-dataset.samples // BLOCK)


def block_totals(dataset: Dataset, first: int, last: int) -> NDArray[np.int64]:
    """Bytes that the samples of blocks [first, last) take in their files, with what lies around each."""
    totals = np.empty(last - first, np.int64)
    for begin in range(first, last, _BLOCKS_AT_ONCE):
        end = min(begin + _BLOCKS_AT_ONCE, last)
        samples = np.arange(begin * BLOCK, min(end * BLOCK, dataset.samples))
        sizes = sample_strides(dataset, sample_sizes(dataset, samples))
        totals[begin - first : end - first] = np.add.reduceat(sizes, np.arange(0, len(sizes), BLOCK))
    return totals


def local_prefix_sums(dataset: Dataset) -> NDArray[np.int64]:
    """What `bytes_before` needs, of one process by itself: of each sample where these are few, else of each block."""
    if dataset.samples > SUMS_OF_SAMPLES:
        return prefix_sum(block_totals(dataset, 0, block_count(dataset)))
    step, result = _BLOCKS_AT_ONCE * BLOCK, np.zeros(dataset.samples + 1, np.int64)
    for first in range(0, dataset.samples, step):
        samples = np.arange(first, min(first + step, dataset.samples))
        result[first + 1 : first + 1 + len(samples)] = sample_strides(dataset, sample_sizes(dataset, samples))
    np.cumsum(result, out=result)
    return result


def prefix_sum(totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes before each block, and after the last: one longer than `totals`."""
    result = np.zeros(len(totals) + 1, np.int64)
    np.cumsum(totals, out=result[1:])
    return result


def bytes_before(dataset: Dataset, prefix: NDArray[np.int64] | None, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes that all samples before each of `samples` (which may be N, for all of them) take in their files.

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
