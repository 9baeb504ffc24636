"""How often a workload saves its checkpoints, without planning its loops."""

from __future__ import annotations

import math
from collections import Counter

from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import Cadence, Loop, Save, flatten_verbs
from dliosim.model.workload import Workload
from dliosim.plan.forecast.layout_forecast import estimate_mean


def count_saves(loop: Loop, cadence: Cadence, steps: int) -> int:
    """Checkpoints of one run of a loop whose epochs have so many steps, if no limit of time ends it.

    Of `every D` it is the fewest: those that the compute alone leaves time for.
    """
    if cadence.unit == "end":
        return 1
    if cadence.unit == "seconds":
        compute = estimate_mean(loop.compute.time)
        return loop.epochs * steps // math.ceil(cadence.seconds / compute) if compute > 0 else 0
    # Steps count within a pass.
    return loop.epochs * (steps // cadence.every) if cadence.unit == "steps" else loop.epochs // cadence.every


def save_interval(loop: Loop, cadence: Cadence, steps: int) -> float | None:
    """Mean compute between two saves of a loop whose epochs have so many steps; None where nothing says how long."""
    if cadence.unit == "seconds":
        return cadence.seconds
    if cadence.unit == "end":
        return None
    count = cadence.every * (1 if cadence.unit == "steps" else steps)
    return count * estimate_mean(loop.compute.time) or None


def minimum_saves(workload: Workload) -> Counter[str]:
    """How often each checkpoint is saved at least: a loop that runs `for` some time promises but one at its end."""
    counted: Counter[str] = Counter()
    for verb, times in flatten_verbs(workload.verbs):
        if isinstance(verb, Save):
            counted[verb.checkpoint] += times
        elif isinstance(verb, Loop):
            steps = steps_of_epoch(verb, workload.dataset(verb.dataset), workload.job.ranks)
            for cadence in verb.checkpoints:
                if verb.seconds is None or cadence.unit == "end":
                    counted[cadence.checkpoint] += times * count_saves(verb, cadence, steps)
    return counted
