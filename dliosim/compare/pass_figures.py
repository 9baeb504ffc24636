"""The figures of one pass, declared once for each subject of a comparison: a loop, or the stall by a save or restore.

They are the columns of rows.csv and the input of tables, verdicts and compare.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.answers.sources import find_cold_epochs, share_of_device
from dliosim.measure.figures import aggregate
from dliosim.measure.figures.declaration import time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.rank.histogram import Histogram, merge_histograms
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import FilePhase

#: If a rank reads less than this share of what it asked for, another rank has read the rest.
_READ_BY_OTHERS = 0.5

#: The clock's resolution in seconds: no time is shorter.
_SHORTEST = 1e-9


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured execution of the verb that is compared, at rank 0."""

    phase: PhaseSummary  #: its phase
    rank_rows: NDArray[np.int64] | None = None  #: figures of every rank (`gather_ranks`); None if there are none
    together: int = 1  #: number of ranks that open a shared file together

    @property
    def epochs(self) -> tuple[EpochSummary, ...]:
        """Return the epochs of a loop; none of other verbs."""
        return self.phase.epochs if isinstance(self.phase, LoopPhase) else ()


Figure: TypeAlias = Callable[[Measured], Any]


@dataclass(frozen=True, slots=True)
class Pass:
    """One execution of a variant."""

    block: int  #: block of the pass; 0: the warm-up
    position: int  #: number among all passes, in the order in which they ran
    figures: Mapping[str, Any]  #: figures by their names in `Subject.figures`; None for one that does not exist
    latency: Histogram  #: waits of steps for a batch, or latencies of the calls of a save or restore


@dataclass(frozen=True, slots=True)
class Subject:
    """The declaration of what is compared: the figures of its passes, and those that compare.json has."""

    figures: Mapping[str, Figure]  #: every figure of a pass, in the order of the columns of rows.csv
    seconds: str  #: the figure that is the time of a pass
    latency: str  #: name of its latencies
    histogram: Callable[[Measured], Histogram]  #: the latencies of a pass
    #: {key in compare.json: figure with a geometric mean there}: what is judged, so that quotients are the ratios
    means: Mapping[str, str]
    medians: tuple[str, ...]  #: figures with a median there
    shares: Mapping[str, str]  #: {key in compare.json: part of the time of all ranks with a share there}
    counts: tuple[str, ...] = ()  #: figures that are the same in every pass
    unsaved: tuple[str, ...] = ()  #: figures that only the verdict uses

    @property
    def columns(self) -> list[str]:
        """The figures that files have."""
        return [name for name in self.figures if name not in self.unsaved]

    def time(self, one: Pass) -> float:
        """Return the time that is compared: the stall, or seconds a sample of a loop, whose variants may skip some."""
        return float(max(one.figures[self.seconds], _SHORTEST) / one.figures.get("samples", 1))


def make_pass(subject: Subject, measured: Measured, block: int, position: int) -> Pass | None:
    """Return the figures of a phase; None if this rank has none."""
    if not measured.epochs and not isinstance(measured.phase, FilePhase):
        return None
    figures = {name: figure(measured) for name, figure in subject.figures.items()}
    return Pass(block, position, figures, subject.histogram(measured))


def find_two_phase_state(one: Measured) -> str | None:
    """Return whether aggregators read for other ranks: `engaged`, `not engaged`, `unknown`; None if not collective.

    The hints that ROMIO granted decide if they say so. If ROMIO decides itself (`automatic`, its default),
    another rank has read for a rank if the rank's own read calls brought less than it asked for. If all ranks are
    aggregators the state stays unknown.
    """
    if one.phase.api != "mpi-collective":
        return None
    if one.together < 2:
        return "not engaged"  # for any hints: there is no other rank to read for
    hints = dict(one.phase.hints_granted)
    asked = hints.get("romio_cb_read", "").strip().lower()
    if asked == "disable":
        return "not engaged"
    if asked == "enable":
        return "engaged"
    if one.rank_rows is None:
        return "unknown"
    through_calls = one.rank_rows[:, :, RANK_COLUMNS.index("rchar")]
    wanted = one.rank_rows[:, :, RANK_COLUMNS.index("bytes")].sum(axis=1)
    if (through_calls < 0).any():
        return "unknown"
    if (through_calls.sum(axis=1) < _READ_BY_OTHERS * wanted).any():
        return "engaged"
    aggregators = hints.get("cb_nodes", "")
    return "not engaged" if aggregators.isdigit() and int(aggregators) < one.together else "unknown"


