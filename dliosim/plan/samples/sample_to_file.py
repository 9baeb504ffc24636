"""The file of each sample: sample i of N is in file i * F // N, by closed forms in both directions.

Files from another source may hold any number of samples each: then tables replace closed forms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.plan.samples.shuffling import Permutation


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
