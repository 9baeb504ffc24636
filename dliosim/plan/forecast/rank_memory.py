"""The memory of ranks and nodes: what a process takes before it does anything, and what its verbs add to that."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.model.dataset import Dataset
from dliosim.model.epoch_size import LARGEST_TABLE, ranges_of_sample
from dliosim.model.job import Job
from dliosim.model.verbs import Loop
from dliosim.plan.samples.io_requests import plan_calls
from dliosim.plan.samples.places import Places
from dliosim.plan.samples.read_ranges import buffer_bytes, plan_reads
from dliosim.plan.samples.sampler import plan_bytes, plan_epoch

#: Memory of a rank before it reads anything, and once a node what its ranks share: the interpreter, numpy and the MPI
#: library. `scripts/bench_start.py` measures both: PSS of 1 to 32 ranks, a straight line in the number of ranks.
RANK_BYTES: Final = 30_000_000
NODE_BYTES: Final = 27_000_000

#: Rows of an epoch that are planned to find its largest batch; where all samples have one size a step would do.
_PLANNED: Final = 1 << 14

_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of memory that one rank needs in a phase, or the ranks of a node together."""

    buffers: int = 0  #: buffers of batches, or of calls
    plan: int = 0  #: columns of the plan
    allreduce: int = 0  #: buffer of the allreduce
    cache: int = 0  #: samples that `cache memory` keeps
    staging: int = 0  #: buffers of background saves until they are flushed
    saving: int = 0  #: buffers of the saves of a loop

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(astuple(self))

    def __add__(self, other: RankMemory) -> RankMemory:
        return RankMemory(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


def fullest_node(needed: NDArray[np.int64], job: Job) -> int:
    """Return the largest sum of what the ranks of a node need; int64 (ranks,), the ranks dealt to nodes in blocks."""
    return int(np.add.reduceat(needed, np.arange(0, len(needed), job.ranks_per_node)).max(initial=0))


def rank_buffers(loop: Loop, batch: int, on_node: int, leads: bool) -> int:
    """Return the bytes of read buffers of a rank that has `on_node` ranks on its node, of batches of `batch` bytes.

    With `scatter by node` the rank that leads its node reads for all, and the others receive one batch at a time.
    """
    return batch * (on_node if loop.access.scatter and leads else loop.access.batches)


def loop_memory(loop: Loop, dataset: Dataset | None, steps: int, batch: int) -> RankMemory:
    """Return what a loop needs on a rank that does not read for others, for `steps` steps an epoch."""
    planned = 0 if dataset is None else plan_bytes(loop, dataset, steps)
    return RankMemory(loop.access.batches * batch, planned, loop.sync.size, loop.access.memory)


def largest_batch(loop: Loop, places: Places, job: Job) -> int:
    """Return the bytes of a buffer for the largest batch of a loop, by its first steps; 0 where a step is too large."""
    dataset = places.dataset
    rows = loop.batch * ranges_of_sample(loop, dataset)
    if rows > LARGEST_TABLE:
        return 0
    steps = max(1, _PLANNED // rows)
    first = replace(loop, steps=min(steps, loop.steps or steps))
    stored = plan_reads(plan_epoch(first, places, job, 0, 0), loop.access, _NONE, places).extents
    return buffer_bytes(dataset, plan_calls(stored, loop.access.transfer, loop.access.page).buffer_size)
