"""The reads of a conversion for a part of a file that it writes, in steps of a bounded number of bytes."""

from __future__ import annotations

from typing import Final

import numpy as np

from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.places import Places

#: Bytes of the samples that are read before some of them are written; a larger sample is a step of its own.
STEP_BYTES: Final = 4 << 20


def plan_part(places: Places, first: int, last: int) -> Extents:
    """Return the extents of samples [first, last) in steps: a new one begins with the sample that passes STEP_BYTES."""
    samples = np.arange(first, last)
    file, offset, length = places.locate(samples)
    turn = (np.cumsum(length) - length) // STEP_BYTES
    heads = np.flatnonzero(turn[1:] != turn[:-1]) + 1
    return Extents(samples, file, offset, length, np.concatenate([[0], heads, [len(samples)]]).astype(np.int64))
