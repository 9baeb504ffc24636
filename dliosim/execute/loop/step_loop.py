"""The steps of one epoch of one rank: wait for data, compute, wait for the others; and what each took."""

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

#: Calls of so many samples, and so many steps, are put into histograms and bins at a time: numpy costs microseconds a
#: call, and lists take much memory (the marks of a step 300 bytes).
_FLUSH_SAMPLES, _FLUSH_STEPS = 16384, 1024


class BatchSource(Protocol):
    """Where the batches of an epoch come from, in the order of steps; see `epoch_plan.EpochSource`.

    `reading`, `called` and `processed` are those of `Batches`.
    """

    meters: MeterGroup
    reading: list[int]
    called: int
    processed: int

    def start(self) -> None:
        """Begin to read ahead, if anything is."""
        ...

    def wait(self, step: int) -> int:
        """Wait for the batch of a step and give the bytes that its calls returned (kept ones included)."""
        ...

    def check(self, step: int) -> None:
        """Raise ExecutionError if the batch of a step does not hold what was written."""
        ...


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the steps of an epoch do besides reading. Times in ns, one entry a step.

    `arrival` holds when each request arrives, counted from the first step's start, or is empty. `save` runs the
    checkpoints due after a step of `saves`, or after a sync that `syncer.due` says so of; it returns how long making
    their contents took. `deadline` is the perf_counter_ns at which the loop stops at its next boundary. `beside` tells
    when saves were in the background since a clock reading: begins and ends, (n, 2).
    """

    steps: int
    compute: Sequence[int]
    busy: bool
    arrival: Sequence[int]
    syncer: StepSync
    saves: frozenset[int]
    save: Callable[[int], int]
    deadline: int | None
    may_spin: bool
    timers: CheckpointTimers
    beside: Callable[[int], NDArray[np.int64]]


@dataclass(slots=True)
class _StepTimes:
    """What the loop adds up; kept apart from the record so that the loop touches few attributes.

    `marks` has those of `series.MARKS` for each step.
    """

    marks: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)


def run_steps(
    course: StepPlan,
    source: BatchSource,
    row_count: Sequence[int],
    record: EpochRecord,
    series: EpochSeries,
    progress: Progress,
) -> bool:
    """Run the steps of an epoch into `record` and `series`; return whether the loop's time is up.

    `row_count` has the samples of each step. Raises DliosimError on every rank if one fails where a sync is due, and
    ends the job where none is (see `StepSync.fail_all_ranks`).
    """
    clock, wait, check, tick = perf_counter_ns, source.wait, source.check, progress.tick
    compute_times, syncer, saves, deadline = course.compute, course.syncer, course.saves, course.deadline
    rank, every, timers = syncer.rank, syncer.every, course.timers
    timed = bool(timers.cadences)
    times = _StepTimes()
    marks, last_arrival = times.marks, times.arrivals
    stop = False
    samples = moved = 0
    flush_at, most_marks = _FLUSH_SAMPLES, _FLUSH_STEPS * len(MARKS)
    compute_ns = nominal_ns = sync_ns = checkpoint_ns = oversleep = arrival_ns = processing_ns = content_ns = 0
    first_end = first_samples = first_checkpoint = 0
    block = _BlockClock()
    # Since the last sync: lateness adds up over the steps between two.
    waited_for_data = processing = computing = idling = 0
    started = before = met = clock()
    series.origin = started
    step = -1
    try:
        source.start()
        for step in range(course.steps):
            # Not the end of the step before: the bookkeeping and the progress line in between are the tool's own time.
            begun = clock()
            idle = 0
            if course.arrival:
                due = started + course.arrival[step]
                if due > begun:
                    sleep_until(due, course.may_spin)
                    idle = clock() - begun
                    begun += idle
                    arrival_ns += idle
            moved += wait(step)
            # Who reads its data itself then decodes them itself, and that is no waiting. Nor is what was done between
            # calls: the tool's own work.
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
                if course.busy:
                    keep_core_busy(nominal)
                else:
                    sleep_until(asked + nominal, course.may_spin)
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
            if course.arrival:
                # Without the tool's own work and the check of its contents, which are none of the storage's doing.
                times.requests.append(ready + processed_ns + spent - due)
            if every and (step + 1) % every == 0:
                arrived = clock()
                over = deadline is not None and arrived >= deadline
                if timed:
                    timers.mark_due(syncer.due, arrived)
                stop = syncer.sync_step(over)
                after = clock()
                waited = after - arrived
                sync_ns += waited
                tool = arrived - met - waited_for_data - processing - computing - idling
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
                content = course.save(step)
                saved = clock()
                checkpoint_ns += saved - after
                content_ns += content
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
            marks += (begun, ready, asked, computed, arrived, synced, held, moved)
            if len(marks) >= most_marks:
                _record_steps(times, source, record, series, course.beside)
            if samples >= flush_at:
                flush_at = samples + _FLUSH_SAMPLES
                record.io_busy_ns += source.meters.collect_busy(record.call_latency, series)
            tick(after, step + 1, moved)
            if stop:
                break
    except DliosimError as error:
        syncer.fail_all_ranks(error, step, course.steps, saves)
    block.end(before, record.blocks)
    _record_steps(times, source, record, series, course.beside)
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
    """What a rank had spent most of its time on since the last sync."""
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
    beside: Callable[[int], NDArray[np.int64]],
) -> None:
    marks = _pop_values(times.marks).reshape(-1, len(MARKS))
    waits = marks[:, 1] - marks[:, 0]
    record.data_wait_ns += int(waits.sum())
    record.batch_latency.add(waits)
    record.request_latency.add(_pop_values(times.requests))
    # Of the first step much is spent on what no other has.
    _sum_flush_steps(marks[1:] if series.steps == 0 else marks, beside, record)
    series.add_steps(marks, _pop_values(source.reading).reshape(-1, 2))


def _sum_flush_steps(marks: NDArray[np.int64], beside: Callable[[int], NDArray[np.int64]], record: EpochRecord) -> None:
    """Add up steps that had a save in the background beside them, and those that had none."""
    if not len(marks):
        return
    begun, ready, synced = marks[:, 0], marks[:, 1], marks[:, 5]
    flushed = overlap_mask(begun, synced, beside(int(begun[0])))
    lasted, waited = synced - begun, ready - begun
    count, total, wait = (int(each.sum()) for each in (flushed, lasted[flushed], waited[flushed]))
    record.flush_steps += count
    record.flush_steps_ns += total
    record.flush_data_wait_ns += wait
    record.clear_steps += len(marks) - count
    record.clear_steps_ns += int(lasted.sum()) - total
    record.clear_data_wait_ns += int(waited.sum()) - wait


def overlap_mask(begin: NDArray[np.int64], end: NDArray[np.int64], intervals: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the times from `begin` to `end` have a part of any interval (n, 2) in them; all of them may overlap."""
    begun = np.searchsorted(np.sort(intervals[:, 0]), end, "left")
    ended = np.searchsorted(np.sort(intervals[:, 1]), begin, "right")
    return np.asarray(begun > ended)


def _pop_values(values: list[int]) -> NDArray[np.int64]:
    taken = np.fromiter(values, np.int64, len(values))
    values.clear()
    return taken


class _BlockClock:
    """Steps between two checkpoints, for the figures that DLIO makes of them."""

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
