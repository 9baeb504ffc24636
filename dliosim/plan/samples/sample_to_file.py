"""Samples by closed forms, and not by tables: their order, their files, and their sizes.

Sample i of N is in file i * F // N. Files from another source may hold any number of samples each: then tables replace
closed forms. Orders are a keyed bijection, without a stored permutation, and the shuffle buffer of tf.data. Sizes are
drawn by counter, which is cheap. So only the totals of blocks of 64 samples are kept (one copy a node, passed in by the
caller); the sizes before a sample in its block are drawn again.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Format, Framed, Ints
from dliosim.formats.registry import bind
from dliosim.model.counter_rng import draw, key, map_chunks, random_words
from dliosim.model.dataset import LARGEST_SAMPLE, Dataset

# Up to this n a permutation is a table, made by sorting random words: uniform, and cheaper than the bijection.
TABLE_LIMIT = 4096
_ROUNDS = 6
_FIRST = np.uint64(0xD6E8FEB86659FD93)
_SECOND = np.uint64(0xA0761D6478BD642F)
_32 = np.uint64(32)


class Permutation:
    """A permutation of [0, n) that is a function of (n, key), computed only at the positions asked for.

    An additive Feistel network over the smallest rectangle a x b >= n with a = ceil(sqrt(n)). A value outside [0, n),
    fewer than one in sqrt(n), is mapped again until it is inside. Time and memory grow with the positions asked for.
    """

    __slots__ = ("_columns", "_keys", "_rows", "_table", "n")

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self._table: Ints | None = None
        if n <= TABLE_LIMIT:
            self._table = np.argsort(random_words(key, np.arange(n)), kind="stable").astype(np.int64)
            return
        rows = math.isqrt(n - 1) + 1
        self._rows = np.uint64(rows)
        self._columns = np.uint64(-(-n // rows))
        self._keys = random_words(key, np.arange(_ROUNDS))

    def __call__(self, positions: Ints) -> Ints:
        """Return the image of each position; positions must be in [0, n)."""
        if self._table is not None:
            return self._table[positions]
        return map_chunks(self._images, positions, np.int64)

    def _images(self, positions: Ints) -> Ints:
        values = self._network(positions.astype(np.uint64))
        limit = np.uint64(self.n)
        outside = np.flatnonzero(values >= limit)
        while len(outside):
            values[outside] = self._network(values[outside])
            outside = outside[values[outside] >= limit]
        return values.view(np.int64)

    def _network(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        row: NDArray[np.uint64] = values // self._columns
        column = values - row * self._columns
        for i in range(0, _ROUNDS, 2):
            _add_random(row, column, self._keys[i], self._rows)
            _add_random(column, row, self._keys[i + 1], self._columns)
        row *= self._columns
        row += column
        return row


def _add_random(target: NDArray[np.uint64], source: NDArray[np.uint64], key: np.uint64, size: np.uint64) -> None:
    """Add a random function of `source` to `target`, modulo `size` (at most 2**32), in place."""
    word = source ^ key
    word *= _FIRST
    word ^= word >> _32
    word *= _SECOND
    word >>= _32
    word *= size
    word >>= _32
    target += word
    # If `target` is below `size`, the difference wraps to a huge number: the smaller of both is the remainder.
    np.subtract(target, size, out=word)
    np.minimum(target, word, out=target)


def shuffle_buffer_order(n: int, buffer: int, key: int, outputs: int) -> Ints:
    """Return the first `outputs` inputs that a shuffle buffer of `buffer` samples returns from a stream of n.

    As in tf.data: the buffer is filled with the first inputs. Each output picks a slot at random, and the next input
    refills it. When the stream has ended, the rest is returned in random order. So output j is an input below j +
    buffer. Time and memory grow with the outputs, not with the buffer.
    """
    buffer = max(1, min(buffer, n))
    picks = max(0, min(outputs, n - buffer))
    words = random_words(key, np.arange(picks))
    slot = ((words >> _32) * np.uint64(buffer)) >> _32
    # Sorted by slot, picks of one slot are neighbours in order of time: each returns the input of the pick before it.
    by_slot = np.argsort(slot, kind="stable")
    chains = slot[by_slot].astype(np.int64)
    head = np.diff(chains, prepend=-1) > 0
    content = np.empty(picks, np.int64)
    content[1:] = by_slot[:-1] + buffer
    content[head] = chains[head]
    result = np.empty(outputs, np.int64)
    result[by_slot] = content
    if outputs > picks:
        left = Permutation(buffer, key ^ 0x2545F4914F6CDD1D)(np.arange(outputs - picks))
        if picks:  # a slot still holds the input of its last pick
            tail = np.append(head[1:], True)
            slots, last = chains[tail], by_slot[tail] + buffer
            place = np.minimum(np.searchsorted(slots, left), len(slots) - 1)
            left = np.where(slots[place] == left, last[place], left)
        result[picks:] = left
    return result


def align_up(value: int, align: int) -> int:
    """Return `value` rounded up to a multiple of `align`."""
    return -(-value // align) * align


def align_values(values: Ints, align: int) -> Ints:
    """Return `values` rounded up to multiples of `align`."""
    return values if align == 1 else -(-values // align) * align


def prefix_sum(counts: Ints | NDArray[np.bool_]) -> Ints:
    """Return the sum of all `counts` before each, and at the end of all: one entry more than `counts`."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def files_of(samples: Ints, total: int, files: int) -> Ints:
    """Return the file of each sample, of `total` samples in `files` files."""
    if files == total:
        return samples
    if files == 1:
        return np.zeros_like(samples)
    if total % files == 0:
        return samples // (total // files)
    _check_limits(total, files)
    return samples * files // total


