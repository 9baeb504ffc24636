"""The places of the samples of several data sets that a loop reads as one, and the order of a mixture's samples.

Samples and files are numbered through all data sets, one data set after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dliosim.formats.protocols import Column, Format, Ints
from dliosim.model.counter_rng import key, random_words
from dliosim.model.joined import JoinedDataset
from dliosim.plan.samples.io_requests import Extents, ReadRanges, empty_ranges
from dliosim.plan.samples.places import Member, Places

#: Samples of a mixture in a block, at most: each block holds the exact shares, in a random order.
_BLOCK = 1000

#: Orders that an epoch draws; each block takes one: a rank that reads few samples of each block needs no more of them.
_ORDERS = 64


@dataclass(frozen=True, eq=False)
class JoinedPlaces(Places):
    """The places of the samples of several data sets."""

    plans_shared_bytes = True
    #: nothing has the format of all data sets
    form: Format = field(init=False)
    #: the data sets as one
    joint: JoinedDataset
    #: the places of each
    each: tuple[Places, ...]

    @property
    def dataset(self) -> JoinedDataset:
        """The data sets as one."""
        return self.joint

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The data sets with the numbers of their first samples and files."""
        samples = accumulate((one.dataset.samples for one in self.each), initial=0)
        files = accumulate((one.dataset.layout.files for one in self.each), initial=0)
        return tuple(Member(*found) for found in zip(self.each, samples, files, strict=False))

    @property
    def has_disjoint_samples(self) -> bool:
        """True if all samples are, and a mixture does not read some again."""
        return not self.joint.sources.repeated and all(one.has_disjoint_samples for one in self.each)

    @property
    def has_single_ranges(self) -> bool:
        """True if each sample is one range of bytes that is read for this sample alone."""
        return all(one.has_single_ranges for one in self.each)

    @property
    def has_plain_samples(self) -> bool:
        """False: no closed form counts the bytes and calls of several data sets."""
        return False

    @property
    def read_bytes(self) -> int | None:
        """Return None: samples of several data sets differ."""
        return None

    def locate(self, samples: Ints) -> tuple[Ints, Ints, Ints]:
        """Return file, offset and length of each sample."""
        found = np.empty((3, len(samples)), np.int64)
        for member, rows in self.split_rows(samples):
            found[:, rows] = member.places.locate(samples[rows] - member.first_sample)
            found[0, rows] += member.first_file
        file, offset, length = found
        return file, offset, length

    def file_sizes(self, files: Ints) -> Ints:
        """Return the bytes of each file."""
        number, sizes = self.member_of_files(files), np.empty(len(files), np.int64)
        for one, member in enumerate(self.members):
            sizes[number == one] = member.places.file_sizes(files[number == one] - member.first_file)
        return sizes

    def read_ranges(self, extents: Extents) -> ReadRanges:
        """Return the ranges that hold the samples, in the order of these: those of a sample follow each other."""
        made: list[ReadRanges] = []
        origins: list[Ints] = []
        for member, rows in self.split_rows(extents.sample):
            own = extents.select_rows(rows, np.searchsorted(rows, extents.step_start))
            own = replace(own, sample=own.sample - member.first_sample, file=own.file - member.first_file)
            found = member.places.read_ranges(own)
            read = found.extents
            origins.append(rows[_find_rows(own, read)])
            read = replace(read, sample=read.sample + member.first_sample, file=read.file + member.first_file)
            made.append(replace(found, extents=read))
        return (
            ReadRanges.merge(made, np.concatenate(origins), extents.step_start) if made else empty_ranges(extents.steps)
        )

    def drop_units(self) -> JoinedPlaces:
        """Return the same places without the offsets and lengths of units."""
        return replace(self, each=tuple(one.drop_units() for one in self.each))

    def decoder_column(self, number: int, file: int) -> Column | None:
        """Return column `number` of a file without its units."""
        member = self.member_of(file)
        return member.places.decoder_column(number, file - member.first_file)

    def split_rows(self, samples: Ints) -> Iterator[tuple[Member, Ints]]:
        """Yield the rows of `samples` that belong to each data set, for data sets with any."""
        members = self.members
        number = np.searchsorted([one.first_sample for one in members], samples, side="right") - 1
        for one, member in enumerate(members):
            if len(rows := np.flatnonzero(number == one)):
                yield member, rows


def _find_rows(asked: Extents, read: Extents) -> Ints:
    """Return for each range the first row of `asked` in the same step with the same sample."""
    if len(asked.sample) == len(read.sample) and (asked.sample == read.sample).all():
        return np.arange(len(read.sample))
    samples, number = np.unique(asked.sample, return_inverse=True)
    keys = asked.row_steps() * len(samples) + number
    order = np.argsort(keys, kind="stable")
    wanted = read.row_steps() * len(samples) + np.searchsorted(samples, read.sample)
    return order[np.searchsorted(keys[order], wanted)]


def draw_mixture(dataset: JoinedDataset, loop: str, epoch: int, position: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield for each data set of a mixture the rows of `position` that read it, and which of its samples: the n-th.

    `position` counts the samples of all ranks in an epoch. A block of them holds each data set as often as its share
    says, and the last one, which may be shorter, does so, too; the order in a block is drawn.
    """
    quotas, drawn = dataset.sources.quotas, key(dataset.seed, "mixture", loop, epoch)
    each = sum(quotas)
    times = max(1, _BLOCK // each)
    number, slot = np.divmod(position, each * times)
    whole, rest = divmod(dataset.samples // each, times)
    row = (random_words(drawn, number) % np.uint64(_ORDERS)).astype(np.int64)
    source, before = (table[row, slot] for table in _draw_orders(drawn, quotas, times, _ORDERS))
    last = np.flatnonzero(number == whole)
    if len(last):
        source[last], before[last] = (table[0, slot[last]] for table in _draw_orders(drawn, quotas, rest, 1))
    for one, quota in enumerate(quotas):
        rows = np.flatnonzero(source == one)
        yield one, rows, number[rows] * (quota * times) + before[rows]


@lru_cache(maxsize=8)
def _draw_orders(
    drawn: int, quotas: tuple[int, ...], times: int, orders: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the data set of each sample in `orders` orders of a block of `times` quotas, and how often it came before.

    Two arrays (orders, samples).
    """
    counts = np.array(quotas) * times
    block = int(counts.sum())
    words = random_words(key(drawn, "order", block), np.arange(orders * block)).reshape(orders, block)
    source = np.repeat(np.arange(len(counts)), counts)[np.argsort(words, axis=1, kind="stable")]
    before = np.zeros_like(source)
    for one in range(len(counts)):
        mine = source == one
        before[mine] = (np.cumsum(mine, axis=1) - 1)[mine]
    return source, before
