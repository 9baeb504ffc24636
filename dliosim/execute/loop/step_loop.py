"""The steps of one epoch of one rank: wait for data, compute, sync, save; and the record of the epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from threading import get_native_id
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.loop.epoch_plan import EpochSource, EpochWork
from dliosim.execute.loop.loop_saves import LoopSaves, StepSync
from dliosim.execute.mpi.distinct_bytes import distinct_bytes
from dliosim.execute.node.compute import (
    core_wait,
    keep_core_busy,
    read_schedstats,
    sleep_until,
    sum_waits,
    wait_between,
)
from dliosim.execute.node.page_cache import process_io_since, read_process_io
from dliosim.execute.phases.context import OpenDataset, Progress, Session
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.records import EpochRecord, SourceRecord
from dliosim.measure.rank.step_times import ROW, PlannedSteps, StepAccount
from dliosim.measure.rank.time_series import select_calls
from dliosim.model import Loop
from dliosim.model.counter_rng import key
from dliosim.plan.samples.io_requests import Calls, Extents
from dliosim.plan.samples.read_ranges import MOST_RANGES, are_reads_distinct, union_ranges
from dliosim.plan.samples.sample_to_file import sample_sizes
from dliosim.plan.samples.sampler import extent_hash, order_hash


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Settings of the steps of an epoch."""

    #: the sync of the loop
    syncer: StepSync
    #: compute keeps the core busy; otherwise it sleeps
    busy: bool
    #: a wait may spin for its last microseconds: there is a core for each rank
    may_spin: bool
    #: read calls are collected after this many steps: each time costs microseconds, once an epoch much memory
    collect_every: int


