"""What measuring needs of a communicator, given by whoever knows MPI, and what a phase's reductions come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dliosim.measure.histogram import Histogram

#: Ratios and rates are added up over ranks as whole multiples of these, in the same reduction as the counts.
RATIO_UNIT, RATE_UNIT = 2.0**-40, 2.0**-20

Op = Literal["sum", "min", "max"]


class Reducer(Protocol):
    """Collective over all ranks of a job: every rank calls the same methods with arrays of the same shape."""

    def reduce(self, array: NDArray[np.int64], op: Op, /) -> NDArray[np.int64] | None:
        """The element by element result over all ranks, at the root; None elsewhere."""
        ...

    def gather(self, array: NDArray[np.int64], /) -> NDArray[np.int64] | None:
        """The arrays of all ranks along a new first axis, in the order of ranks, at the root; None elsewhere."""
        ...

    def gather_parts(self, part: NDArray[np.int64], lengths: Sequence[int], /) -> list[NDArray[np.int64]] | None:
        """The vectors of all ranks, in the order of ranks, at the root; None elsewhere.

        `lengths` has those of all of them, the same on every rank; ranks with 0 take no part.
        """
        ...


class ReduceResult(NamedTuple):
    """Over all ranks: sums and maxima by name, histograms, and the maxima of a vector, int64."""

    total: dict[str, int]
    most: dict[str, int]
    histograms: list[Histogram]
    vector: NDArray[np.int64]
