"""The course of one epoch of one rank, in fixed memory for any length of epoch: see docs/report.md.

Times are nanoseconds since the rank's own start of the epoch. Widths of time bins are powers of two, so the bins of two
ranks can be merged into the wider ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.reducer import Ints

#: Time bins of an epoch. Bins double their width when full, so a long epoch uses at least half of them.
BINS = 1 << 7

#: Rows of `EpochSeries.bins`, in order: sums over a bin, except the last, which is a maximum.
QUANTITIES = (
    "bytes",
    "data_wait_ns",
    "io_busy_ns",
    "compute_ns",
    "sync_wait_ns",
    "checkpoint_ns",
    "steps",
    "batch_latency_max_ns",
)

#: Columns of `EpochSeries.add_steps`, for each step: clock readings, and the bytes of all steps so far.
MARKS = ("begun", "ready", "compute_begun", "compute_ended", "sync_begun", "sync_ended", "saved", "bytes")

#: The `MARKS` that are kept for the first steps.
WINDOW_MARKS = ("begun", "ready", "compute_begun", "compute_ended", "sync_ended", "saved")

#: Limits of what is kept one by one: steps, runs of read calls, and calls.
WINDOW_STEPS, READS, OFFSETS = 64, 256, 2048

_ROW = {name: row for row, name in enumerate(QUANTITIES)}
_IN_WINDOW = [MARKS.index(name) for name in WINDOW_MARKS]
_NEVER = int(np.iinfo(np.int64).max)


@dataclass(slots=True)
class EpochSeries:
    """The course of one epoch of one rank."""

    #: clock reading at the start of the epoch, in ns; all times count from it
    origin: int = 0
    #: bins are 2^shift ns wide
    shift: int = 0
    #: steps recorded
    steps: int = 0
    #: (`QUANTITIES`, `BINS`)
    bins: Ints = field(default_factory=lambda: np.zeros((len(QUANTITIES), BINS), np.int64))
    #: (`WINDOW_STEPS`, `WINDOW_MARKS`), in ns; -1 for steps that were not done
    window: Ints = field(default_factory=lambda: np.full((WINDOW_STEPS, len(WINDOW_MARKS)), -1, np.int64))
    #: first runs of read calls, (n, 3): reader, begin, end
    reads: Ints = field(default_factory=lambda: np.empty((0, 3), np.int64))
    #: calls in the order of issue, (n, 3): step, file, offset in bytes
    offsets: Ints = field(default_factory=lambda: np.empty((0, 3), np.int64))
    _bytes: int = 0
    _reads_until: int = _NEVER

    def add_steps(self, marks: Ints, reading: Ints) -> None:
        """Record steps, in order, by their `MARKS`, int64 (steps, 8).

        `reading` (steps, 2) has begin and end of reading each step's data, 0 and 0 if nothing was read. If it is
        empty, each step was read during its data wait. A step's bytes are spread evenly over that time.
        """
        if not len(marks):
            return
        times = marks[:, :-1] - self.origin
        begun, ready, asked, computed, arrived, synced, saved = times.T
        amount = np.diff(marks[:, -1], prepend=self._bytes)
        self._bytes = int(marks[-1, -1])
        self._widen_to(int(saved[-1]))
        self._add_times("data_wait_ns", begun, ready)
        self._add_times("compute_ns", asked, computed)
        self._add_times("sync_wait_ns", arrived, synced)
        self._add_times("checkpoint_ns", synced, saved)
        begin, end = begun, ready
        if len(reading):
            (first, last), read = reading.T - self.origin, reading[:, 0] > 0
            begin, end = np.where(read, first, begun), np.where(read, last, ready)
        self._add_bytes(begin, end, amount)
        in_bin = saved >> self.shift
        self._row("steps")[:] += np.bincount(in_bin, minlength=BINS)
        first = np.flatnonzero(np.diff(in_bin, prepend=-1))
        slowest, row = np.maximum.reduceat(ready - begun, first), self._row("batch_latency_max_ns")
        row[in_bin[first]] = np.maximum(row[in_bin[first]], slowest)
        room = self.window[self.steps : self.steps + len(times)]
        room[:] = times[: len(room), _IN_WINDOW]
        self.steps += len(times)

    def add_reads(self, reader: int, runs: Ints) -> None:
        """Keep one reader's runs of calls, int64 (2, n): begins and ends, if they are among the first of the epoch."""
        begin, end = runs - self.origin
        early = begin < self._reads_until
        if not early.any():
            return
        made = np.stack([np.full(len(begin), reader), begin, end], axis=1)[early]
        reads = np.concatenate([self.reads, made])
        self.reads = reads[np.argsort(reads[:, 1], kind="stable")[:READS]]
        if len(self.reads) == READS:
            self._reads_until = int(self.reads[-1, 1])

    def add_busy(self, intervals: Ints) -> None:
        """Record when at least one reader was in a call: disjoint intervals, int64 (2, n)."""
        if intervals.size:
            begin, end = intervals - self.origin
            self._widen_to(int(end.max()))
            self._add_times("io_busy_ns", begin, end)

    def add_checkpoint(self, begin: int, end: int) -> None:
        """Record a checkpoint after the last step; `begin` and `end` are ns since `origin`."""
        self._widen_to(end)
        self._add_times("checkpoint_ns", np.array([begin]), np.array([end]))

    def early_reads(self) -> Ints:
        """Return the `reads` that began before the last step of the window ended."""
        until = self.window[min(self.steps, WINDOW_STEPS) - 1, -1] if self.steps else 0
        return self.reads[self.reads[:, 1] < until]

    def _row(self, quantity: str) -> Ints:
        row: Ints = self.bins[_ROW[quantity]]
        return row

    def _widen_to(self, time: int) -> None:
        """Widen the bins until they reach a time."""
        powers = max(0, (time >> self.shift).bit_length() - BINS.bit_length() + 1)
        if powers:
            self.bins = widen_bins(self.bins, powers)
            self.shift += powers

    def _add_times(self, quantity: str, begin: Ints, end: Ints) -> None:
        some = end > begin
        if not some.all():
            begin, end = begin[some], end[some]
        if len(begin):
            _, in_bin, since, until = _cut_intervals(begin, end, self.shift)
            self._add(quantity, in_bin, until - since)

    def _add_bytes(self, begin: Ints, end: Ints, amount: Ints) -> None:
        end = np.maximum(end, begin + 1)
        row, in_bin, since, until = _cut_intervals(begin, end, self.shift)
        whole, start, length = amount[row], begin[row], (end - begin)[row]
        # Differences of rounded sums up to each edge, so that the whole bytes of the bins add up to the amount.
        shares = np.rint(whole * ((until - start) / length)) - np.rint(whole * ((since - start) / length))
        self._add("bytes", in_bin, shares)

    def _add(self, quantity: str, in_bin: Ints, amount: Ints | NDArray[np.float64]) -> None:
        # bincount adds in float64: whole numbers, and exact up to 2^53 (ns: 104 days; bytes: 9 PB).
        self._row(quantity)[:] += np.bincount(in_bin, amount, BINS).astype(np.int64)


