"""Predictions of saves and restores: how long the slowest part of a described storage takes for all ranks' bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from dliosim.errors import HELP, UsageError
from dliosim.model.checkpoint import Checkpoint
from dliosim.model.storage import StorageModel, list_ends
from dliosim.model.verbs import Restore, flatten_verbs
from dliosim.model.workload import Workload
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast.forecast_types import Forecast, PhaseForecast, RankSpread

#: What may limit a save; `rank` is the chain of calls of the rank that has most.
SaveLimit: TypeAlias = Literal["servers", "client", "opens", "rank"]


@dataclass(frozen=True, slots=True)
class SavePrediction:
    """A save or a restore on a storage that is described."""

    checkpoint: str  #: name of the checkpoint
    kind: Literal["save", "restore"]  #: kind of the verb
    times: int  #: how often it is done in a run
    bytes: float  #: bytes of all ranks
    seconds: float  #: time until all ranks have written or read theirs
    at_ends: tuple[float, ...]  #: the same with all that is uncertain at its worse end, and at its better one
    limit: SaveLimit  #: what takes that long
    in_background: bool  #: steps continue meanwhile
    part_of: str  #: text of `Checkpoint.describe_part`

    def slow_down(self, seconds: float, at_ends: tuple[float, ...]) -> SavePrediction:
        """Return a save in the background with the time that it takes next to reads; any other as it is."""
        return replace(self, seconds=seconds, at_ends=at_ends) if self.in_background else self


def list_restore_refusals(verb: Restore) -> tuple[tuple[bool, str], ...]:
    """Return whether a restore reads in a way that no description of a storage covers, and why it is refused."""
    return (
        (verb.through == "mmap", f"faults of mapped pages are not modelled{HELP}write `through calls` in `restore`"),
        (verb.ahead, f"the page cache is not modelled{HELP}write `read ahead off` in `restore`"),
    )


def predict_saves(
    workload: Workload, planned: Forecast, storage: StorageModel, node_ranks: int
) -> Iterator[SavePrediction]:
    """Yield the predictions of the saves and restores of a workload, by its forecast, in order.

    Each node has `node_ranks` ranks. Parts of a storage work at the same time, so the slowest of them decides.
    UsageError for a restore that is not modelled.
    """
    restores = (verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Restore))
    for why in (why for verb in restores for is_wrong, why in list_restore_refusals(verb) if is_wrong):
        raise UsageError(why)
    for phase in planned.phases:
        if phase.verb not in ("save", "restore") or not phase.bytes.total:
            continue
        checkpoint = workload.checkpoint(phase.name)
        files = count_saved_files(checkpoint, phase)
        waves = state_files(checkpoint, checkpoint.split(workload.job.ranks)).waves() if phase.verb == "save" else 0
        alone = seconds_of_parts(phase, files, storage, node_ranks, waves)
        limit = max(alone, key=lambda part: alone[part])
        ends = list_ends(storage)
        yield SavePrediction(
            phase.name,
            phase.verb,
            phase.times,
            phase.bytes.total,
            alone[limit],
            tuple(max(seconds_of_parts(phase, files, one, node_ranks, waves).values()) for one in ends),
            limit,
            phase.verb == "save" and checkpoint.background is not None,
            checkpoint.describe_part(checkpoint.split(workload.job.ranks)),
        )


def _share(spread: RankSpread, share: float) -> RankSpread:
    """Return figures of a share of the ranks; the rank that has most has as much."""
    return replace(spread, total=spread.total * share)


def count_saved_files(checkpoint: Checkpoint, phase: PhaseForecast) -> int:
    """Return the files of a save on the servers: each rank opens a shared file, which is one."""
    return 1 if checkpoint.writers.kind == "shared file" else max(round(phase.opens.total), 1)


def seconds_of_parts(
    phase: PhaseForecast, files: int, storage: StorageModel, node_ranks: int, waves: int = 0
) -> dict[SaveLimit, float]:
    """Return the seconds that each part of a storage would take for some files if the others took none.

    With `waves` the ranks of one write after those of the one before.
    """
    if waves:
        at_once = -(-files // waves)
        share = at_once / files
        wave = replace(phase, bytes=_share(phase.bytes, share), opens=_share(phase.opens, share))
        of_wave = seconds_of_parts(wave, at_once, storage, min(node_ranks, at_once))
        return {part: seconds / share for part, seconds in of_wave.items()}
    total, most = phase.bytes.total, phase.bytes.maximum
    rate = storage.write_rate if phase.verb == "save" else storage.servers.rate
    width, number = storage.count_servers(total / files), storage.servers.number
    # Files begin round robin, so some servers may have a file more than others.
    fullest = -(-files * width // number) / (files * width)
    calls = max(phase.calls.maximum, 1.0)
    alone = min(storage.client or math.inf, storage.stream or math.inf)
    return {
        "servers": total * max(fullest, 1 / number) / rate,
        "client": min(most * node_ranks, total) / (storage.client or math.inf),
        "opens": phase.opens.total / (storage.metadata or math.inf),
        "rank": (calls + phase.opens.maximum) * storage.request_latency
        + max(calls * storage.server_seconds(most / calls, rate), most / alone),
    }
