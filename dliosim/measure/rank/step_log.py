"""Times of every step and checkpoint of this rank, kept for the whole run: results.json has those of 64 steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from dliosim.measure.reducer import Ints

#: `READINGS` that are kept of each step, ns.
LOGGED = ("begun", "fetched", "compute_begun", "compute_ended", "sync_ended", "saved")


@dataclass(frozen=True, slots=True)
class LoggedEpoch:
    """The steps of one epoch of a loop."""

    #: verb of the loop: `train`, `evaluate` or `infer`
    kind: str
    #: samples of a full step of this rank
    batch: int
    #: clock reading at the start of the epoch, ns
    started: int
    #: readings of the clock, (steps, `LOGGED`), ns
    readings: Ints
    #: compute asked, (steps,), ns
    asked: Ints


@dataclass(frozen=True, slots=True)
class LoggedCheckpoint:
    """A save or a restore of this rank."""

    #: `save` or `restore`
    kind: str
    #: clock reading at its begin, ns
    begun: int
    #: clock reading at the end of the time in which it held the rank, ns
    ended: int
    #: bytes of the checkpoint over all ranks
    bytes: int


@dataclass(frozen=True, slots=True)
class StepLog:
    """The epochs and checkpoints of one rank, in order."""

    #: epochs of loops
    epochs: list[LoggedEpoch] = field(default_factory=list)
    #: saves and restores
    checkpoints: list[LoggedCheckpoint] = field(default_factory=list)
