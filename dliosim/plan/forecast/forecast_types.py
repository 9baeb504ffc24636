"""The types of a forecast: figures over ranks, of phases, of memory and of storage. Bytes, seconds, B/s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dliosim.plan.forecast.rank_memory import RankMemory


@dataclass(frozen=True, slots=True)
class RankSpread:
    """A figure per rank, summarised over all ranks."""

    minimum: float  #: smallest value of any rank
    mean: float  #: mean over ranks
    maximum: float  #: largest value of any rank
    total: float  #: sum over ranks
    #: true if not every rank and epoch was planned, or if the epochs that it stands for differ
    estimated: bool = False

    def scale(self, factor: float) -> RankSpread:
        """Return the figure multiplied by `factor` on every rank."""
        return RankSpread(
            factor * self.minimum, factor * self.mean, factor * self.maximum, factor * self.total, self.estimated
        )


def uniform_spread(value: float, ranks: int, estimated: bool = False) -> RankSpread:
    """Return the spread of a figure that is the same on every rank."""
    return RankSpread(value, value, value, value * ranks, estimated)


def spread_of(values: Sequence[float] | NDArray[Any], ranks: int, estimated: bool) -> RankSpread:
    """Return the spread over `ranks` ranks, from the values of all of them or of a sample."""
    column = np.asarray(values)
    mean = float(column.mean())
    total = float(column.sum()) if len(column) == ranks else mean * ranks
    return RankSpread(float(column.min()), mean, float(column.max()), total, estimated)


def mean_spread(spreads: Sequence[RankSpread]) -> RankSpread:
    """Return the mean of a figure over epochs, with its smallest and largest value; an estimate if epochs differ."""
    if all(spread == spreads[0] for spread in spreads):
        return spreads[0]
    low, mean, most, total, _ = zip(*map(astuple, spreads), strict=True)
    return RankSpread(min(low), sum(mean) / len(mean), max(most), sum(total) / len(total), True)


@dataclass(frozen=True, slots=True)
class Demand:
    """The rates that storage must deliver for a storage-limited utilization, or to keep up with arrivals."""

    step_bytes: float  #: bytes that a rank reads for a step
    #: storage-limited utilization; None for requests, which storage has to keep up with
    goal: float | None
    #: seconds of a step with storage that needs no time: compute, and what `processing` adds to it
    least: float
    #: seconds that a rank has to read a step's bytes: least / goal where readers overlap it, else what `least` leaves
    #: of that; with arrivals, what it leaves of the mean gap between requests; 0 if it leaves nothing
    budget: float
    processing: float = 0.0  #: seconds that `preprocess` takes for the samples of a step
    #: readers with which `preprocess` leaves compute busy for the goal; 0 if it does
    readers: int = 0

    @property
    def step_seconds(self) -> float:
        """Seconds of a step at the goal, or between two requests on average."""
        return self.least + self.budget if self.goal is None else self.least / self.goal

    @property
    def needs(self) -> float | None:
        """B/s of one rank on average, as `needs` of the answer of a run; None for requests."""
        return None if self.goal is None else self.rate_without_waits * self.goal

    @property
    def rate_without_waits(self) -> float:
        """B/s of one rank that never waits for data: bytes of a step / time of a step without storage."""
        return self.step_bytes / self.least

    @property
    def rate(self) -> float | None:
        """B/s of one rank while it reads; None if no time is left to read, so that no storage is fast enough."""
        return self.step_bytes / self.budget if self.budget > 0 else None


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """One phase, or epochs of a phase that do the same; figures are those of one time, over the ranks."""

    verb: Literal["prepare", "convert", "stage", "train", "evaluate", "infer", "save", "restore"]  #: verb of the phase
    name: str  #: name of the loop, data set or checkpoint
    times: int  #: how often it is done
    steps: int  #: steps each time
    samples: RankSpread  #: samples of a rank
    bytes: RankSpread  #: bytes asked of storage, without those that `cache memory` has
    files: RankSpread  #: files that a rank reads or makes
    opens: RankSpread  #: files that a rank opens
    calls: RankSpread  #: read or write calls
    memory: RankMemory  #: memory of the rank that needs most
    first_epoch: int | None = None  #: from 1; None outside loops
    last_epoch: int | None = None  #: inclusive; None outside loops
    at_most: bool = False  #: true if `for` may end the loop earlier
    #: bytes moved for each byte asked, with O_DIRECT or where samples are in units that are read whole; else None
    amplification: float | None = None
    #: span of the file that a step touches on all ranks of a communicator, for each byte that they read there: what a
    #: two-phase collective would read; None unless all ranks read one file
    span_ratio: float | None = None
    demand: Demand | None = None  #: rates that storage must deliver; None if nothing says in which time
    #: passes that requests make, the options of a restore, or what a `convert` reads
    when: str = ""
    at_least: bool = False  #: true if saves follow the clock
    #: bytes of memory that each rank needs, int64 (ranks,), without staging buffers; None if all need the same
    rank_memory: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    node_memory: int = 0  #: bytes of memory that the ranks of the fullest node need together

    def per_second(self, amount: RankSpread) -> float | None:
        """Return an amount of all ranks in a second at the goal, or of requests; None if nothing says in which time."""
        return amount.total / self.steps / self.demand.step_seconds if self.demand else None


@dataclass(frozen=True, slots=True)
class Storage:
    """The space that is used on a root at the end."""

    #: kind of the data; a sidecar is a small file next to each file of a data set, without samples; each node has a
    #: copy
    kind: Literal["dataset", "sidecar", "copy", "checkpoint"]
    name: str  #: name of the data set or checkpoint; of sidecars with their suffix: `images.index`
    root: str  #: name of the root
    bytes: float  #: bytes of each copy
    files: int  #: files of each copy
    copies: int  #: number of copies
    estimated: bool  #: true if bytes are an estimate


@dataclass(frozen=True, slots=True)
class StateForecast:
    """The bytes and files that one save of a checkpoint stores on its root."""

    checkpoint: str  #: name of the checkpoint
    saves: int  #: saves in a run
    #: (name, bytes) of the model's weights, of its optimizer and of each other part
    contents: tuple[tuple[str, int], ...]
    #: (label, number) of files called `layer`, `optimizer` and so on; "" if file names have no label
    files: tuple[tuple[str, int], ...]
    writers: int  #: ranks that write any bytes
    most: int  #: bytes of the rank that saves most
    restored: float  #: bytes that all ranks read to continue from it
    part_of: str  #: text of `Checkpoint.describe_part`

    @property
    def bytes(self) -> int:
        """Bytes of all contents."""
        return sum(size for _, size in self.contents)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a workload."""

    workload: str  #: name of the workload
    digest: str  #: digest of the workload
    ranks: int  #: ranks of the job
    nodes: int  #: nodes of the job
    phases: tuple[PhaseForecast, ...]  #: phases in order
    storage: tuple[Storage, ...]  #: space of data sets and checkpoints
    states: tuple[StateForecast, ...]  #: checkpoints that are saved
    rank_bytes: int  #: memory of the rank that needs most; bytes
    #: memory of a node for the sums that place samples of varying size, one copy for all its ranks; bytes
    index_bytes: int
    node_bytes: int  #: memory of the fullest node; bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """The samples that one rank reads in one epoch, in order; each column has one entry a sample."""

    step: NDArray[np.int64]  #: step, from 0
    sample: NDArray[np.int64]  #: number of the sample
    file: list[str]  #: path relative to the data set's root
    offset: NDArray[np.int64]  #: first byte in the file
    length: NDArray[np.int64]  #: bytes
