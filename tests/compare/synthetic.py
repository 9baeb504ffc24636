"""Rows of passes as a noisy machine would give them: each pass disturbed, all of them drifting, some far off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.compare.design import running_order


def passes(
    seed: int,
    slower: tuple[float, ...],
    blocks: int = 8,
    noise: tuple[float, ...] | float = 0.05,
    drift: float = 0.3,
    outliers: float = 0.02,
) -> NDArray[np.float64]:
    """Seconds of each pass (blocks, variants), run in the order in which passes are run.

    `slower` is each variant's time by that of the first, `noise` the standard deviation of the logarithm of a time,
    `drift` by how much the last pass is slower than the first one, and `outliers` the share of passes that take up to
    twice as long.
    """
    random = np.random.default_rng(seed)
    variants = len(slower)
    position = np.empty((blocks, variants))
    for block, order in enumerate(running_order(variants, blocks, seed)):
        position[block, order] = block * variants + np.arange(variants)
    logs = np.log(np.asarray(slower)) + np.log1p(drift * position / (blocks * variants))
    logs = logs + np.asarray(noise) * random.standard_normal((blocks, variants))
    far = random.random((blocks, variants)) < outliers
    return np.exp(logs + far * np.log(2) * random.random((blocks, variants)))
