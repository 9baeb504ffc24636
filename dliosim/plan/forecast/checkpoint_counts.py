"""The number of saves of a workload's checkpoints, without planning its loops."""

from __future__ import annotations

import math
from collections import Counter

from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import Cadence, Loop, Save, count_due_saves, flatten_verbs
from dliosim.model.workload import Workload
from dliosim.plan.forecast.layout_forecast import mean_compute


def count_saves(loop: Loop, cadence: Cadence, steps: int) -> int:
    """Return the saves in one run of a loop whose epochs have `steps` steps, if no time limit ends it.

    For `every D` it is the smallest number: the saves for which the compute alone leaves time.
    """
    counted = count_due_saves(loop, cadence, steps)
    if counted is not None:
        return counted
    compute = mean_compute(loop.compute, loop.batch)
    return loop.epochs * steps // math.ceil(cadence.seconds / compute) if compute > 0 else 0


def save_interval(loop: Loop, cadence: Cadence, steps: int) -> float | None:
    """Return the mean compute seconds between two saves, with epochs of `steps` steps; None where it is not known."""
    if cadence.unit == "seconds":
        return cadence.seconds
    if cadence.unit == "end":
        return None
    count = cadence.every * (1 if cadence.unit == "steps" else steps)
    return count * mean_compute(loop.compute, loop.batch) or None


def minimum_saves(workload: Workload) -> Counter[str]:
    """Return how often each checkpoint is saved at least; a loop with `for` some time is sure of its last save only."""
    counted: Counter[str] = Counter()
    for verb, times in flatten_verbs(workload.verbs):
        if isinstance(verb, Save):
            counted[verb.checkpoint] += times
        elif isinstance(verb, Loop):
            steps = steps_of_epoch(verb, workload.read_dataset(verb), workload.job.ranks)
            for cadence in verb.checkpoints:
                if verb.seconds is None or cadence.unit == "end":
                    counted[cadence.checkpoint] += times * count_saves(verb, cadence, steps)
    return counted
