"""ranks.h5 and timeline.h5 read back: the figures of every rank, and what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dliosim.errors import UsageError
from dliosim.measure.phase import PhaseSummary
from dliosim.report.reader.arrays import Hdf5Group, Ints, open_hdf5
from dliosim.report.timeline import SCHEMA_VERSION

#: Columns of ranks.h5 that pictures need: the parts of the wall time, which add up to it.
TIME_COLUMNS = (
    "data_wait_ns",
    "arrival_wait_ns",
    "compute_ns",
    "sync_wait_ns",
    "checkpoint_ns",
    "processing_ns",
    "tool_ns",
)

# What ranks.h5 did not have before there were formats, when nothing took it.
_LATER_COLUMNS = frozenset({"processing_ns"})

# The longest bin, and the longest time, that make sense: a month.
_LONGEST_NS = 31 * 86_400 * 10**9


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEpoch:
    """What happened when in one epoch, in ns since its start on each rank's own clock.

    `ranks` are the R ranks that have rows. `bytes` and the figures after it are (R, bins), each bin of `bin_ns`;
    `window_ns` is (R, W, 6): begun, ready, compute begun, compute ended, sync ended, saved, of the first W steps, -1
    where the rank did not do a step; `reads_ns` is (n, 4): rank, reader thread, begin, end; `offsets` is (n, 4): rank,
    step, file, offset; the latencies are (buckets, 2): upper edge in ns, and how many lie below it and not below the
    edge before. docs/metrics.md has of how many ranks and calls there are any.
    """

    epoch: int
    steps: int
    bin_ns: int
    ranks: Ints
    bytes: Ints
    data_wait_ns: Ints
    io_busy_ns: Ints
    compute_ns: Ints
    sync_wait_ns: Ints
    checkpoint_ns: Ints
    batch_latency_max_ns: Ints
    window_ns: Ints
    reads_ns: Ints
    offsets: Ints
    batch_latency: Ints
    call_latency: Ints

    @property
    def bin_count(self) -> int:
        """How many bins there are up to the last in which anything happened."""
        times = (self.bytes, self.data_wait_ns, self.compute_ns, self.sync_wait_ns, self.checkpoint_ns)
        used = np.flatnonzero(sum(one.any(axis=0) for one in times))
        return int(used[-1]) + 1 if used.size else 0

    @property
    def seconds(self) -> float:
        """How long the bins that are used take."""
        return self.bin_count * self.bin_ns * 1e-9


def read_rank_times(path: Path, loops: Sequence[PhaseSummary], ranks: int) -> list[dict[str, Ints]]:
    """For each loop the `TIME_COLUMNS`, each (epochs, ranks); UsageError where the file does not fit results.json.

    Of a file that has no `processing_ns` yet it is 0.
    """
    with open_hdf5(path) as file:
        _check_version(file)
        groups = file.groups()
        _check_names(path, groups, loops)
        return [
            {name: _read_times(group, name, (len(loop.epochs), ranks)) for name in TIME_COLUMNS}
            for (_, group), loop in zip(groups, loops, strict=True)
        ]


def _read_times(group: Hdf5Group, name: str, shape: tuple[int, int]) -> Ints:
    if name in _LATER_COLUMNS and not group.has(name):
        return np.zeros(shape, np.int64)
    # A remainder, tool time may be a little below 0.
    return group.array(name, shape, -_LONGEST_NS, _LONGEST_NS)


def read_timelines(path: Path, loops: Sequence[PhaseSummary], ranks: int) -> list[list[RecordedEpoch]]:
    """For each loop the epochs that were recorded; UsageError where the file does not fit results.json."""
    with open_hdf5(path) as file:
        _check_version(file)
        groups = file.groups()
        _check_names(path, groups, loops)
        return [
            [_read_epoch(path, name, epoch, ranks, len(loop.epochs)) for name, epoch in group.groups()]
            for (_, group), loop in zip(groups, loops, strict=True)
        ]


def _read_epoch(path: Path, name: str, group: Hdf5Group, ranks: int, epochs: int) -> RecordedEpoch:
    if not name.isdecimal() or int(name[:12]) >= epochs:
        raise UsageError(f"{path}: {name} is not the number of an epoch, of which there are {epochs}")
    bin_ns = group.whole("bin_ns")
    if not 1 <= bin_ns <= _LONGEST_NS:
        raise UsageError(f"{path}: bins of {bin_ns} ns")
    rows = group.array("ranks", (None,))
    if rows.size and int(rows.max()) >= ranks:
        raise UsageError(f"{path}: a row for rank {int(rows.max())}, and there are {ranks} ranks")
    content = group.array("bytes", (len(rows), None))
    bins = content.shape[1]
    if bins * bin_ns > _LONGEST_NS:
        raise UsageError(f"{path}: an epoch of {bins * bin_ns} ns")
    binned = {key: group.array(key, (len(rows), bins), most=_LONGEST_NS) for key in _BINNED}
    return RecordedEpoch(
        epoch=int(name),
        steps=group.whole("steps"),
        bin_ns=bin_ns,
        ranks=rows,
        bytes=content,
        window_ns=group.array("window_ns", (len(rows), None, 6), -1, _LONGEST_NS),
        reads_ns=group.array("reads_ns", (None, 4), most=_LONGEST_NS),
        offsets=group.array("offsets", (None, 4)),
        batch_latency=group.array("batch_latency", (None, 2)),
        call_latency=group.array("call_latency", (None, 2)),
        **binned,
    )


_BINNED = ("data_wait_ns", "io_busy_ns", "compute_ns", "sync_wait_ns", "checkpoint_ns", "batch_latency_max_ns")


def _check_version(file: Hdf5Group) -> None:
    version = file.whole("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(f"{file.path}: schema version {version}, and this dliosim reads {SCHEMA_VERSION}")


def _check_names(path: Path, groups: Sequence[tuple[str, Hdf5Group]], loops: Sequence[PhaseSummary]) -> None:
    """See that the groups are the loops of results.json."""
    here = [(group.text("name"), group.text("kind")) for _, group in groups]
    there = [(loop.name, loop.kind) for loop in loops]
    if here != there:
        raise UsageError(f"{path} has other loops than results.json beside it: {here[:5]}, not {there[:5]}")
