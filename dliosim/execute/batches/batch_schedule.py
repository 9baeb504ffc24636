"""The calls of an epoch, divided among rounds or readers, and the processing of each batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.batches.decode_preprocess import BatchProcessor
from dliosim.plan.samples.io_requests import Calls, Rounds, share_bounds


@dataclass(frozen=True, slots=True)
class EpochCalls:
    """The calls of an epoch, and the processing of each batch after it is read."""

    #: the calls of this rank, all steps
    calls: Calls
    #: with mpi-collective: how the calls of each step are divided among rounds; None: one round a step, also on a rank
    #: without calls
    rounds: Rounds | None = None
    #: with `rounds`: the largest number of rounds that any rank needs; shape (steps,)
    most: NDArray[np.int64] | None = None
    #: decoding and preprocessing; None for neither
    processing: BatchProcessor | None = None

    @property
    def steps(self) -> int:
        """Number of steps of the epoch, empty ones included."""
        return self.calls.steps

    def step_rounds(self, step: int) -> list[Calls]:
        """Return the parts of a step that one reader reads in turn: one part, or one part for each round.

        Every rank returns `most[step]` parts, the last ones empty if it needs fewer: each is a collective call.
        """
        rounds, most = self.rounds, self.most
        if rounds is None or most is None:
            return [self.calls.step(step)]
        return [self.calls.part(*rounds.calls(step, number)) for number in range(int(most[step]))]

    def shares(self, step: int, groups: int) -> list[tuple[int, int]]:
        """Divide the calls of a step among `groups` readers; return the non-empty shares as [begin, end) of `calls`.

        Shares have the same number of calls, or differ by one.
        """
        first, last = int(self.calls.step_start[step]), int(self.calls.step_start[step + 1])
        return [(begin, end) for begin, end in pairwise(share_bounds(first, last, groups)) if begin < end]

    def process(self, step: int, slot: memoryview) -> int:
        """Decode and preprocess the step that is in `slot`; return the elapsed ns. Raises ExecutionError [R401]."""
        if self.processing is None:
            return 0
        rows = self.calls.row_start
        return self.processing.process_batch(step, int(rows[step]), int(rows[step + 1]), 1, slot)

    def process_share(self, step: int, first: int, last: int, shares: int, slot: memoryview) -> int:
        """Decode and preprocess one of `shares` shares of a step, calls [first, last); return the elapsed ns.

        Each call is one row here (`readers N by sample`). Raises ExecutionError [R401].
        """
        if self.processing is None:
            return 0
        return self.processing.process_batch(step, first, last, shares, slot)
