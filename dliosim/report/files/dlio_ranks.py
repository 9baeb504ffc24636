"""The files that each rank of DLIO writes: times of its steps, AU and throughput, by the formulas of a version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.dlio.known_keys import Version
from dliosim.measure.rank.step_log import LoggedCheckpoint, LoggedEpoch, StepLog

Floats: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Block:
    """Steps between two checkpoints, or an epoch's ends. Times of steps are in s, (steps,)."""

    #: clock reading at its begin, ns
    begun: int
    #: clock reading at its end, ns
    ended: int
    #: from asking for a batch until it came
    load: Floats
    #: compute as it was done
    compute: Floats
    #: compute as it was asked
    asked: Floats

    @property
    def proc(self) -> Floats:
        """Time of each step without its sync, s (steps,)."""
        return self.load + self.compute

    @property
    def seconds(self) -> float:
        """Time from its begin to its end, s."""
        return (self.ended - self.begun) * 1e-9

    def compute_for(self, version: Version) -> Floats:
        """Return the compute of each step that a version of DLIO counts, s (steps,): the first asks no clock."""
        return self.asked if version.is_first_generation else self.compute


def split_blocks(epoch: LoggedEpoch) -> Iterator[Block]:
    """Yield the blocks of an epoch: a save after a step ends one."""
    begun, fetched, asked, computed, synced, saved = epoch.readings.T
    ends = np.flatnonzero(saved > synced) + 1
    ends = np.unique(np.append(ends, len(saved)))
    first, started = 0, epoch.started
    for last in ends.tolist():
        steps = slice(first, last)
        load, compute = (fetched - begun)[steps] * 1e-9, (computed - asked)[steps] * 1e-9
        yield Block(started, int(synced[last - 1]), load, compute, epoch.asked[steps] * 1e-9)
        first, started = last, int(saved[last - 1])


def block_utilization(block: Block, version: Version) -> float:
    """Return DLIO's AU of a block, in percent; 0 if the block has no time besides its first step."""
    total = block.seconds - float(block.proc[0])
    return 100 * float(block.compute_for(version)[1:].sum()) / total if total > 0 else 0.0


def block_throughput(block: Block, version: Version, batch: int) -> float:
    """Return DLIO's throughput of a block, in samples/s: below 0 for one step, by a version that leaves out two."""
    total = block.seconds - (float(block.proc[0]) if version.left_out_steps else 0.0)
    return (len(block.load) - version.left_out_steps) * batch / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RankEpoch:
    """One epoch of training of a rank, with its evaluations and checkpoints."""

    #: clock reading at its begin, ns
    begun: int
    #: batch of its steps
    batch: int
    #: its blocks
    blocks: tuple[Block, ...]
    #: its evaluations, with their batches
    evaluations: tuple[tuple[Block, int], ...]
    #: its saves and restores
    checkpoints: tuple[LoggedCheckpoint, ...]

    @property
    def end(self) -> int:
        """Clock reading at the end of its last block, evaluation or checkpoint, ns."""
        ends = [block.ended for block in (*self.blocks, *(block for block, _ in self.evaluations))]
        return max([*ends, *(one.ended for one in self.checkpoints)])

    def training(self, version: Version) -> tuple[float, float]:
        """Return AU in percent and samples/s: means over blocks, weighted by steps."""
        steps = [len(block.load) for block in self.blocks]
        if not steps:
            return 0.0, 0.0
        shares = [block_utilization(block, version) for block in self.blocks]
        rates = [block_throughput(block, version, self.batch) for block in self.blocks]
        return float(np.average(shares, weights=steps)), float(np.average(rates, weights=steps))

    def evaluation(self, version: Version) -> tuple[float, float]:
        """Return AU in percent and samples/s of the last evaluation; 0 without one."""
        if not self.evaluations:
            return 0.0, 0.0
        block, batch = self.evaluations[-1]
        rate = len(block.load) * batch / block.seconds if block.seconds > 0 else 0.0
        return block_utilization(block, version), rate


