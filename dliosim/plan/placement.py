"""What it takes to place the samples of a data set, and how much of that a forecast can afford."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dliosim.model.dataset import Dataset
from dliosim.model.distributions import Distribution, constant
from dliosim.plan.places import Places
from dliosim.plan.sizes import block_count, block_totals, needs_totals, prefix, sample_sizes
from dliosim.plan.streams import draw, key

AFFORDABLE = 5_000_000  # samples planned, or sizes drawn, for one figure
_DRAWS = 65_536


@dataclass(frozen=True, slots=True)
class Placement:
    """A data set with what it takes to place its samples; not `exact` where a stand-in of one size takes its place."""

    dataset: Dataset
    places: Places
    exact: bool


def expected(distribution: Distribution) -> float:
    """The mean of a distribution; with clamping, of 65536 draws."""
    if distribution.low is None and distribution.high is None:
        return distribution.mean
    return float(draw(distribution, key(0, "expected"), np.arange(_DRAWS)).mean())


def place(dataset: Dataset) -> Placement:
    """Totals of blocks where they are needed and affordable; else a stand-in of one size, the mean, for all samples."""
    if not needs_totals(dataset):
        return Placement(dataset, None, True)
    if dataset.samples <= AFFORDABLE:
        return Placement(dataset, prefix(block_totals(dataset, 0, block_count(dataset))), True)
    mean = round(float(sample_sizes(dataset, np.arange(_DRAWS)).mean()))
    return Placement(replace(dataset, size=constant(mean)), None, False)
