"""The steps of one epoch of one rank: wait for data, compute, sync; and the time of each part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError
from dliosim.execute.context import Progress
from dliosim.execute.loop.checkpoint_timers import CheckpointTimers
from dliosim.execute.loop.step_sync import StepSync
from dliosim.execute.node.compute import keep_core_busy, sleep_until
from dliosim.measure.meter import MeterGroup
from dliosim.measure.records import CAUSES, EpochRecord, StepBlock, pack_arrival
from dliosim.measure.time_series import MARKS, EpochSeries

_STORAGE, _COMPUTE, _TOOL, _ARRIVALS, _DECODE = range(len(CAUSES))

#: The calls of this many samples, and this many steps, enter histograms and bins at a time. One step at a time would
#: cost microseconds a numpy call; all at the end would take much memory (300 bytes for the marks of a step).
_FLUSH_SAMPLES, _FLUSH_STEPS = 16384, 1024


class BatchSource(Protocol):
    """The batches of an epoch in the order of steps, as `epoch_plan.EpochSource` gives them."""

    #: the meters of all readers
    meters: MeterGroup
    #: as `Batches.reading`
    reading: list[int]
    #: as `Batches.called`, ns
    called: int
    #: as `Batches.processed`, ns
    processed: int

    def start(self) -> None:
        """Start the reads that are ahead of the steps, if there are any."""
        ...

    def wait(self, step: int) -> int:
        """Wait for the batch of a step; return the bytes of its samples, those from `cache memory` included."""
        ...

    def check(self, step: int) -> None:
        """Raise ExecutionError if the batch of a step does not hold what was written."""
        ...


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The parts of an epoch's steps other than reading: compute, arrivals, syncs and saves."""

    #: number of steps
    steps: int
    #: compute of each step, ns
    compute: Sequence[int]
    #: compute keeps the core busy; otherwise it sleeps
    busy: bool
    #: arrival of each request, ns from the start of the first step; empty for closed loops
    arrival: Sequence[int]
    #: the sync of the loop
    syncer: StepSync
    #: the steps (from 0) after which checkpoints by steps are saved
    saves: frozenset[int]
    #: saves the checkpoints that are due after a step; returns the ns that making their contents took
    save: Callable[[int], int]
    #: the loop stops at the first sync, or without syncs at the first step end, after this perf_counter_ns; None: never
    deadline: int | None
    #: a wait may spin for its last microseconds: there is a core for each rank
    may_spin: bool
    #: timers of the checkpoints by seconds
    timers: CheckpointTimers
    #: returns when saves ran in the background since a clock reading: begins and ends, perf_counter_ns, shape (n, 2)
    flush_intervals: Callable[[int], NDArray[np.int64]]


@dataclass(slots=True)
class _StepTimes:
    """Lists that the loop appends to; separate from the record, so that the loop accesses few attributes."""

    #: `time_series.MARKS` of each step, one step after the other
    marks: list[int] = field(default_factory=list)
    #: latency of each request, ns
    requests: list[int] = field(default_factory=list)
    #: one `pack_arrival` a sync
    arrivals: list[int] = field(default_factory=list)


