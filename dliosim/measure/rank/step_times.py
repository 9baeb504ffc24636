"""Times of steps: a loop stores the clock readings of each step, and whole arrays of them are evaluated afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.records import CAUSES, LOGGED, EpochRecord, StepBlock, pack_arrivals
from dliosim.measure.rank.time_series import EpochSeries
from dliosim.measure.reducer import Ints
from dliosim.trace.recorder import recorder


def split_waits(waited: Ints, called: Ints, decoded: Ints, extra: Ints | None) -> tuple[Ints, Ints]:
    """Return the waits of steps for storage, and those for readers that decode, (steps,) each.

    `waited` are the measured waits for data, `called` and `decoded` the readers' times for the same batch. Readers also
    read in the `extra` time of a step, in which the tool, a sync or a late wake-up held it. Without it, a step that
    waited for its batch would have waited that much longer, but no longer than its batch took. A step that did not wait
    had its batch early, and has no wait. `extra` is None if the steps read by themselves.

    The wait that remains with storage that takes no time is the wait for decoding; the rest is the wait for storage.
    """
    if extra is None:
        return waited, np.zeros_like(waited)
    needed = np.where(waited > 0, np.minimum(waited + np.maximum(extra, 0), called + decoded), 0)
    storage = np.minimum(needed, called)
    return storage, needed - storage


def align_syncs(rows: Ints) -> Ints:
    """Return rows of `EpochRecord.storage_ns` whose third column, minus clock readings, is from an origin of all ranks.

    Clocks of nodes differ. The origin is therefore the end that the first sync would have had if this rank had always
    left a sync as early, compared with the others, as it ever did. So a rank that left the first sync late does not
    count from that time.
    """
    left = -rows[:-1, 2]
    if len(left) > 1:
        even = (left[-1] - left[0]) * np.arange(len(left)) // (len(left) - 1)
        rows[:-1, 2] = (left - even).min() - left
    else:
        rows[:-1, 2] = 0
    return rows


def limit_steps(rows: Ints) -> Ints:
    """Return the first two columns of `EpochRecord.storage_ns` over all ranks, (syncs + 1, 2), from all three.

    Ranks leave a sync at different times, some of them late for lack of a core. So the longest step of any rank may be
    longer than the step of the job, which lasts from the first rank that left the previous sync to the first one that
    left this sync.
    """
    times = rows[:, :2].copy()
    lasted = -np.diff(rows[:-1, 2])
    times[1:-1, 1] = np.maximum(np.minimum(times[1:-1, 1], lasted), times[1:-1, 0])
    return np.asarray(times)


#: Values that a loop stores of each step, in ns: clock readings, and `called`, `decoded`, `processing` and `content`.
#: came: the step begins; begun: its request has arrived; fetched: its batch is in memory and decoded; called: its
#: readers were inside calls for that long; decoded: reader threads decoded and preprocessed it for that long;
#: processing: so did this thread; content: the part of a save, between sync_ended and saved, that made contents.
READINGS = (
    "came", "begun", "fetched", "called", "decoded", "processing", "compute_begun", "compute_ended", "sync_begun",
    "sync_ended", "saved", "content",
)  # fmt: skip

#: Writes the `READINGS` of one step into the memory of an array, faster than numpy assigns to a row.
ROW = Struct(f"{len(READINGS)}q")

#: Steps that are worked out at a time. One at a time would cost microseconds a numpy call, all of them much memory.
AT_ONCE = 1024

_LOGGED = [READINGS.index(name) for name in LOGGED]

# In the order in which the first of equal times is the cause.
_CAUSE_ORDER = np.array([CAUSES.index(cause) for cause in ("storage", "compute", "decode", "tool", "arrivals")])


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """The steps of an epoch of one rank as they are planned, one entry a step."""

    #: number of samples, (steps,)
    samples: Ints
    #: bytes of the samples of all steps up to this one
    done_bytes: Sequence[int]
    #: compute, ns
    compute: Sequence[int]
    #: arrival of the step's request, ns from the start of the first step; empty for closed loops
    arrival: Sequence[int]
    #: a sync follows each step whose number (from 1) is a multiple of this; 0 for none
    every: int
    #: True if reader threads read batches while steps run
    ahead: bool


class StepTimes:
    """Times of consecutive steps, in ns, from their `READINGS` (steps, 12) and the end of the step before them.

    A step lasts from the end of the one before it, so that the sum of all parts is the wall time.
    """

    def __init__(self, readings: Ints, before: int) -> None:
        came, self.begun, self.fetched, self.called, self.decoded, self.processing, *others = readings.T
        self.asked, self.computed, self.arrived, self.synced, self.saved, self.content = others
        #: waiting for a request to arrive
        self.idle = self.begun - came
        #: from the start of the wait for the batch until it is decoded
        self.fetch = self.fetched - self.begun
        #: waiting for data: no longer than the wait, and no longer than calls and decoding by readers took
        self.data_wait = np.minimum(self.called + self.decoded, self.fetch - self.processing)
        self.compute = self.computed - self.asked
        self.sync_wait = self.synced - self.arrived
        #: held by a checkpoint, without making its contents
        self.checkpoint = self.saved - self.synced - self.content
        #: the whole step without its checkpoint
        self.whole = self.synced - np.append(before, self.saved[:-1])
        #: the rest: the tool's own work
        self.tool = self.whole - self.idle - self.data_wait - self.processing - self.compute - self.sync_wait

    @property
    def candidates(self) -> Ints:
        """Return the times that may be the cause of coming last to a sync, (steps, 5), as `find_causes` takes them."""
        return np.stack([self.data_wait, self.compute, self.processing, self.tool, self.idle], axis=1)

    def blocks(self, fresh: bool) -> Ints:
        """Return what each step adds to the `StepBlock` that it is in, (steps, 4); `fresh`: the first begins one."""
        first = np.append(fresh, self.saved[:-1] > self.synced[:-1])
        busy = np.where(first, self.fetch + self.compute, 0)
        return np.stack([np.ones_like(self.whole), self.whole, busy, np.where(first, 0, self.compute)], axis=1)


def find_causes(times: Ints) -> Ints:
    """Return the indices into `CAUSES` of the longest times in rows of `StepTimes.candidates`."""
    causes: Ints = _CAUSE_ORDER[times.argmax(axis=1)]
    return causes


def sum_groups(rows: Ints, ends: NDArray[np.bool_], carried: Ints) -> tuple[Ints, Ints]:
    """Return the sums of groups of rows (groups, n), and the sum of the rows after the last group (n,).

    A group ends with each row of `ends`; `carried` (n,) is the sum of rows before these, which the first group has too.
    """
    sums = np.cumsum(rows, axis=0) + carried
    groups = np.diff(sums[ends], axis=0, prepend=np.zeros((1, rows.shape[1]), np.int64))
    return groups, sums[-1] - groups.sum(axis=0)


def overlap_mask(begin: Ints, end: Ints, intervals: Ints) -> NDArray[np.bool_]:
    """Return a mask (m,) of the times from `begin` to `end`, both (m,), that overlap any of `intervals` (n, 2).

    Times and intervals may overlap each other, in any order.
    """
    begun = np.searchsorted(np.sort(intervals[:, 0]), end, "left")
    ended = np.searchsorted(np.sort(intervals[:, 1]), begin, "right")
    return np.asarray(begun > ended)


class StepAccount:
    """Works out the steps of one epoch of one rank, `AT_ONCE` at a time, for its record and its series."""

    def __init__(
        self,
        plan: PlannedSteps,
        rank: int,
        series: EpochSeries,
        reading: list[int],
        flush_intervals: Callable[[int], Ints],
    ) -> None:
        """Begin an epoch whose read calls are in `series` and `reading`, as in `Batches.reading`.

        `flush_intervals` returns when saves ran in the background since a clock reading: begins and ends, shape (n, 2).
        """
        #: memory of the `READINGS` of steps, for `ROW`
        self.rows = memoryview(bytearray(AT_ONCE * ROW.size))
        self.steps = 0
        #: `LOGGED` readings of the steps, (n, 6) each; None if they are not kept
        self.log: list[Ints] | None = None
        #: clock reading at the start of the epoch, ns
        self.started = 0
        self._plan, self._rank = plan, rank
        self._series, self._reading, self._flush_intervals = series, reading, flush_intervals
        self._batch_latency, self._request_latency = Histogram(), Histogram()
        self._total: dict[str, int] = {}
        self._blocks: list[StepBlock] = []
        self._arrivals: list[Ints] = []
        self._since_sync, self._block = np.zeros(5, np.int64), np.zeros(4, np.int64)
        self._storage: list[Ints] = []
        self._storage_since_sync = np.zeros(2, np.int64)

    def start(self, now: int) -> None:
        """Start the epoch's clock."""
        self._series.origin = self.started = self._ended = now

    def work_out(self, count: int) -> None:
        """Add the first `count` steps of `rows`, which follow those added before."""
        if not count:
            return
        plan = self._plan
        readings = np.frombuffer(self.rows, np.int64).reshape(-1, len(READINGS))[:count]
        if self.log is not None:
            self.log.append(readings[:, _LOGGED])
        times = StepTimes(readings, self._ended)
        self._ended = int(times.saved[-1])
        steps = slice(self.steps, self.steps + count)
        self._batch_latency.add(times.data_wait)
        if plan.arrival:
            # Without the tool's own work and the check of the contents: storage does not cause them.
            answered = times.begun + times.data_wait + times.processing + times.compute
            self._request_latency.add(answered - np.array(plan.arrival[steps]) - self.started)
        numbers = np.arange(steps.start + 1, steps.stop + 1)
        synced = numbers % plan.every == 0 if plan.every else np.zeros(count, np.bool_)
        sums, self._since_sync = sum_groups(times.candidates, synced, self._since_sync)
        self._arrivals.append(pack_arrivals(times.sync_wait[synced], self._rank, find_causes(sums)))
        blocks, self._block = sum_groups(times.blocks(not self._block[0]), times.saved > times.synced, self._block)
        self._blocks += [StepBlock(*block) for block in blocks.tolist()]
        storage, self._storage_since_sync = sum_groups(
            self._storage_rows(times, steps), synced, self._storage_since_sync
        )
        self._storage.append(np.column_stack([storage, -times.synced[synced]]))
        self._add_totals(times)
        ready, done = times.begun + times.data_wait, np.array(plan.done_bytes[steps])
        held = times.synced + times.checkpoint
        columns = [times.begun, ready, times.asked, times.computed, times.arrived, times.synced, held, done]
        reading = np.array(self._reading, np.int64).reshape(-1, 2)
        self._reading.clear()
        self._series.add_steps(np.stack(columns, axis=1), reading)
        if (trace := recorder()) is not None:
            trace.add_steps(
                {
                    "data wait": (times.begun, ready),
                    "compute": (times.asked, times.computed),
                    "sync": (times.arrived, times.synced),
                    "save": (times.synced, held),
                }
            )
        self.steps += count

    def _storage_rows(self, times: StepTimes, steps: slice) -> Ints:
        """Return how long each step would take with storage that needs no time, and with this one, (steps, 2).

        0 for the epoch's first step.
        """
        compute, extra = np.array(self._plan.compute[steps]), None
        if self._plan.ahead:
            # Of the same step, not of the one before its wait: so no rank's step gets longer than it was.
            extra = times.whole - times.data_wait - times.processing - compute
        storage, decoding = split_waits(times.data_wait, times.called, times.decoded, extra)
        least = compute + times.processing + decoding
        rows = np.stack([least, least + storage], axis=1)
        if self.steps == 0:
            rows[0] = 0
        return rows

    def _add_totals(self, times: StepTimes) -> None:
        # Without the epoch's first step: much of its time is spent on work that no other step has.
        later = slice(1 if self.steps == 0 else 0, None)
        begun, synced, waited = times.begun[later], times.synced[later], times.data_wait[later]
        intervals = self._flush_intervals(int(begun[0])) if len(begun) else np.empty((0, 2), np.int64)
        flushed = overlap_mask(begun, synced, intervals)
        total = {
            "loop_ns": times.whole,
            "steady_ns": times.whole[later],
            "data_wait_ns": times.data_wait,
            "processing_ns": times.processing,
            "compute_ns": times.compute,
            "arrival_wait_ns": times.idle,
            "sync_wait_ns": times.sync_wait,
            "checkpoint_ns": times.checkpoint,
            "content_ns": times.content,
        }
        for name, those in ("flush", flushed), ("clear", ~flushed):
            total[f"{name}_steps"] = those
            total[f"{name}_steps_ns"] = (synced - begun)[those]
            total[f"{name}_data_wait_ns"] = waited[those]
        for name, column in total.items():
            self._total[name] = self._total.get(name, 0) + int(column.sum())

    def make_record(self, phase: int, epoch: int, batch: int, null: bool) -> EpochRecord:
        """Return the record of the epoch from its steps; `batch` is 0 if they read nothing."""
        record = EpochRecord(phase, epoch, batch, null, self.steps)
        total, steps, plan = self._total, self.steps, self._plan
        record.wall_ns = total.pop("loop_ns") + total["checkpoint_ns"]
        for name, sum_ns in total.items():
            setattr(record, name, sum_ns)
        samples, nominal = plan.samples[:steps], plan.compute[:steps]
        record.samples, record.steady_samples = int(samples.sum()), int(samples[1:].sum())
        record.bytes, record.nominal_ns = plan.done_bytes[steps - 1], sum(nominal[1:])
        record.steady_bytes = record.bytes - plan.done_bytes[0]
        record.oversleep_ns = record.compute_ns - sum(nominal)
        if batch:
            record.batch_latency, record.request_latency = self._batch_latency, self._request_latency
        record.last_arrival = np.concatenate(self._arrivals)
        record.storage_ns = align_syncs(np.concatenate([*self._storage, [[*self._storage_since_sync, 0]]]))
        record.blocks = self._blocks + ([StepBlock(*self._block.tolist())] if self._block[0] else [])
        return record
