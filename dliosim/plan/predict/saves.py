"""Predictions of saves and restores: how long a described storage takes for them, alone and during a loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import HELP, UsageError
from dliosim.model import Cadence, Checkpoint, Distribution, Loop, Restore, StorageModel, Workload
from dliosim.model.storage import list_ends
from dliosim.model.verbs import flatten_verbs, is_due
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast.forecast_types import Forecast, PhaseForecast, RankSpread
from dliosim.plan.predict.queues import Floats, Ints, find_backlog

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
        files = _count_saved_files(checkpoint, phase)
        waves = state_files(checkpoint, checkpoint.split(workload.job.ranks)).waves() if phase.verb == "save" else 0
        alone = _seconds_of_parts(phase, files, storage, node_ranks, waves)
        limit = max(alone, key=lambda part: alone[part])
        ends = list_ends(storage)
        yield SavePrediction(
            phase.name,
            phase.verb,
            phase.times,
            phase.bytes.total,
            alone[limit],
            tuple(max(_seconds_of_parts(phase, files, one, node_ranks, waves).values()) for one in ends),
            limit,
            phase.verb == "save" and checkpoint.background is not None,
            checkpoint.describe_part(checkpoint.split(workload.job.ranks)),
        )


def _share(spread: RankSpread, share: float) -> RankSpread:
    """Return figures of a share of the ranks; the rank that has most has as much."""
    return replace(spread, total=spread.total * share)


def _count_saved_files(checkpoint: Checkpoint, phase: PhaseForecast) -> int:
    """Return the files of a save on the servers: each rank opens a shared file, which is one."""
    return 1 if checkpoint.writers.kind == "shared file" else max(round(phase.opens.total), 1)


def _seconds_of_parts(
    phase: PhaseForecast, files: int, storage: StorageModel, node_ranks: int, waves: int = 0
) -> dict[SaveLimit, float]:
    """Return the seconds that each part of a storage would take for some files if the others took none.

    With `waves` the ranks of one write after those of the one before.
    """
    if waves:
        at_once = -(-files // waves)
        share = at_once / files
        wave = replace(phase, bytes=_share(phase.bytes, share), opens=_share(phase.opens, share))
        of_wave = _seconds_of_parts(wave, at_once, storage, min(node_ranks, at_once))
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


@dataclass(frozen=True, slots=True)
class BatchCalls:
    """The read calls of a batch, as a save in the background meets them; seconds."""

    calls: float  #: calls that a reader makes for a batch
    between: float  #: time of a call, from one that was served to the next
    has_pause: bool  #: true: the reader computes between two batches
    wait: float  #: mean wait of another call behind those of all readers


@dataclass(frozen=True, slots=True)
class Flush:
    """A save in the background during the steps of a loop; seconds."""

    cadence: Cadence  #: when it begins: after some steps, or some time
    seconds: float  #: how long it takes
    on_server: Distribution  #: how long a batch waits for its calls, on servers that have some
    on_client: Distribution  #: the same on the client node
    servers: int  #: servers that have its files, from the first on

    def is_due(self, step: int, since: float) -> bool:
        """Return whether it begins after a step, from 1, `since` seconds after the last one began."""
        return since >= self.cadence.seconds if self.cadence.unit == "seconds" else is_due(self.cadence, step)

    def share_of_time(self, step: float) -> float:
        """Return the share of the time of a loop in which it is written; `step` is the time of a step."""
        interval = self.cadence.seconds if self.cadence.unit == "seconds" else self.cadence.every * step
        return min(self.seconds / interval, 1.0) if interval else 1.0


def list_flushes(
    workload: Workload, loop: Loop, planned: Forecast, storage: StorageModel, node_ranks: int, batch: BatchCalls
) -> list[Flush]:
    """Return the saves in the background that begin within an epoch of a loop; nodes have `node_ranks` ranks."""
    found, phases = [], {phase.name: phase for phase in planned.phases if phase.verb == "save" and phase.bytes.total}
    ranks = workload.job.ranks
    for cadence in loop.checkpoints:
        checkpoint, phase = workload.checkpoint(cadence.checkpoint), phases.get(cadence.checkpoint)
        if cadence.unit not in ("steps", "seconds") or checkpoint.background is None or phase is None:
            continue
        files, saved = _count_saved_files(checkpoint, phase), state_files(checkpoint, checkpoint.split(ranks))
        waves = saved.waves()
        writers = checkpoint.at_most if waves and checkpoint.at_most else len(np.unique(saved.writers()))
        each, turns = phase.bytes.total / files, max(waves, 1)
        servers = min(-(-files // turns) * storage.count_servers(each), storage.servers.number)
        call, latency = phase.bytes.total / phase.calls.total, storage.request_latency
        service, shared = storage.server_seconds(call, storage.write_rate), call / (storage.client or math.inf)
        on_server = find_backlog(service, latency, writers * storage.count_servers(call) / servers)
        on_client = find_backlog(shared, latency + max(service - shared, 0.0), writers * min(node_ranks, ranks) / ranks)
        alone = max(_seconds_of_parts(phase, files, storage, node_ranks, waves).values())
        alone += phase.calls.maximum * turns * batch.wait
        waits = [one.wait_of_batch(batch.calls, batch.between, batch.has_pause) for one in (on_server, on_client)]
        found.append(Flush(cadence, alone, waits[0], waits[1], servers))
    return found


def share_behind(flush: Flush, storage: StorageModel, server: Ints | None, width: int, span: int) -> Floats:
    """Return the share of the calls of each rank's batch that meet the servers of a save; (ranks,) or (1,).

    A batch is on `width` servers from `server` on, None: on all. Each call is on `span` of them at once, and waits for
    the one that is latest.
    """
    number = storage.servers.number
    if server is None:
        return np.full(1, min((flush.servers + span - 1) / number, 1.0))
    places = server[:, None, None] + np.arange(max(width - span + 1, 1))[:, None] + np.arange(span)
    share: Floats = (places % number < flush.servers).any(axis=2).mean(axis=1)
    return share


class FlushQueue:
    """The times of the saves in the background of an epoch: a rank has one thread, which writes one after the other."""

    def __init__(self, flushes: Sequence[Flush]) -> None:
        self._flushes = flushes
        self._saved = [0.0] * len(flushes)
        self._begun, self._ended = ([-math.inf] * len(flushes) for _ in range(2))

    def begin_due(self, step: int, now: float) -> None:
        """Begin the saves that are due after a step, from 1, at a time, as soon as those before are written."""
        for number, flush in enumerate(self._flushes):
            if flush.is_due(step, now - self._saved[number]):
                begin = max(now, *self._ended)
                if self._ended[number] <= now:
                    self._begun[number] = begin
                self._saved[number], self._ended[number] = now, begin + flush.seconds

    def list_active(self, times: Floats) -> Iterator[tuple[Flush, NDArray[np.bool_]]]:
        """Yield each save that is written at some of these times, (n,), and at which ones."""
        for flush, begun, ended in zip(self._flushes, self._begun, self._ended, strict=True):
            active = (times >= begun) & (times < ended)
            if active.any():
                yield flush, active
