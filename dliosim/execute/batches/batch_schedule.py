"""The calls of an epoch, dealt out to who reads them, and what becomes of each batch then."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.batches.decode_preprocess import BatchProcessor
from dliosim.plan.samples.io_requests import Calls, Rounds, share_bounds


@dataclass(frozen=True, slots=True)
class EpochCalls:
    """The calls of an epoch, and what is done with each batch once it is read.

    For mpi-collective, `rounds` deals the calls of each step over rounds, and `most` has for each step the rounds of
    the rank that needs most; without them there is one round a step, on a rank without calls too.
    """

    calls: Calls
    rounds: Rounds | None = None
    most: NDArray[np.int64] | None = None
    processing: BatchProcessor | None = None

    @property
    def steps(self) -> int:
        """Steps of the epoch, empty ones included."""
        return self.calls.steps

    def step_rounds(self, step: int) -> list[Calls]:
        """What one reader reads in turn: all calls of a step, or those of each of its rounds."""
        rounds, most = self.rounds, self.most
        if rounds is None or most is None:
            return [self.calls.step(step)]
        return [self.calls.round(step, *rounds.calls(step, number)) for number in range(int(most[step]))]

    def shares(self, step: int, groups: int) -> list[tuple[int, int]]:
        """What several readers read at the same time: runs of the step's calls, equal in number to within one."""
        first, last = int(self.calls.step_start[step]), int(self.calls.step_start[step + 1])
        return [(begin, end) for begin, end in pairwise(share_bounds(first, last, groups)) if begin < end]

    def process(self, step: int, slot: memoryview) -> int:
        """Decode and preprocess a step that lies in `slot`; the ns that went by."""
        if self.processing is None:
            return 0
        rows = self.calls.row_start
        return self.processing.process_batch(step, int(rows[step]), int(rows[step + 1]), 1, slot)

    def process_share(self, step: int, first: int, last: int, shares: int, slot: memoryview) -> int:
        """The same for one of several shares, whose calls are a row each."""
        if self.processing is None:
            return 0
        return self.processing.process_batch(step, first, last, shares, slot)