def _total(name: str) -> Figure:
    return lambda one: sum(getattr(epoch, name) for epoch in one.epochs)


def _mean(name: str) -> Figure:
    """Return the figure of a mean over ranks, summed over epochs."""
    return lambda one: sum(getattr(epoch, name).mean for epoch in one.epochs)


def _hash(name: str) -> Figure:
    return lambda one: f"{sum(getattr(epoch, name) for epoch in one.epochs) % 2**64:016x}"


def _mean_by_bytes(name: str) -> Figure:
    return lambda one: aggregate.mean_by_bytes(name, one.epochs)


def _rate(amount: str) -> Figure:
    return lambda one: _total(amount)(one) / _loop_seconds(one)


def _loop_seconds(one: Measured) -> float:
    """Return the wall time of the slowest rank over all epochs, blocking checkpoints included."""
    return sum(epoch.seconds for epoch in one.epochs)


def _device_share_of_restore(one: Measured) -> float | None:
    """Return the bytes from the device by the distinct bytes restored; None for a save, or if they are unknown."""
    verb = _verb(one)
    different = verb.distinct_bytes or verb.bytes
    return None if verb.device_bytes is None or not different else verb.device_bytes / different


def _device_share(one: Measured) -> float | None:
    """Return the device's share of the distinct bytes asked (`share_of_device`); None if it is unknown."""
    epochs: Sequence[EpochSummary] = one.epochs
    known = [epoch.device_bytes for epoch in epochs if epoch.device_bytes is not None]
    different = sum(epoch.unique_bytes for epoch in epochs)
    if not isinstance(one.phase, LoopPhase) or not different or len(known) < len(epochs):
        return None
    cold = find_cold_epochs([one.phase])
    warm = sum(epoch.samples for number, epoch in enumerate(epochs) if number not in cold)
    return share_of_device(sum(known), different, warm)


def _reader_core_wait_share(one: Measured) -> float | None:
    readers = one.phase.readers if isinstance(one.phase, LoopPhase) else 0
    return aggregate.reader_core_wait_share(one.epochs, readers)


def _depth(one: Measured) -> float | None:
    """Return the mean number of calls in flight on a rank."""
    epochs = one.epochs
    busy = sum(epoch.io_busy_seconds.mean for epoch in epochs)
    calls = merge_histograms(epoch.call_latency for epoch in epochs)
    return calls.sum_ns * 1e-9 / (busy * epochs[0].ranks) if busy > 0 else None


def _batch_latency(one: Measured) -> Histogram:
    return merge_histograms(epoch.batch_latency for epoch in one.epochs)


def _verb(one: Measured) -> VerbSummary:
    assert isinstance(one.phase, FilePhase)
    return one.phase.verb


def _count(name: str) -> Figure:
    return lambda one: getattr(_verb(one), name)


def _longest(*names: str) -> Figure:
    """Return the figure of the seconds of the rank that took longest in an operation, summed over operations."""
    return lambda one: sum(getattr(_verb(one), name).max for name in names)


def _stall(one: Measured) -> float:
    """Return the time that the caller was held, without `content`: all of a blocking save, or of a restore."""
    return _verb(one).seconds if one.phase.kind == "restore" else _verb(one).stall_seconds.max


def _completion_time(one: Measured) -> float:
    return _stall(one) + _verb(one).flush_seconds.max


def _completion_rate(one: Measured) -> float | None:
    """Return bytes by the time until all are written or read; a byte that a node reads twice counts once."""
    verb, seconds = _verb(one), _completion_time(one)
    return verb.bytes_once / seconds if verb.bytes_once and seconds > 0 else None


def _call_latency(one: Measured) -> Histogram:
    return _verb(one).call_latency


