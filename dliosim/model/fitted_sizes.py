"""The distribution that is nearest to sizes that were found."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.model.counter_rng import draw, key
from dliosim.model.distributions import Distribution, constant

#: Draws by which distributions are compared with sizes.
_DRAWS: Final = 1 << 14
#: One size may stand for all if their mean is within this share of it.
_SAME_MEAN: Final = 0.01
#: The share of draws that limits may clip.
_CLIPPED: Final = 0.4


def fit_sizes(sizes: NDArray[np.float64]) -> tuple[Distribution, float]:
    """Return the distribution nearest to some sizes, clipped to the least and the greatest, and its error.

    The error is the greatest difference between the shares of sizes up to any one (Kolmogorov and Smirnov).
    """
    low, high = float(sizes.min()), float(sizes.max())
    if low == high:
        return constant(low), 0.0
    mean, stdev = (float(np.rint(value)) for value in (sizes.mean(), sizes.std()))
    different, often = np.unique(sizes, return_counts=True)
    most = float(different[often.argmax()])
    candidates = [Distribution("uniform", (low, high))]
    candidates += [constant(most)] * bool(abs(most - sizes.mean()) <= _SAME_MEAN * most)
    candidates += [Distribution(kind, (mean, max(stdev, 1.0)), low, high) for kind in ("normal", "lognormal", "gamma")]
    ordered = np.sort(sizes)

    def error(drawn: Distribution) -> float:
        made = np.sort(draw(drawn, key(0, "size"), np.arange(_DRAWS)))
        every = np.concatenate([ordered, made])
        shares = (np.searchsorted(some, every, "right") / len(some) for some in (ordered, made))
        return float(np.abs(next(shares) - next(shares)).max())

    # A pattern warns of limits that clip most draws.
    best = min((one for one in candidates if sum(one.shares_clamped()) <= _CLIPPED), key=error)
    return best, error(best)