def widen_bins(bins: Ints, powers: int) -> Ints:
    """Return the bins (`QUANTITIES`, `BINS`), 2^`powers` times as wide; empty bins follow."""
    group = 1 << min(powers, BINS.bit_length() - 1)
    grouped = bins.reshape(len(QUANTITIES), BINS // group, group)
    wide = np.zeros_like(bins)
    wide[:, : BINS // group] = grouped.sum(axis=2)
    wide[-1, : BINS // group] = grouped[-1].max(axis=1)
    return wide


def select_calls(count: int) -> Ints:
    """Return the indices of the calls that `offsets` keeps: all, or a part of `count`.

    The first quarter of `OFFSETS` is contiguous, which shows the order of calls; the rest is evenly chosen.
    """
    if count <= OFFSETS:
        return np.arange(count)
    whole = OFFSETS // 4
    return np.concatenate([np.arange(whole), whole + np.arange(OFFSETS - whole) * (count - whole) // (OFFSETS - whole)])


def _cut_intervals(begin: Ints, end: Ints, shift: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Cut intervals at the edges of bins; return interval, bin, begin and end of each part."""
    first = begin >> shift
    count = (end - 1 >> shift) - first + 1
    row = np.repeat(np.arange(len(begin)), count)
    before = np.cumsum(count) - count
    in_bin = np.arange(len(row)) - (before - first)[row]
    edge = in_bin << shift
    return row, in_bin, np.maximum(begin[row], edge), np.minimum(end[row], edge + (1 << shift))
