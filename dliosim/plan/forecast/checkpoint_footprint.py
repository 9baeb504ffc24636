"""What checkpoints take: of memory while they are saved, and of storage then."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dliosim.errors import PlanError
from dliosim.model import Checkpoint, Split
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, state_files
from dliosim.plan.checkpoints.shard_sizes import ShardSizes
from dliosim.plan.checkpoints.shards import part_bytes
from dliosim.plan.forecast.forecast_types import StateForecast, Storage

#: Bytes of all ranks that 64 bits hold.
_MOST_BYTES = 1 << 62


def staging_bytes(checkpoint: Checkpoint, files: StateFiles) -> int:
    """Bytes of memory in which saves in the background wait to be flushed, of the rank that saves most."""
    background = checkpoint.background
    if background is None or background.simulated:
        return 0
    return background.in_flight * int(files.bytes_per_owner().max())


def forecast_state(checkpoint: Checkpoint, ranks: int, saves: int) -> StateForecast:
    """What one of `saves` saves of a checkpoint leaves."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    kinds: Counter[str] = Counter()
    for label, number in files.files_per_rank()[1].items():
        kinds[_label_kind(label)] += number
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
        *checkpoint.describe_part(files.split),
    )


def restore_bytes(files: StateFiles, holder: Split, once: bool) -> int:
    """Bytes that all ranks read who restore what they hold as `holder`: each its own, or with `once` no copies.

    Raises PlanError where these may be more than are counted.
    """
    written = files.split
    parts = [
        # Of what each rank kept for itself there is no other way to deal it out than anew.
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
        text = f"{holder.present_ranks} ranks that restore checkpoint `{files.checkpoint.name}` may read {most / 1e18:.3g} EB"
        raise PlanError(f"{text}: `plan` counts to {_MOST_BYTES / 1e18:.3g} EB")
    return int(ShardSizes(parts, holder, 0 if once else "all").bytes_below(holder.present_ranks).sum())


def storage_of(checkpoint: Checkpoint, state: StateForecast) -> Iterator[Storage]:
    """What its saves leave at most on the root where they are written, and on that to which they are drained."""

    def copies(unfinished: int) -> int:
        # New ones are complete before the oldest is deleted.
        return state.saves if checkpoint.keep is None else min(state.saves, checkpoint.keep + unfinished)

    name, count = checkpoint.name, sum(number for _, number in state.files)
    # A partner's copies lie beside what they are copies of.
    times = 1 if checkpoint.partner is None else 2
    flying = checkpoint.background.in_flight if checkpoint.background else 1
    yield Storage("checkpoint", name, checkpoint.root, times * state.bytes, times * count, copies(flying), False)
    if checkpoint.drain is not None:
        yield Storage("checkpoint", name, checkpoint.drain, state.bytes, count, copies(1), False)


def _label_kind(label: str) -> str:
    """What files of a label are called without its numbers: of `layer_012` layer."""
    found = re.match("[a-z]*", label)
    return found[0] if found else ""
