"""The places of a data set's samples, exact or estimated by what a forecast can afford."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dliosim.errors import PlanError
from dliosim.formats.protocols import Format, Framed, Ints, Resolved
from dliosim.formats.registry import bind
from dliosim.model import Compute, Dataset, Distribution, JoinedDataset, constant
from dliosim.model.counter_rng import draw, key
from dliosim.plan.samples.joined_places import JoinedPlaces
from dliosim.plan.samples.places import FramedPlaces, IndexedPlaces, Places
from dliosim.plan.samples.sample_index import DataIndex, concat_indexes, repeat_index
from dliosim.plan.samples.sample_to_file import first_samples, local_prefix_sums, needs_totals, sample_sizes

AFFORDABLE = 5_000_000  # samples planned, or sizes drawn, for one figure
_DRAWS = 65_536  # draws for a mean
_GUESSED_KINDS = 4096  # largest number of kinds of files whose indexes are estimated; the mean stands for more
_GUESSED_FILES = 1 << 22  # largest number of files whose own indexes are estimated before they exist


@dataclass(frozen=True, slots=True)
class Placement:
    """The places of a data set's samples."""

    places: Places  #: of the data set, or of a stand-in whose samples all have the mean size
    exact: bool  #: false for a stand-in and for estimated indexes

    @property
    def dataset(self) -> Dataset:
        """The data set, or the stand-in."""
        return self.places.dataset


@lru_cache(maxsize=16)
def mean_read_bytes(dataset: Dataset) -> float | None:
    """Return the mean bytes that a read of a sample takes, over all, or an even part of too many; None by an index.

    All figures for unplanned samples use it, so that the same data have the same bytes everywhere.
    """
    form = bind(dataset)
    if dataset.source or not isinstance(form, Framed):
        return None
    return float(form.length(_representative_sizes(dataset)).mean())


def _representative_sizes(dataset: Dataset) -> Ints:
    """Return the sizes of all samples, or of an even part of them; int64 bytes."""
    step = 1 if dataset.samples <= AFFORDABLE else dataset.samples // _DRAWS
    return sample_sizes(dataset, np.arange(0, dataset.samples, step))


def estimate_mean(distribution: Distribution) -> float:
    """Return the mean of a distribution; with clamping, the mean of 65536 draws."""
    if distribution.low is None and distribution.high is None:
        return distribution.mean
    return float(draw(distribution, key(0, "expected"), np.arange(_DRAWS)).mean())


def mean_compute(compute: Compute, samples: float) -> float:
    """Return the mean compute of a step of this many samples; s."""
    return estimate_mean(compute.time) * (samples if compute.per_sample else 1)


def place_samples(dataset: Dataset, found: DataIndex | None = None, affordable: int = AFFORDABLE) -> Placement:
    """Return the places of a data set's samples: the index of its files (`found`), an estimate of it, or sums of sizes.

    If sums of more than `affordable` sizes are needed, a stand-in replaces the data set: all its samples have the
    mean size.
    """
    form = bind(dataset)
    if found is not None:
        return Placement(IndexedPlaces(form, found), True)
    if dataset.source or not isinstance(form, Framed):
        return Placement(guess_places(form), False)
    if not needs_totals(dataset):
        return Placement(FramedPlaces(form), True)
    if dataset.samples <= affordable:
        return Placement(FramedPlaces(form, local_prefix_sums(form)), True)
    mean = round(float(_representative_sizes(dataset).mean()))
    return Placement(FramedPlaces(replace(form, dataset=replace(dataset, size=constant(mean)))), False)


def join_placements(dataset: Dataset, each: Sequence[Placement]) -> Placement:
    """Return the places of the samples of a loop's data set, from those of the data sets that it joins."""
    if not isinstance(dataset, JoinedDataset):
        return each[0]
    return Placement(JoinedPlaces(dataset, tuple(one.places for one in each)), all(one.exact for one in each))


def read_columns(placement: Placement, columns: int | None) -> Placement:
    """Return the places of samples where only the first columns of a table are read; None: all."""
    places = placement.places
    if columns is None or not isinstance(places, IndexedPlaces):
        return placement
    return replace(placement, places=places.first_columns(columns))


def guess_places(form: Format) -> IndexedPlaces:
    """Return the places by an estimate of the files' indexes before the files are written.

    Raises PlanError for too many files, and for existing files.
    """
    dataset = form.dataset
    files = dataset.layout.files
    if not isinstance(form, Resolved) or dataset.source:
        raise PlanError(f"data set `{dataset.name}`: only its files know where its samples are")
    if files > _GUESSED_FILES:
        text = f"data set `{dataset.name}` would have {files:_} files of {dataset.format} to look up"
        text += f", and at most {_GUESSED_FILES:_} are planned before they are there; use fewer files"
        raise PlanError(text, "E113", dataset.name)
    starts = first_samples(np.arange(files + 1), dataset.samples, files)
    counts = np.diff(starts)
    fewest = int(counts.min())  # every file has this number of samples, or one more
    drawn = sample_sizes(dataset, starts[:-1]) if dataset.constant_size is None else np.zeros(files, np.int64)
    codes, kind = np.unique(2 * drawn + counts - fewest, return_inverse=True)
    if len(codes) > _GUESSED_KINDS:
        return guess_places(bind(dataset.fix_size(round(float(drawn.mean())))))
    kinds = []
    for size, more in zip((codes // 2).tolist(), (codes % 2).tolist(), strict=True):
        one = bind(dataset.fix_size(size)) if size else form
        assert isinstance(one, Resolved)
        kinds.append(one.forecast(fewest + more))
    return IndexedPlaces(form, repeat_index(concat_indexes(kinds), kind))
