"""What measuring needs of a communicator: a reduction and a gathering, given by whoever knows MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

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
