"""The files that each rank of DLIO writes: times of its steps, AU and throughput, by the formulas of a version."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.dlio.known_keys import Version
from dliosim.measure.rank.records import LOGGED, LoggedCheckpoint, LoggedEpoch, StepLog

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
        """Time from its start to its end, s."""
        return (self.ended - self.begun) * 1e-9

    def compute_for(self, version: Version) -> Floats:
        """Return the compute of each step that a version of DLIO counts, s (steps,): the first asks no clock."""
        return self.asked if version.is_first_generation else self.compute


def split_blocks(epoch: LoggedEpoch) -> Iterator[Block]:
    """Yield the blocks of an epoch: a save after a step ends one."""
    begun, fetched, asked, computed, synced, saved = epoch.readings.T
    first, started = 0, epoch.started
    for last in sorted({*(np.flatnonzero(saved > synced) + 1).tolist(), len(saved)} - {0}):
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
        figures = [
            (block_utilization(block, version), block_throughput(block, version, self.batch)) for block in self.blocks
        ]
        steps = [len(block.load) for block in self.blocks]
        share, rate = np.average(figures, axis=0, weights=steps) if figures else (0.0, 0.0)
        return float(share), float(rate)

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
    if not training:
        no_steps = np.empty((0, len(LOGGED)), np.int64), np.empty(0, np.int64)
        training = [LoggedEpoch("train", 0, one.begun, *no_steps) for one in log.checkpoints[:1]]
    epochs = []
    # What comes before the first epoch, as a restore may, belongs to it, too.
    for epoch, (begun, end) in zip(
        training, pairwise([-math.inf, *(one.started for one in training[1:]), math.inf]), strict=False
    ):
        tested = [one for one in log.epochs if one.kind == "evaluate" and begun <= one.started < end]
        evaluations = tuple((block, one.batch) for one in tested for block in split_blocks(one))
        checkpoints = tuple(one for one in log.checkpoints if begun <= one.begun < end)
        epochs.append(RankEpoch(epoch.started, epoch.batch, tuple(split_blocks(epoch)), evaluations, checkpoints))
    return epochs


def stamp(ns: int) -> str:
    """Return a time since 1970 as DLIO writes it: UTC, without its zone."""
    return datetime.fromtimestamp(ns * 1e-9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")


def rank_output(epochs: Sequence[RankEpoch], version: Version, offset: int) -> dict[str, Any]:
    """Return the part of `R_output.json` that has the steps of a rank, by the number of the epoch from 1.

    `offset` is that of `epoch_stats`. Times of steps are arrays.
    """
    return {
        str(number): _epoch_output(epoch, version)
        | ({} if version.is_first_generation else {"end": stamp(epoch.end + offset)})
        for number, epoch in enumerate(epochs, 1)
    }


def _epoch_output(epoch: RankEpoch, version: Version) -> dict[str, dict[str, Any]]:
    rates = {f"block{n}": (one, block_throughput(one, version, epoch.batch)) for n, one in enumerate(epoch.blocks, 1)}
    if epoch.evaluations:
        rates["eval"] = epoch.evaluations[-1][0], epoch.evaluation(version)[1]
    return {
        "load": {name: block.load for name, (block, _) in rates.items()},
        "proc": {name: block.proc for name, (block, _) in rates.items()},
        "compute": {name: block.compute_for(version) for name, (block, _) in rates.items()},
        "throughput": {name: rate for name, (_, rate) in rates.items()},
        "au": {name: block_utilization(block, version) for name, (block, _) in rates.items()},
    }


def epoch_stats(epochs: Sequence[RankEpoch], version: Version, offset: int) -> dict[str, Any]:
    """Return `R_per_epoch_stats.json`: when epochs, blocks, evaluations and checkpoints began and ended.

    `offset` is what a reading of this rank's clock lacks to be the time since 1970, ns. The first generation of DLIO
    writes no restores, and no rates.
    """

    def span(begun: int, ended: int) -> dict[str, Any]:
        duration = f"{(ended - begun) * 1e-9:.2f}"
        return {"start": stamp(begun + offset), "end": stamp(ended + offset), "duration": duration}

    names = {"save": "ckpt"} if version.is_first_generation else {"save": "save_ckpt", "restore": "load_ckpt"}
    content: dict[str, Any] = {}
    for number, epoch in enumerate(epochs, 1):
        parts = span(epoch.begun, epoch.end)
        parts |= {f"block{place}": span(block.begun, block.ended) for place, block in enumerate(epoch.blocks, 1)}
        if epoch.evaluations:
            parts["eval"] = span(epoch.evaluations[0][0].begun, epoch.evaluations[-1][0].ended)
        for kind, name in names.items():
            for place, one in enumerate((one for one in epoch.checkpoints if one.kind == kind), 1):
                parts[f"{name}{place}"] = span(one.begun, one.ended)
                if not version.is_first_generation:
                    seconds = (one.ended - one.begun) * 1e-9
                    rate = one.bytes / 2**30 / seconds if seconds else 0.0
                    parts[f"{name}{place}"] |= {"duration": seconds, "throughput": rate}
        content[str(number)] = parts
    return content
