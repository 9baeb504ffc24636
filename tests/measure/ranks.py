"""Several ranks in one process: a thread each, and reductions among them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.reducer import Op

R = TypeVar("R")
T = TypeVar("T")
FUNCTIONS: dict[Op, Any] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class Together:
    """The reducer of one of several threads; rank 0 is the root."""

    def __init__(self, rank: int, arrays: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.arrays, self.barrier = rank, arrays, barrier
        self.collectives = 0

    def reduce(self, array: NDArray[np.int64], op: Op) -> NDArray[np.int64] | None:
        gathered = self.gather(array)
        return None if gathered is None else FUNCTIONS[op].reduce(gathered, axis=0)

    def gather(self, array: NDArray[np.int64]) -> NDArray[np.int64] | None:
        self.collectives += 1
        self.arrays[self.rank] = array
        self.barrier.wait(10)
        gathered = np.stack(self.arrays) if self.rank == 0 else None
        self.barrier.wait(10)
        return gathered

    def gather_parts(self, part: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]] | None:
        assert len(part) == lengths[self.rank]
        self.arrays[self.rank] = part
        self.barrier.wait(10)
        parts = [*self.arrays] if self.rank == 0 else None
        self.barrier.wait(10)
        return parts


def on_ranks(function: Callable[[R, Together], T], of_ranks: Sequence[R]) -> list[T]:
    """`function(of_ranks[r], reducer)` on a thread each; their results in the order of ranks."""
    arrays: list[Any] = [None] * len(of_ranks)
    barrier = threading.Barrier(len(of_ranks))
    results: dict[int, T] = {}

    def work(rank: int) -> None:
        results[rank] = function(of_ranks[rank], Together(rank, arrays, barrier))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(of_ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in range(len(of_ranks))]