def run_steps(
    plan: PlannedSteps,
    settings: StepSettings,
    source: EpochSource,
    saves: LoopSaves,
    account: StepAccount,
    progress: Progress,
) -> bool:
    """Run the steps of an epoch; return whether the loop's time is up. Collective.

    If a rank fails, every rank raises its DliosimError at the next sync; if no sync follows, the job ends (see
    `StepSync.fail_all_ranks`).
    """
    # All that a step uses is a local name or an int: looking up attributes, or numpy for one number, would add to the
    # tool's own time in each step. No time is worked out here: readings of the clock are stored for `account`.
    clock, wait, check, tick, store = perf_counter_ns, source.wait, source.check, progress.tick, ROW.pack_into
    arrival, done_bytes, every = plan.arrival, plan.done_bytes, plan.every
    syncer, collect_every, may_spin = settings.syncer, settings.collect_every, settings.may_spin
    timed, deadline, save_steps = saves.timed, saves.deadline, saves.steps
    rows, place, width, full = account.rows, 0, ROW.size, len(account.rows)
    stop, step, started = False, -1, clock()
    account.start(started)
    try:
        # After the clock started: the reads that are ahead of the first step are part of the epoch.
        source.start()
        for step, nominal in enumerate(plan.compute):
            # A new clock reading: between the end of the last step and now were bookkeeping and the progress line,
            # which are the tool's own time.
            came = begun = clock()
            if arrival and (due := started + arrival[step]) > came:
                sleep_until(due, may_spin)
                begun = clock()
            wait(step)
            fetched = asked = computed = clock()
            called, decoded, processed = source.called, source.decoded, source.processed
            check(step)
            if nominal:
                asked = clock()
                if settings.busy:
                    keep_core_busy(nominal)
                else:
                    sleep_until(asked + nominal, may_spin)
                computed = clock()
            if every and (step + 1) % every == 0:
                arrived = clock()
                if timed:
                    saves.mark_due(arrived)
                # `stop` and what is due come from the sync, not from this rank's clock: all ranks must stop and save
                # after the same step, or some would wait forever in the next sync.
                stop = syncer.sync_step(arrived >= deadline)
                ended = after = clock()
            else:
                arrived = ended = after = clock()
                stop = not every and ended >= deadline
            content = 0
            if step in save_steps or (timed and syncer.due.any()):
                syncer.sync_before_save()
                ended = clock()  # waiting for the last rank is no time of storage
                held = saves.save_after_step(step)
                after, deadline = clock(), saves.deadline
                # A training program has its state in memory, so making the contents takes none of the loop's time.
                content = max(after - ended - held, 0)
            store(
                rows,
                place,
                came,
                begun,
                fetched,
                called,
                decoded,
                processed,
                asked,
                computed,
                arrived,
                ended,
                after,
                content,
            )
            place += width
            if place == full:
                account.work_out(full // width)
                place = 0
            if (step + 1) % collect_every == 0:
                # Readers take no lock: this thread collects their clock readings, between two steps.
                source.collect()
            tick(after, step + 1, done_bytes[step])
            if stop:
                break
    except DliosimError as error:
        syncer.fail_all_ranks(error, step, len(plan.compute), save_steps)
    account.work_out(place // width)
    return stop


class KernelCounts:
    """Counts of the kernel in an epoch: bytes that a rank reads, core waits of this thread and the readers.

    `readers` are threads, or `processes`, whose bytes are the rank's.
    """

    def __init__(self, readers: Sequence[int], processes: Sequence[int], saves: CheckpointSession) -> None:
        self._this, self._readers, self._processes, self._saves = [get_native_id()], readers, processes, saves
        self._waited, self._readers_waited = core_wait(self._this), core_wait(readers)
        # Last: core_wait reads /proc, which is counted.
        self._io, self._drained = read_process_io(processes=processes), saves.count_drained_bytes()

    def stop_waits(self) -> None:
        """Stop counting core waits: the steps are over, and what follows does not count as loop time."""
        texts = [read_schedstats(threads) for threads in (self._this, self._readers)]
        self._core_wait = wait_between(self._waited, sum_waits(texts[0]))
        self._readers_core_wait = wait_between(self._readers_waited, sum_waits(texts[1]))
        if self._io is not None:  # the kernel counts what these lines read from /proc, which is no read of the loop
            read = sum(len(text) for found in texts for text in found or ())
            self._io = replace(self._io, called_read=self._io.called_read + read)

    def stop_reads(self) -> None:
        """Stop counting bytes: the epoch reads nothing more."""
        drained = self._saves.count_drained_bytes() - self._drained
        self._read = process_io_since(self._io, drained, processes=self._processes)

    def record_counts(self, record: EpochRecord, loop: Loop, save_core_wait: int) -> None:
        """Add the counts to `record`; `save_core_wait` is the core wait (ns) of this thread in saves."""
        record.core_wait_ns = self._core_wait - save_core_wait if self._core_wait >= 0 else -1
        record.reader_core_wait_ns = self._readers_core_wait
        record.rchar = self._read.called_read if loop.access.counts_reads else -1
        record.read_bytes = self._read.storage_read
        if loop.access.through == "library" and record.rchar >= 0 and not record.null:
            # Only the kernel counts what a library reads in addition to the samples.
            record.bytes_moved = record.rchar


def record_plan(
    session: Session,
    loop: Loop,
    data: OpenDataset,
    work: EpochWork,
    record: EpochRecord,
    latencies: Sequence[Histogram],
) -> None:
    """Add to `record` the hashes of the completed steps, and the distinct bytes that they read. Collective.

    `latencies` are those of the calls of each data set, if there are several.
    """
    dataset = data.dataset
    world, extents, asked, steps = session.world, work.extents, work.stored.extents, record.steps
    # The order hash takes the sizes of the samples themselves, so that it is equal for other formats of the same data.
    length = extents.length.copy()
    # Without I/O, places may be estimates, of a data set like this one.
    datasets = dict(zip([each.first_sample for each in data.places.members], dataset.members, strict=True))
    for member, rows in data.places.split_rows(extents.sample):
        if not (one := datasets[member.first_sample]).source:
            length[rows] = sample_sizes(one, extents.sample[rows] - member.first_sample)
    shown = replace(extents, length=length)
    epoch = record.epoch - 1  # as the plan counts
    record.sources = list(_count_sources(data, shown, extents, record, latencies, world.rank))
    record.order_hash = order_hash(world.rank, shown, 0, steps, epoch, key(record.phase, dataset.name))
    if record.null:
        return
    record.extent_hash = extent_hash(asked, 0, steps, key(record.phase, dataset.digest()))
    done = slice(0, int(asked.step_start[steps]))
    file, begin, length = asked.file[done], asked.offset[done], asked.length[done]
    if are_reads_distinct(loop, data.places, world.size):
        record.distinct_bytes = int(length.sum())
    else:
        known = len(file) <= MOST_RANGES
        record.distinct_bytes = distinct_bytes(world, union_ranges(file, begin, begin + length) if known else None)


def _count_sources(
    data: OpenDataset, shown: Extents, extents: Extents, record: EpochRecord, latencies: Sequence[Histogram], rank: int
) -> Iterator[SourceRecord]:
    """Yield what the completed steps read of each data set, if there are several.

    `shown` are `extents` with the sizes of the samples themselves.
    """
    if not latencies:
        return
    number = data.places.member_of_files(extents.file)
    done = np.arange(len(number)) < extents.step_start[record.steps]
    for one, (member, latency) in enumerate(zip(data.places.members, latencies, strict=False)):
        rows = done & (number == one)
        own = shown.select(rows)
        own = replace(own, sample=own.sample - member.first_sample)
        name = member.places.dataset.name
        hashed = order_hash(rank, own, 0, record.steps, record.epoch - 1, key(record.phase, name))
        yield SourceRecord(name, len(own.sample), int(extents.length[rows].sum()), hashed, latency)


def call_offsets(calls: Calls, steps: int) -> NDArray[np.int64]:
    """Return step, file and offset (bytes) of a selection of calls of the first `steps` steps; shape (n, 3)."""
    row = select_calls(int(calls.step_start[steps]))
    step = np.searchsorted(calls.step_start, row, "right") - 1
    return np.column_stack([step, calls.file[row], calls.offset[row]])