def run_steps(
    plan: StepPlan,
    source: BatchSource,
    row_count: Sequence[int],
    record: EpochRecord,
    series: EpochSeries,
    progress: Progress,
) -> bool:
    """Run the steps of an epoch, fill `record` and `series`; return whether the loop's time is up. Collective.

    `row_count` has the samples of each step. If a rank fails, every rank raises its DliosimError at the next sync;
    where no sync follows, the job ends (see `StepSync.fail_all_ranks`).
    """
    # All that a step uses is a local name or an int: looking up attributes, or numpy for one number, would add to the
    # tool's own time in each step.
    clock, wait, check, tick = perf_counter_ns, source.wait, source.check, progress.tick
    compute_times, syncer, saves, deadline = plan.compute, plan.syncer, plan.saves, plan.deadline
    rank, every, timers = syncer.rank, syncer.every, plan.timers
    timed = bool(timers.cadences)
    times = _StepTimes()
    marks, last_arrival = times.marks, times.arrivals
    stop = False
    samples = moved = 0
    flush_at, most_marks = _FLUSH_SAMPLES, _FLUSH_STEPS * len(MARKS)
    compute_ns = nominal_ns = sync_ns = checkpoint_ns = oversleep = arrival_ns = processing_ns = content_ns = 0
    first_end = first_samples = first_checkpoint = 0
    block = _BlockClock()
    # Times since the last sync: a rank's lateness at a sync is the sum over the steps before it.
    waited_for_data = processing = computing = idling = 0
    started = before = met = clock()
    series.origin = started
    step = -1
    try:
        # After the clock started: the reads that are ahead of the first step are part of the epoch.
        source.start()
        for step in range(plan.steps):
            # A new clock reading: between the end of the last step and now were bookkeeping and the progress line,
            # which are the tool's own time.
            begun = clock()
            idle = 0
            if plan.arrival:
                due = started + plan.arrival[step]
                if due > begun:
                    sleep_until(due, plan.may_spin)
                    idle = clock() - begun
                    begun += idle
                    arrival_ns += idle
            moved += wait(step)
            # Two parts of this wait are no wait for data: decoding on this thread (`processed`), and all that readers
            # did between their calls, which is the tool's own work. So the data wait is at most `called`.
            processed = clock()
            processed_ns, called = source.processed, source.called
            data_wait = processed - processed_ns - begun
            if called < data_wait:
                data_wait = called
            ready = begun + data_wait
            processing_ns += processed_ns
            check(step)
            nominal = compute_times[step]
            if nominal:
                asked = clock()
                if plan.busy:
                    keep_core_busy(nominal)
                else:
                    sleep_until(asked + nominal, plan.may_spin)
                computed = clock()
                spent = computed - asked
                oversleep += spent - nominal
            else:
                asked = computed = processed
                spent = 0
            compute_ns += spent
            samples += row_count[step]
            waited_for_data += data_wait
            processing += processed_ns
            computing += spent
            idling += idle
            if plan.arrival:
                # Without the tool's own work and the check of the contents: storage does not cause them.
                times.requests.append(ready + processed_ns + spent - due)
            if every and (step + 1) % every == 0:
                arrived = clock()
                over = deadline is not None and arrived >= deadline
                if timed:
                    timers.mark_due(syncer.due, arrived)
                # `stop` and `due` come from the sync, not from this rank's clock: all ranks must stop and save after
                # the same step, or some would wait forever in the next sync.
                stop = syncer.sync_step(over)
                after = clock()
                waited = after - arrived
                sync_ns += waited
                tool = arrived - met - waited_for_data - processing - computing - idling
                # The cause must be known now: `pack_arrival` packs it with the wait, and the minimum over ranks names
                # the last rank and its cause.
                cause = _find_cause(waited_for_data, computing, tool, idling, processing)
                last_arrival.append(pack_arrival(waited, rank, cause))
                waited_for_data = processing = computing = idling = 0
                met = after
            else:
                arrived = after = clock()
                if not every and deadline is not None:
                    stop = after >= deadline
            synced = after
            block.step(processed - begun + spent, spent)
            held = after
            if step in saves or (timed and syncer.due.any()):
                block.end(after, record.blocks)
                content = plan.save(step)
                saved = clock()
                checkpoint_ns += saved - after
                content_ns += content
                # A training program has its state in memory, so making the contents takes none of the loop's time.
                if deadline is not None:
                    deadline += content
                met += saved - after
                after = saved
                held = saved - content
                block.begin(after)
            if step == 0:
                first_end, first_samples, first_checkpoint = after, samples, checkpoint_ns
            else:
                nominal_ns += nominal
            before = after
            # One flat list for all marks: one extension a step, and one conversion to an array in `_record_steps`.
            marks += (begun, ready, asked, computed, arrived, synced, held, moved)
            if len(marks) >= most_marks:
                _record_steps(times, source, record, series, plan.flush_intervals)
            if samples >= flush_at:
                # Readers take no lock: this thread collects their clock readings, between two steps.
                flush_at = samples + _FLUSH_SAMPLES
                record.io_busy_ns += source.meters.collect_busy(record.call_latency, series)
            tick(after, step + 1, moved)
            if stop:
                break
    except DliosimError as error:
        syncer.fail_all_ranks(error, step, plan.steps, saves)
    block.end(before, record.blocks)
    _record_steps(times, source, record, series, plan.flush_intervals)
    record.last_arrival = np.concatenate([record.last_arrival, np.array(times.arrivals, np.int64)])
    record.steps = step + 1
    record.samples, record.bytes = samples, moved
    record.wall_ns = before - started - content_ns
    record.steady_ns = before - first_end - (checkpoint_ns - first_checkpoint)
    record.checkpoint_ns, record.content_ns = checkpoint_ns - content_ns, content_ns
    record.nominal_ns = nominal_ns
    record.steady_samples = samples - first_samples
    record.compute_ns, record.sync_wait_ns, record.oversleep_ns = compute_ns, sync_ns, oversleep
    record.arrival_wait_ns, record.processing_ns = arrival_ns, processing_ns
    return stop


