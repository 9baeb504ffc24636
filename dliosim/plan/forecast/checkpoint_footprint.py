"""The number of saves of checkpoints, and the space that they need: memory while saving, and storage afterwards."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.model import Checkpoint, Split, Workload
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import Cadence, Loop, Save, count_due_saves, flatten_verbs
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, state_files
from dliosim.plan.checkpoints.shards import ShardSizes, part_bytes
from dliosim.plan.forecast.forecast_types import StateForecast, Storage
from dliosim.plan.forecast.layout_forecast import mean_compute

#: Largest sum of bytes over ranks that is counted, so that 64 bits hold it.
_MOST_BYTES = 1 << 62


def staging_bytes(checkpoint: Checkpoint, files: StateFiles) -> NDArray[np.int64]:
    """Return the bytes of buffers in which background saves wait for their flush; int64 (ranks that take part,)."""
    background, owned = checkpoint.background, files.bytes_per_owner()
    return owned * (0 if background is None or background.simulated else background.in_flight)


def forecast_state(checkpoint: Checkpoint, ranks: int, saves: int) -> StateForecast:
    """Return the content of one of `saves` saves of a checkpoint."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    kinds: Counter[str] = Counter()
    for label, number in files.files_per_rank()[1].items():
        kinds[re.sub("[^a-z].*", "", label)] += number  # `layer` for `layer_012`
    if checkpoint.metadata:
        kinds[METADATA] += 1
    own = len(files.parts) - len(checkpoint.parts)
    labels = [
        part.name if number >= own else "optimizer" if part.file == "optimizer" else "weights"
        for number, part in enumerate(files.parts)
    ]
    contents = Counter(dict.fromkeys(labels, 0))
    saved = files.shares.bytes_below(files.split.present_ranks)
    for label, size in zip(labels, saved.tolist(), strict=True):
        contents[label] += size
    owned = files.bytes_per_owner()
    writers = len(np.unique(files.writers()[owned > 0]))
    return StateForecast(
        checkpoint.name,
        saves,
        tuple(contents.items()),
        tuple(kinds.items()),
        writers,
        int(owned.max()),
        restore_bytes(files, files.split, once=False),
        checkpoint.describe_part(files.split),
    )


@lru_cache(maxsize=16)
def complete_times(checkpoint: Checkpoint, ranks: int) -> tuple[float, int]:
    """Return full checkpoint bytes / bytes of the part that `ranks` ranks save, and the ranks that save all of it."""
    whole, part = checkpoint.complete(ranks), forecast_state(checkpoint, ranks, 1).bytes
    everyone = whole.split(ranks).ranks
    return (forecast_state(whole, everyone, 1).bytes / part if part else 1.0), everyone


def restore_bytes(files: StateFiles, holder: Split, once: bool) -> int:
    """Return the bytes that all ranks read when they restore the state as `holder`; with `once` replicas count once.

    Raises PlanError if the sum may be too large to count.
    """
    written = files.split
    parts = [
        # The ranks of another split do not match those that saved it: its bytes are dealt again, evenly.
        replace(part, size=part_bytes(part, written), scope="total")
        if part.scope == "per rank" and holder != written
        else part
        for part in files.checkpoint.parts_for(holder)
    ]
    most = sum(
        part_bytes(part, holder) * (1 if part.scope in ("per rank", "total") else holder.present_ranks)
        for part in parts
    )
    if most >= _MOST_BYTES:
        text = (
            f"{holder.present_ranks} ranks that restore checkpoint `{files.checkpoint.name}` may read "
            f"{most / 1e18:.3g} EB"
        )
        raise PlanError(f"{text}: `plan` counts to {_MOST_BYTES / 1e18:.3g} EB")
    return int(ShardSizes(parts, holder, 0 if once else "all").bytes_below(holder.present_ranks).sum())


def storage_of(checkpoint: Checkpoint, state: StateForecast) -> Iterator[Storage]:
    """Yield the largest space that saves take on the root of the checkpoint, and on the root they are drained to."""

    def copies(unfinished: int) -> int:
        # New checkpoints are complete before the oldest one is deleted.
        return state.saves if checkpoint.keep is None else min(state.saves, checkpoint.keep + unfinished)

    name, count = checkpoint.name, sum(number for _, number in state.files)
    # A partner's copies are on the same root as the originals.
    times = 1 if checkpoint.partner is None else 2
    flying = checkpoint.background.in_flight if checkpoint.background else 1
    yield Storage("checkpoint", name, checkpoint.root, times * state.bytes, times * count, copies(flying), False)
    if checkpoint.drain is not None:
        yield Storage("checkpoint", name, checkpoint.drain, state.bytes, count, copies(1), False)


def count_saves(loop: Loop, cadence: Cadence, steps: int) -> int:
    """Return the saves in one run of a loop whose epochs have `steps` steps, if no time limit ends it.

    For `every D` it is the smallest number: the saves that fit into the compute time alone.
    """
    counted = count_due_saves(loop, cadence, steps)
    if counted is not None:
        return counted
    compute = mean_compute(loop.compute, loop.batch)
    return loop.epochs * steps // math.ceil(cadence.seconds / compute) if compute > 0 else 0


def save_intervals(workload: Workload, checkpoint: str) -> Iterator[tuple[Cadence, float | None]]:
    """Yield when loops save a checkpoint, and the mean compute seconds between two saves; None if it is not known."""
    for verb, _ in flatten_verbs(workload.verbs):
        if isinstance(verb, Loop):
            steps = steps_of_epoch(verb, workload.read_dataset(verb), workload.job.ranks)
            for cadence in verb.checkpoints:
                if cadence.checkpoint == checkpoint:
                    yield cadence, _save_interval(verb, cadence, steps)


def _save_interval(loop: Loop, cadence: Cadence, steps: int) -> float | None:
    if cadence.unit == "seconds":
        return cadence.seconds
    if cadence.unit == "end":
        return None
    count = cadence.every * (1 if cadence.unit == "steps" else steps)
    return count * mean_compute(loop.compute, loop.batch) or None


def minimum_saves(workload: Workload) -> Counter[str]:
    """Return the least number of saves of each checkpoint; a loop with `for` TIME is only sure of its last save."""
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
