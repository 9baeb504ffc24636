"""Rows of passes as a noisy machine would give them: each pass disturbed, all of them drifting, some far off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.compare.experiment import draw_pass_order


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
    for block, order in enumerate(draw_pass_order(variants, blocks, seed)):
        position[block, order] = block * variants + np.arange(variants)
    logs = np.log(np.asarray(slower)) + np.log1p(drift * position / (blocks * variants))
    logs = logs + np.asarray(noise) * random.standard_normal((blocks, variants))
    far = random.random((blocks, variants)) < outliers
    return np.exp(logs + far * np.log(2) * random.random((blocks, variants)))


#: Kinds of noise, and no variant differs. `two-moded P`: with probability P a pass takes twice as long.
KINDS = ("iid", "drift", "autocorrelated", "bursts", *(f"two-moded {share}" for share in (0.1, 0.2, 0.3, 0.5, 0.7)))


def equal(kind: str, random: np.random.Generator, draws: int, variants: int, blocks: int = 8) -> NDArray[np.float64]:
    """Seconds of each pass (draws, blocks, variants) of equal variants, on a machine with this kind of noise.

    The time of a pass depends on when it runs. The order of variants within a block is drawn by chance.
    """
    passes = blocks * variants
    name, _, share = kind.partition(" ")
    logs = 0.05 * random.standard_normal((draws, passes))
    if name == "drift":
        logs += np.log1p(0.3 * np.arange(passes) / passes)
    elif name == "autocorrelated":
        for at in range(1, passes):
            logs[:, at] = 0.8 * logs[:, at - 1] + 0.6 * logs[:, at]
    elif name == "bursts":  # one in twenty passes begins one, seven of ten passes within one are followed by another
        within = np.zeros(draws, np.bool_)
        for at in range(passes):
            within = random.random(draws) < np.where(within, 0.7, 0.05)
            logs[:, at] += within * np.log(2) * random.random(draws)
    elif name == "two-moded":
        logs = logs / 5 + np.log(2) * (random.random((draws, passes)) < float(share))
    return np.exp(random.permuted(logs.reshape(draws, blocks, variants), axis=2))