def _find_cause(data_wait: int, compute: int, tool: int, idle: int, processing: int) -> int:
    """Return the index into `CAUSES` of the largest time since the last sync; all times in ns."""
    most = max(data_wait, compute, tool, idle, processing)
    if most == data_wait:
        return _STORAGE
    if most == compute:
        return _COMPUTE
    if most == processing:
        return _DECODE
    return _TOOL if most == tool else _ARRIVALS


def _record_steps(
    times: _StepTimes,
    source: BatchSource,
    record: EpochRecord,
    series: EpochSeries,
    flush_intervals: Callable[[int], NDArray[np.int64]],
) -> None:
    marks = _pop_values(times.marks).reshape(-1, len(MARKS))
    waits = marks[:, 1] - marks[:, 0]
    record.data_wait_ns += int(waits.sum())
    record.batch_latency.add(waits)
    record.request_latency.add(_pop_values(times.requests))
    # Without the epoch's first step: much of its time is spent on work that no other step has.
    _sum_flush_steps(marks[1:] if series.steps == 0 else marks, flush_intervals, record)
    series.add_steps(marks, _pop_values(source.reading).reshape(-1, 2))


def _sum_flush_steps(
    marks: NDArray[np.int64], flush_intervals: Callable[[int], NDArray[np.int64]], record: EpochRecord
) -> None:
    """Add up the steps during which a save ran in the background, and those without one; `marks` (steps, 8)."""
    if not len(marks):
        return
    begun, ready, synced = marks[:, 0], marks[:, 1], marks[:, 5]
    flushed = overlap_mask(begun, synced, flush_intervals(int(begun[0])))
    lasted, waited = synced - begun, ready - begun
    count, total, wait = (int(each.sum()) for each in (flushed, lasted[flushed], waited[flushed]))
    record.flush_steps += count
    record.flush_steps_ns += total
    record.flush_data_wait_ns += wait
    record.clear_steps += len(marks) - count
    record.clear_steps_ns += int(lasted.sum()) - total
    record.clear_data_wait_ns += int(waited.sum()) - wait


def overlap_mask(begin: NDArray[np.int64], end: NDArray[np.int64], intervals: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask (m,) of the times from `begin` to `end`, both (m,), that overlap any of `intervals` (n, 2).

    Times and intervals may overlap each other, in any order.
    """
    begun = np.searchsorted(np.sort(intervals[:, 0]), end, "left")
    ended = np.searchsorted(np.sort(intervals[:, 1]), begin, "right")
    return np.asarray(begun > ended)


def _pop_values(values: list[int]) -> NDArray[np.int64]:
    taken = np.fromiter(values, np.int64, len(values))
    values.clear()
    return taken


class _BlockClock:
    """Clock of the steps between two checkpoints, for the figures that DLIO computes of them."""

    def __init__(self) -> None:
        self.begin(perf_counter_ns())

    def begin(self, now: int) -> None:
        self._since, self._steps, self._first, self._compute = now, 0, 0, 0

    def step(self, busy_ns: int, compute_ns: int) -> None:
        self._steps += 1
        if self._steps == 1:
            self._first = busy_ns
        else:
            self._compute += compute_ns

    def end(self, now: int, blocks: list[StepBlock]) -> None:
        if self._steps:
            blocks.append(StepBlock(self._steps, now - self._since, self._first, self._compute))
