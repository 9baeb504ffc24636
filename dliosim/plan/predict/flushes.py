"""Saves in the background during a loop: when they are written, and how long reads wait behind their calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dliosim.model.distributions import Distribution
from dliosim.model.storage import StorageModel
from dliosim.model.verbs import Cadence, Loop, is_due
from dliosim.model.workload import Workload
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast.forecast_types import Forecast
from dliosim.plan.predict.queues import Floats, Ints, find_backlog
from dliosim.plan.predict.saves import count_saved_files, seconds_of_parts


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
        files, saved = count_saved_files(checkpoint, phase), state_files(checkpoint, checkpoint.split(ranks))
        waves = saved.waves()
        writers = checkpoint.at_most if waves and checkpoint.at_most else len(np.unique(saved.writers()))
        each, turns = phase.bytes.total / files, max(waves, 1)
        servers = min(-(-files // turns) * storage.count_servers(each), storage.servers.number)
        call, latency = phase.bytes.total / phase.calls.total, storage.request_latency
        service, shared = storage.server_seconds(call, storage.write_rate), call / (storage.client or math.inf)
        on_server = find_backlog(service, latency, writers * storage.count_servers(call) / servers)
        on_client = find_backlog(shared, latency + max(service - shared, 0.0), writers * min(node_ranks, ranks) / ranks)
        alone = max(seconds_of_parts(phase, files, storage, node_ranks, waves).values())
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
