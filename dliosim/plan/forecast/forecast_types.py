"""What a forecast consists of: figures over ranks, of phases, of memory and of storage. Bytes, seconds, B/s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

#: The utilization for which storage is asked to be fast enough.
UTILIZATION = 0.9


def time_to_read(compute: float, overlapped: bool) -> float:
    """Seconds in which a step's data must be there for `UTILIZATION`: beside the compute, or on top of it."""
    return compute / UTILIZATION if overlapped else compute * (1 / UTILIZATION - 1)


@dataclass(frozen=True, slots=True)
class RankSpread:
    """A figure of one rank, over all ranks; `total` is their sum.

    `estimated` where not every rank and epoch was worked out, or where epochs that it stands for differ.
    """

    minimum: float
    mean: float
    maximum: float
    total: float
    estimated: bool = False


def uniform_spread(value: float, ranks: int, estimated: bool = False) -> RankSpread:
    """The same figure on every rank."""
    return RankSpread(value, value, value, value * ranks, estimated)


def spread_of(values: Sequence[float] | NDArray[Any], ranks: int, estimated: bool) -> RankSpread:
    """The spread over `ranks` ranks of which `values` are all, or a sample."""
    column = np.asarray(values)
    mean = float(column.mean())
    total = float(column.sum()) if len(column) == ranks else mean * ranks
    return RankSpread(float(column.min()), mean, float(column.max()), total, estimated)


def mean_spread(spreads: Sequence[RankSpread]) -> RankSpread:
    """The mean of a figure over epochs, between its least and its greatest; an estimate where they differ."""
    if all(spread == spreads[0] for spread in spreads):
        return spreads[0]
    return RankSpread(
        min(spread.minimum for spread in spreads),
        sum(spread.mean for spread in spreads) / len(spreads),
        max(spread.maximum for spread in spreads),
        sum(spread.total for spread in spreads) / len(spreads),
        True,
    )


@dataclass(frozen=True, slots=True)
class Demand:
    """What storage must deliver so that utilization stays at 90 % (with arrivals: to keep up with them).

    A rank has `budget` seconds for the `step_bytes` of a step: compute / 0.9 where readers overlap it, else what is
    left of that beside compute and `processing`; with arrivals what these leave of the mean gap between requests.
    `processing` is the seconds that `preprocess` takes for a step's samples. Rates are in B/s, and None where nothing
    is left to read in, so that no storage is fast enough: `readers` is then how many would leave time, 0 if none.
    """

    step_bytes: float
    budget: float
    rank_rate: float | None
    total_rate: float | None
    processing: float = 0.0
    readers: int = 0


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of memory that one rank needs in a phase: batches, the plan's columns, allreduce, `cache memory`.

    `staging` is what saves in the background keep until they are flushed.
    """

    buffers: int = 0
    plan: int = 0
    allreduce: int = 0
    cache: int = 0
    staging: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.buffers + self.plan + self.allreduce + self.cache + self.staging


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """One phase, or epochs of it that are alike, done `times` times; figures are of one time, over the ranks.

    Epochs count from 1 and are None outside loops; `when` has the passes that requests make, or what tells a restore
    from others. `at_most` where `for` may end a loop sooner, `at_least` where saves go by the clock. `bytes` are those
    asked of storage, not those that `cache memory` has. `amplification` is bytes moved for each byte asked by O_DIRECT,
    or where samples lie in units that are read whole, else None. `span_ratio` is the span of the file that a step
    touches on all ranks of a communicator for each byte that they read there (what a two-phase collective would read),
    None unless all read one file.
    """

    verb: Literal["prepare", "train", "evaluate", "infer", "save", "restore"]
    name: str
    times: int
    steps: int
    samples: RankSpread
    bytes: RankSpread
    files: RankSpread
    opens: RankSpread
    calls: RankSpread
    memory: RankMemory
    first_epoch: int | None = None
    last_epoch: int | None = None
    at_most: bool = False
    amplification: float | None = None
    span_ratio: float | None = None
    demand: Demand | None = None
    when: str = ""
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """What lies on a root in the end: `copies` of `bytes` in `files` files each."""

    kind: Literal["dataset", "checkpoint"]
    name: str
    root: str
    bytes: float
    files: int
    copies: int
    estimated: bool


@dataclass(frozen=True, slots=True)
class StateForecast:
    """What one save of a checkpoint leaves on its root: bytes, files of each kind, and how many ranks write any.

    `contents` has the bytes of the model's weights, of its optimizer and of each other part, `files` how many are
    called `layer`, `optimizer` and so on ("" where files have no such names), `saves` how often a run saves it.
    `most` is the bytes of the rank that saves most, `restored` what all ranks read to go on from it, `part_of` and
    `whole` are `Checkpoint.describe_part`.
    """

    checkpoint: str
    saves: int
    contents: tuple[tuple[str, int], ...]
    files: tuple[tuple[str, int], ...]
    writers: int
    most: int
    restored: float
    part_of: str
    whole: str

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(size for _, size in self.contents)


@dataclass(frozen=True, slots=True)
class Forecast:
    """A workload's forecast; memory in bytes: of the rank that needs most, and of the fullest node.

    `index_bytes` of a node are the sums that place samples of varying size, one copy for all its ranks.
    """

    workload: str
    digest: str
    ranks: int
    nodes: int
    phases: tuple[PhaseForecast, ...]
    storage: tuple[Storage, ...]
    states: tuple[StateForecast, ...]
    rank_bytes: int
    index_bytes: int
    node_bytes: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The samples that one rank reads in one epoch, in order; `file` is a path relative to the data set's root."""

    step: NDArray[np.int64]
    sample: NDArray[np.int64]
    file: list[str]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