def first_samples(file: Ints, total: int, files: int) -> Ints:
    """Return the first sample of each file, `file` in [0, files]; `total` for the file after the last one."""
    if files == total:
        return file
    if total % files == 0:
        return file * (total // files)
    _check_limits(total, files)
    return -(-file * total // files)


def _check_limits(total: int, files: int) -> None:
    if total * files >= 2**62:
        raise PlanError(f"{total} samples in {files} files: more than can be planned unless every file holds as many")


class FileOrder:
    """The stream of all samples, file after file; a key permutes the files, not the samples inside a file.

    If files differ in their number of samples (by one, since N is no multiple of F), larger files are permuted among
    the places of larger files, and smaller among those of smaller files. So the file in place q holds as many samples
    as file q: every start is a closed form, and the steps of an epoch do not depend on the epoch.
    """

    def __init__(self, total: int, files: int, key: int | None) -> None:
        self.total = total
        self.files = files
        self.each = None if total % files else total // files
        self.permuted = key is not None
        self._remainder = total % files
        if key is not None:
            _check_limits(self._remainder, files)
            self._large = Permutation(self._remainder, key)
            self._small = Permutation(files - self._remainder, key ^ 0x9E3779B97F4A7C15)

    def files_at(self, place: Ints) -> Ints:
        """Return the file in each place of the order."""
        if not self.permuted:
            return place
        if self._remainder == 0:
            return self._small(place)
        files, larger, smaller = self.files, self._remainder, self.files - self._remainder
        before = -(-place * larger // files)  # larger files in the places before this one
        is_large = -(-(place + 1) * larger // files) > before
        result = np.empty_like(place)
        result[is_large] = self._large(before[is_large]) * files // larger
        rest = ~is_large
        result[rest] = -(-(self._small(place[rest] - before[rest]) + 1) * files // smaller) - 1
        return result

    def places_of(self, position: Ints) -> Ints:
        """Return the place in the order of the file that holds each position of the stream."""
        return files_of(position, self.total, self.files)

    def starts_of(self, place: Ints) -> Ints:
        """Return the position of the stream at which the file in each place begins, `place` in [0, files]."""
        return first_samples(place, self.total, self.files)

    def first_samples(self, file: Ints) -> Ints:
        """Return the first sample of each file."""
        return first_samples(file, self.total, self.files)

    def samples_at(self, position: Ints) -> Ints:
        """Return the sample at each position of the stream."""
        if not self.permuted:
            return position
        place = self.places_of(position)
        return position - self.starts_of(place) + self.first_samples(self.files_at(place))


class TableOrder(FileOrder):
    """The same for files with any number of samples.

    `first` is the first sample of each file, and at the end the total. With a key any file may have any place, so the
    place of a file does not give its number of samples. Time and memory grow with the number of files.
    """

    def __init__(self, first: Ints, key: int | None) -> None:
        self.files = len(first) - 1
        self.total = int(first[-1])
        self.each = None
        self.permuted = key is not None
        self._first = self._start = first
        if key is not None:
            self._file = Permutation(self.files, key)(np.arange(self.files))
            self._start = prefix_sum(np.diff(first)[self._file])

    def files_at(self, place: Ints) -> Ints:
        """Return the file in each place of the order."""
        return self._file[place] if self.permuted else place

    def places_of(self, position: Ints) -> Ints:
        """Return the place in the order of the file that holds each position of the stream; never an empty file's."""
        return np.searchsorted(self._start, position, side="right") - 1

    def starts_of(self, place: Ints) -> Ints:
        """Return the position of the stream at which the file in each place begins, `place` in [0, files]."""
        return self._start[place]

    def first_samples(self, file: Ints) -> Ints:
        """Return the first sample of each file."""
        return self._first[file]


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
