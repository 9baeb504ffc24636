"""Plans of all ranks, and the totals of blocks that a run would share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Dataset, Job, Loop
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.sampler import plan_epoch
from dliosim.plan.samples.sizes import block_count, block_totals, needs_totals, prefix_sum


def prefix_of(dataset: Dataset) -> NDArray[np.int64] | None:
    return prefix_sum(block_totals(dataset, 0, block_count(dataset))) if needs_totals(dataset) else None


def plans(loop: Loop, dataset: Dataset, job: Job, epoch: int = 0) -> list[Extents]:
    before = prefix_of(dataset)
    return [plan_epoch(loop, dataset, before, job, rank, epoch) for rank in range(job.ranks)]