def _quantiles(latency: str, histogram: Callable[[Measured], Histogram], *percents: str) -> dict[str, Figure]:
    """Return the figures of quantiles, `p999` for 99.9 %, and of the longest."""

    def quantile(share: float) -> Figure:
        return lambda one: histogram(one).quantile(share) * 1e-9

    shares = {one: int(one[1:]) / 10 ** (len(one) - 1) for one in percents}
    return {f"{latency}_{one}_seconds": quantile(share) for one, share in shares.items()} | {
        f"{latency}_max_seconds": lambda one: histogram(one).max_ns * 1e-9
    }


#: Times of a loop in the order of the columns of rows.csv; a part of the wall time that is not here comes last.
_TIMES: Final = (
    *("data_wait", "compute", "sync_wait", "arrival_wait", "checkpoint", "tool"),
    *("io_busy", "open", "view"),
)

#: Operations of a save or restore.
_OPERATIONS: Final = (
    *("open", "view", "file_sync", "commit", "manifest", "directory_sync", "rename", "serialize", "plan"),
    *("wait", "stage", "flush", "drain", "partner", "content"),
)


_LOOP_FIGURES: Final[dict[str, Figure]] = {
    "seconds": _loop_seconds,
    **{name: _total(name) for name in ("samples", "bytes")},
    **{f"{name}_per_second": _rate(name) for name in ("samples", "bytes")},
    **{name: _total(name) for name in ("bytes_moved", "calls", "opens")},
    **{f"{name}_seconds": _mean(f"{name}_seconds") for name in _TIMES},
    "utilization": lambda one: aggregate.utilization(one.epochs),
    **{name: _mean_by_bytes(name) for name in ("amplification", "storage_amplification")},
    "depth": _depth,
    "resident_share": lambda one: one.phase.resident_share,
    "two_phase": find_two_phase_state,
    **_quantiles("batch_latency", _batch_latency, "p50", "p90", "p99", "p999"),
    **{name: _hash(name) for name in ("order_hash", "extent_hash")},
    **{name: _mean(name) for name in ("decode_seconds", "preprocess_seconds", "processing_seconds")},
    "core_wait_share": lambda one: aggregate.core_wait_share(one.epochs),
    "device_share": _device_share,
    "reader_core_wait_share": _reader_core_wait_share,
    **{part: _mean(part) for part in time_parts(EpochSummary)},
}

#: A loop. Its times but `seconds` are means over ranks, summed over epochs.
LOOP: Final = Subject(
    figures=_LOOP_FIGURES,
    seconds="seconds",
    latency="batch_latency",
    histogram=_batch_latency,
    means={f"rate_{name}": name for name in ("samples_per_second", "bytes_per_second")},
    medians=(
        *("utilization", "checkpoint_seconds", "decode_seconds", "preprocess_seconds"),
        *("amplification", "storage_amplification", "depth"),
    ),
    shares={
        f"{name.removesuffix('_seconds')}_share": name for name in _LOOP_FIGURES if name in time_parts(EpochSummary)
    },
    unsaved=("device_share", "reader_core_wait_share"),
)

#: Times of a save or restore: of the rank that took longest in each operation.
_STALL_TIMES: Final = {
    "call_seconds": _longest("call_seconds"),
    "send_seconds": _longest("send_seconds", "broadcast_seconds"),  # a save sends, a restore broadcasts
    **{f"{name}_seconds": _longest(f"{name}_seconds") for name in _OPERATIONS},
}

#: A save or restore: how long the job stalls. Counts and bytes are of all ranks.
STALL: Final = Subject(
    figures={
        "stall_seconds": _stall,
        "until_complete_seconds": _completion_time,
        "bytes": _count("bytes"),
        "bytes_per_second": _completion_rate,
        **{name: _count(name) for name in ("bytes_moved", "files", "calls", "opens")},
        **_STALL_TIMES,
        "resident_share": lambda one: one.phase.resident_share,
        **_quantiles("call_latency", _call_latency, "p50", "p99"),
        "device_share": _device_share_of_restore,
    },
    seconds="stall_seconds",
    latency="call_latency",
    histogram=_call_latency,
    means={"rate_bytes_per_second": "bytes_per_second", "stall_seconds": "stall_seconds"},
    medians=("until_complete_seconds", *_STALL_TIMES),
    shares={},
    counts=("bytes", "files", "calls"),
    unsaved=("device_share",),
)
