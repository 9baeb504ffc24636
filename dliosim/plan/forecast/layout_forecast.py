"""The places of a data set's samples, as far as a forecast can afford to compute them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Resolved
from dliosim.formats.registry import bind
from dliosim.model.counter_rng import draw, key
from dliosim.model.dataset import Dataset
from dliosim.model.distributions import Distribution, constant
from dliosim.plan.samples.sample_index import DataIndex, Places, concat_indexes, repeat_index
from dliosim.plan.samples.sample_to_file import first_samples
from dliosim.plan.samples.sizes import is_framed, local_prefix_sums, needs_totals, require_framed, sample_sizes

AFFORDABLE = 5_000_000  # samples planned, or sizes drawn, for one figure
_DRAWS = 65_536  # draws for a mean
_GUESSED_FILES = 1 << 22  # largest number of files whose own indexes are estimated before they exist


@dataclass(frozen=True, slots=True)
class Placement:
    """A data set and the places of its samples."""

    dataset: Dataset  #: data set, or a stand-in whose samples all have the mean size
    places: Places  #: index of the files, sums of sizes, or None for closed forms
    exact: bool  #: false for a stand-in and for estimated indexes


@lru_cache(maxsize=16)
def mean_read_bytes(dataset: Dataset) -> float:
    """Return the mean bytes that reading a sample takes, over all samples, or over an even part of too many.

    All figures of samples that are not planned use it, so that the same data have the same bytes everywhere.
    """
    return float(require_framed(dataset).length(_representative_sizes(dataset)).mean())


def _representative_sizes(dataset: Dataset) -> NDArray[np.int64]:
    """Return the sizes of all samples, or of an even part of them; int64 bytes."""
    step = 1 if dataset.samples <= AFFORDABLE else dataset.samples // _DRAWS
    return sample_sizes(dataset, np.arange(0, dataset.samples, step))


def estimate_mean(distribution: Distribution) -> float:
    """Return the mean of a distribution; with clamping, the mean of 65536 draws."""
    if distribution.low is None and distribution.high is None:
        return distribution.mean
    return float(draw(distribution, key(0, "expected"), np.arange(_DRAWS)).mean())


def place_samples(dataset: Dataset, found: DataIndex | None = None) -> Placement:
    """Return the places of a data set's samples: the index of its files (`found`), an estimate of it, or sums of sizes.

    Where sums are needed and not affordable, a stand-in replaces the data set: all its samples have the mean size.
    """
    if found is not None:
        return Placement(dataset, found, True)
    if not is_framed(dataset):
        return Placement(dataset, guess_index(dataset), False)
    if not needs_totals(dataset):
        return Placement(dataset, None, True)
    if dataset.samples <= AFFORDABLE:
        return Placement(dataset, local_prefix_sums(dataset), True)
    mean = round(float(_representative_sizes(dataset).mean()))
    return Placement(replace(dataset, size=constant(mean)), None, False)


def guess_index(dataset: Dataset) -> DataIndex:
    """Return an estimate of the files' indexes before the files are written; PlanError for too many files."""
    form, files = bind(dataset), dataset.layout.files
    if not isinstance(form, Resolved) or dataset.source:
        raise PlanError(f"data set `{dataset.name}`: only its files know where its samples are")
    if files > _GUESSED_FILES:
        text = f"data set `{dataset.name}` would have {files:_} files of {dataset.format} to look up"
        raise PlanError(f"{text}, and at most {_GUESSED_FILES:_} are planned before they are there; use fewer files")
    counts = np.diff(first_samples(np.arange(files + 1), dataset.samples, files))
    fewest = int(counts.min())  # every file has this number of samples, or one more
    kinds = concat_indexes([form.forecast(count) for count in sorted({fewest, int(counts.max())})])
    return repeat_index(kinds, counts - fewest)
