"""Read ranks.h5 (the figures of every rank) and timeline.h5 (the times of events)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dliosim.errors import UsageError
from dliosim.measure.figures.declaration import column_of, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.phase import LoopPhase
from dliosim.report.files.hdf5_files import SCHEMA_VERSION
from dliosim.report.reader.arrays import Hdf5Group, Ints, open_hdf5
from dliosim.report.reader.fields import check_version

#: Columns of ranks.h5 that pictures need: the parts of the wall time; their sum is the wall time.
TIME_COLUMNS = tuple(column_of(part) for part in time_parts(EpochSummary))

# The longest bin and the longest time that are accepted: a month.
_LONGEST_NS = 31 * 86_400 * 10**9


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEpoch:
    """The events of one epoch; times are ns since its start on each rank's own clock.

    R is the number of ranks with rows. docs/report.md says for how many ranks and calls there are events.
    """

    #: number of the epoch, from 1
    epoch: int
    #: number of steps
    steps: int
    #: length of a bin; ns
    bin_ns: int
    #: the ranks that have rows; (R,)
    ranks: Ints
    #: bytes read in each bin; (R, bins)
    bytes: Ints
    #: data wait in each bin; ns; (R, bins)
    data_wait_ns: Ints
    #: time with calls in flight in each bin; ns; (R, bins)
    io_busy_ns: Ints
    #: compute in each bin; ns; (R, bins)
    compute_ns: Ints
    #: sync wait in each bin; ns; (R, bins)
    sync_wait_ns: Ints
    #: time that saves held the rank in each bin; ns; (R, bins)
    checkpoint_ns: Ints
    #: largest batch latency in each bin; ns; (R, bins)
    batch_latency_max_ns: Ints
    #: begun, ready, compute begun, compute ended, sync ended, saved, of the first W steps; ns; (R, W, 6); -1 where the
    #: rank did not do a step
    window_ns: Ints
    #: rank, reader thread, begin, end of each read; (n, 4)
    reads_ns: Ints
    #: rank, step, file, offset of each call; (n, 4)
    offsets: Ints
    #: upper edge in ns, and the count from the edge before to below it; (buckets, 2)
    batch_latency: Ints
    #: as `batch_latency`; (buckets, 2)
    call_latency: Ints

    @property
    def bin_count(self) -> int:
        """The number of bins up to the last one with an event."""
        times = (self.bytes, self.data_wait_ns, self.compute_ns, self.sync_wait_ns, self.checkpoint_ns)
        used = np.flatnonzero(sum(one.any(axis=0) for one in times))
        return int(used[-1]) + 1 if used.size else 0

    @property
    def seconds(self) -> float:
        """The time of the bins in use; s."""
        return self.bin_count * self.bin_ns * 1e-9


def read_rank_times(path: Path, loops: Sequence[LoopPhase], ranks: int) -> list[dict[str, Ints]]:
    """Return for each loop the `TIME_COLUMNS`, (epochs, ranks) each; UsageError if it does not fit results.json."""
    with open_hdf5(path) as file:
        check_version(path, file.whole("schema_version"), SCHEMA_VERSION)
        groups = file.groups()
        _check_names(path, groups, loops)
        return [
            # Tool time is a remainder, and may be slightly below 0.
            {name: group.array(name, (len(loop.epochs), ranks), -_LONGEST_NS, _LONGEST_NS) for name in TIME_COLUMNS}
            for (_, group), loop in zip(groups, loops, strict=True)
        ]


def read_timelines(path: Path, loops: Sequence[LoopPhase], ranks: int) -> list[list[RecordedEpoch]]:
    """Return for each loop the recorded epochs; UsageError where the file does not fit results.json."""
    with open_hdf5(path) as file:
        check_version(path, file.whole("schema_version"), SCHEMA_VERSION)
        groups = file.groups()
        _check_names(path, groups, loops)
        return [
            [_read_epoch(path, name, epoch, ranks, len(loop.epochs)) for name, epoch in group.groups()]
            for (_, group), loop in zip(groups, loops, strict=True)
        ]


def _read_epoch(path: Path, name: str, group: Hdf5Group, ranks: int, epochs: int) -> RecordedEpoch:
    if not name.isdecimal() or not 1 <= int(name[:12]) <= epochs:
        raise UsageError(f"{path}: {name} is not the number of an epoch; there are {epochs}")
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


def _check_names(path: Path, groups: Sequence[tuple[str, Hdf5Group]], loops: Sequence[LoopPhase]) -> None:
    """Check that the groups are the loops of results.json; UsageError where they are not."""
    here = [(group.text("name"), group.text("kind")) for _, group in groups]
    there = [(loop.name, loop.kind) for loop in loops]
    if here != there:
        raise UsageError(f"{path} has other loops than results.json next to it: {here[:5]}, not {there[:5]}")
