"""Plans of all ranks, and the places of samples with the totals of blocks that a run would share."""

from __future__ import annotations

from dliosim.formats.protocols import Framed
from dliosim.formats.registry import bind
from dliosim.model import Dataset, Job, JoinedDataset, Loop
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.joined_places import JoinedPlaces
from dliosim.plan.samples.places import FramedPlaces, Places
from dliosim.plan.samples.sample_to_file import block_count, block_totals, needs_totals, prefix_sum
from dliosim.plan.samples.sampler import plan_epoch


def placed(dataset: Dataset) -> Places:
    if isinstance(dataset, JoinedDataset):
        return JoinedPlaces(dataset, tuple(placed(one) for one in dataset.joined))
    form = bind(dataset)
    assert isinstance(form, Framed)
    totals = block_totals(form, 0, block_count(dataset)) if needs_totals(dataset) else None
    return FramedPlaces(form, None if totals is None else prefix_sum(totals))


def plans(loop: Loop, dataset: Dataset, job: Job, epoch: int = 0) -> list[Extents]:
    places = placed(dataset)
    return [plan_epoch(loop, places, job, rank, epoch) for rank in range(job.ranks)]
