"""Reducer: the collective operations that measuring needs, implemented where MPI is known; and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Whole numbers: counts, bytes, nanoseconds.
Ints: TypeAlias = NDArray[np.int64]

#: Ratios and rates become whole multiples of these, so that one reduction of int64 adds them up with the counts.
RATIO_UNIT, RATE_UNIT = 2.0**-40, 2.0**-20

Op = Literal["sum", "min", "max"]


class Reducer(Protocol):
    """Collectives over all ranks of a job: every rank calls the same methods with arrays of the same shape."""

    def reduce(self, array: Ints, op: Op, /) -> Ints | None:
        """Return the element-wise result over all ranks, at the root; None elsewhere."""
        ...

    def gather(self, array: Ints, /) -> Ints | None:
        """Return the arrays of all ranks along a new first axis, in the order of ranks, at the root; None elsewhere."""
        ...

    def gather_parts(self, part: Ints, lengths: Sequence[int], /) -> list[Ints] | None:
        """Return the vectors of all ranks, in the order of ranks, at the root; None elsewhere.

        `lengths` are those of all ranks, and the same on every rank; ranks with 0 take no part.
        """
        ...