def list_epochs(log: StepLog) -> list[RankEpoch]:
    """Return the epochs of training in order; an evaluation and a checkpoint belong to the epoch begun last before.

    A run that only saves and restores has one epoch without steps.
    """
    training = [epoch for epoch in log.epochs if epoch.kind == "train"]
    starts = [epoch.started for epoch in training]
    if not training:
        starts = [one.begun for one in log.checkpoints[:1]]
    evaluations: list[list[tuple[Block, int]]] = [[] for _ in starts]
    checkpoints: list[list[LoggedCheckpoint]] = [[] for _ in starts]
    places = np.array(starts)
    for epoch in log.epochs:
        place = int(np.searchsorted(places, epoch.started, "right")) - 1
        if epoch.kind == "evaluate" and place >= 0:
            evaluations[place] += [(block, epoch.batch) for block in split_blocks(epoch)]
    for one in log.checkpoints:
        place = max(0, int(np.searchsorted(places, one.begun, "right")) - 1)
        checkpoints[place].append(one)
    return [
        RankEpoch(
            begun,
            training[place].batch if training else 0,
            tuple(split_blocks(training[place])) if training else (),
            tuple(evaluations[place]),
            tuple(checkpoints[place]),
        )
        for place, begun in enumerate(starts)
    ]


def stamp(ns: int) -> str:
    """Return a time since 1970 as DLIO writes it: UTC, without its zone."""
    return datetime.fromtimestamp(ns * 1e-9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")


def rank_output(epochs: Sequence[RankEpoch], version: Version, offset: int) -> dict[str, Any]:
    """Return the part of `R_output.json` that has the steps of a rank, by the number of the epoch from 1.

    `offset` is that of `epoch_stats`.
    """
    content = {str(number): _epoch_output(epoch, version) for number, epoch in enumerate(epochs, 1)}
    if not version.is_first_generation:
        for output, epoch in zip(content.values(), epochs, strict=True):
            output["end"] = stamp(epoch.end + offset)
    return content


def _epoch_output(epoch: RankEpoch, version: Version) -> dict[str, Any]:
    blocks = [
        (f"block{number}", block, block_throughput(block, version, epoch.batch))
        for number, block in enumerate(epoch.blocks, 1)
    ]
    if epoch.evaluations:
        blocks.append(("eval", epoch.evaluations[-1][0], epoch.evaluation(version)[1]))
    content: dict[str, Any] = {}
    for name, block, rate in blocks:
        values = {
            "load": block.load.tolist(),
            "proc": block.proc.tolist(),
            "compute": block.compute_for(version).tolist(),
            "throughput": rate,
            "au": block_utilization(block, version),
        }
        for key, value in values.items():
            content.setdefault(key, {})[name] = value
    return content


def epoch_stats(epochs: Sequence[RankEpoch], version: Version, offset: int) -> dict[str, Any]:
    """Return `R_per_epoch_stats.json`: when epochs, blocks, evaluations and checkpoints began and ended.

    `offset` is what a reading of this rank's clock lacks to be the time since 1970, ns.
    """

    def span(begun: int, ended: int) -> dict[str, Any]:
        return {
            "start": stamp(begun + offset),
            "end": stamp(ended + offset),
            "duration": f"{(ended - begun) * 1e-9:.2f}",
        }

    content: dict[str, Any] = {}
    for number, epoch in enumerate(epochs, 1):
        parts = {f"block{place}": span(block.begun, block.ended) for place, block in enumerate(epoch.blocks, 1)}
        if epoch.evaluations:
            parts["eval"] = span(epoch.evaluations[0][0].begun, epoch.evaluations[-1][0].ended)
        for kind, prefix in ("save", "save_ckpt"), ("restore", "load_ckpt"):
            if version.is_first_generation and kind == "restore":
                continue
            name = "ckpt" if version.is_first_generation else prefix
            for place, one in enumerate((one for one in epoch.checkpoints if one.kind == kind), 1):
                part = span(one.begun, one.ended)
                if not version.is_first_generation:
                    seconds = (one.ended - one.begun) * 1e-9
                    part |= {"duration": seconds, "throughput": one.bytes / 2**30 / seconds if seconds else 0.0}
                parts[f"{name}{place}"] = part
        content[str(number)] = span(epoch.begun, epoch.end) | parts
    return content
