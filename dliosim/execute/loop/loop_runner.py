"""Train, evaluate and infer: loops that run, with their files and threads, their epochs, and their results."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.execute.batches.decode_preprocess import EpochCalls, SampleCache
from dliosim.execute.batches.prefetch import Batches
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.checkpoints.save_steps import CheckpointSave
from dliosim.execute.loop.epoch_plan import EpochSource, EpochWork, make_processor, plan_work
from dliosim.execute.loop.loop_data import open_loop_data
from dliosim.execute.loop.loop_saves import NEVER, LoopSaves
from dliosim.execute.loop.step_loop import KernelCounts, StepSettings, call_offsets, record_plan, run_steps
from dliosim.execute.node.memory import available_memory
from dliosim.execute.phases.context import Phase, RunningLoop, Session, share_granted_hints
from dliosim.execute.phases.residency import Residency
from dliosim.measure.figures.summary import RANK_COLUMNS, gather_ranks, rank_row, summarise
from dliosim.measure.figures.timeline import gather_timeline, has_offsets, keep_epoch
from dliosim.measure.rank.records import EpochRecord, LoggedEpoch
from dliosim.measure.rank.step_times import PlannedSteps, StepAccount
from dliosim.measure.rank.time_series import EpochSeries
from dliosim.measure.results.phase import LoopPhase
from dliosim.model import Loop
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import count_due, is_due
from dliosim.plan.forecast.rank_memory import rank_buffers, reader_bytes
from dliosim.plan.samples.read_ranges import buffer_bytes
from dliosim.trace.recorder import recorder

if TYPE_CHECKING:
    from dliosim.measure.figures.epoch_summaries import EpochSummary

_WALL, _RCHAR = RANK_COLUMNS.index("wall_ns"), RANK_COLUMNS.index("rchar")

#: Read calls that enter histograms, bins and a trace at a time: those of one step at least.
_COLLECTED_CALLS = 16384


class LoopRunner:
    """A loop that runs: its open files and threads, its cached samples, and its results so far.

    All methods are collective, and raise the same DliosimError on every rank.
    """

    def __init__(self, session: Session, manager: CheckpointSession, loop: Loop, salt: int, timed: bool) -> None:
        """Look for the data of a loop; its files are opened with its first epoch.

        `salt` distinguishes the hashes of this loop from those of other loops of the run. With `timed` the loop leaves
        a timeline.
        """
        self._session, self._manager, self._loop = session, manager, loop
        self._salt, self._timed = salt, timed
        self._read = open_loop_data(session, loop)
        self._batches: Batches | None = None  # threads, open files and buffers, from the first epoch on
        #: the checkpoints that the loop saves, its sync, and the end of its time
        self.saves = LoopSaves(session, manager, loop)
        self._kept = SampleCache()
        # The share of the examined pages that were resident before the loop; None if none were examined.
        self._resident: float | None = None
        self._free_memory: int | None = None
        self._cache_notes: tuple[str, ...] = ()
        self._buffer_size = 0
        self._rows: list[NDArray[np.int64]] = []  # a row of `RANK_COLUMNS` for each epoch
        self._epochs: list[EpochSummary] = []  # on rank 0 only
        self._series: dict[int, EpochSeries] = {}  # by epoch, those that the timeline keeps

    def _take_copy(self, epoch: int) -> None:
        """Read the copy on this node from `epoch` (from 1) on, if all nodes have theirs now."""
        if (copy := self._read.find_copy()) is not None:
            self._close_batches()
            self._read = self._read.read_from([copy], epoch)
            self.look_at_cache()

    def _close_batches(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = self.saves.run = None

    def look_at_cache(self) -> None:
        """Measure how much of the data is in the page cache, before the first epoch."""
        self._note_residency(self._read.measure_residency())

    def _drop_pages(self, number: int) -> int:
        """Begin an epoch cold, if the loop asks for that; return the ns that it took, which no clock of the loop has.

        `number` is as in `_run_epoch`.
        """
        begun = perf_counter_ns()
        if not (found := self._read.begin_cold()):
            return 0
        self._note_residency(found)
        took = perf_counter_ns() - begun
        if (trace := recorder()) is not None:
            trace.add_span("phase", f"drop caches of {self._loop.dataset}", begun, begun + took)
        if number > 1:  # the clocks of the loop start with its first epoch
            self.saves.put_off(took)
        return took

    def _note_residency(self, found: Sequence[Residency]) -> None:
        """Keep the greatest share of the data in the page cache at the start of the loop, or of its cold epochs."""
        if not found:
            return
        self._cache_notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
        counts = np.array([one[:2] for one in found] if not self._cache_notes else [(0, 0)], np.int64).sum(axis=0)
        resident, examined = self._session.world.allreduce(counts, "sum").tolist()
        if examined:
            self._resident = max(self._resident or 0.0, resident / examined)

    def close(self, failed: bool) -> None:
        """Close the files and stop the threads; with `failed`, without what is collective."""
        if self._batches is not None:
            self._batches.close(failed)
        if not failed:
            self._read.close()

    @property
    def has_run(self) -> bool:
        """Return True after the first epoch."""
        return bool(self._rows)

    def run_epochs(self) -> Iterator[tuple[int, bool]]:
        """Run the epochs of the loop; yield the number (from 0) of each, and whether the loop's time is up."""
        loop, world = self._loop, self._session.world
        each = steps_of_epoch(loop, self._session.workload.read_dataset(loop), world.size)
        if each == 0:
            text = f"`{loop.name}` has no steps: its batch is larger than the data of some rank"
            raise PlanError(text, "E201").mark_shared()
        epochs, steps = (1, loop.arrivals.requests) if loop.arrivals is not None else (loop.epochs, each)
        self.saves.deadline = NEVER
        # An evaluation continues with the epoch after its last run, with other orders and other random draws.
        first = len(self._rows)
        for epoch in range(first, first + epochs):
            stop = self._run_epoch(epoch, epoch - first + 1, steps)
            yield epoch, stop
            if stop:
                return

    def _run_epoch(self, epoch: int, number: int, steps: int) -> bool:
        """Plan, run and summarise one epoch, shown as `number` (from 1); return whether the time is up."""
        self._take_copy(epoch + 1)
        session, world, loop, data = self._session, self._session.world, self._loop, self._read.data
        work = self._plan_epoch(epoch, steps)
        dropping = self._drop_pages(number)
        batches = self._batches
        assert batches is not None
        source = EpochSource(session, data, batches, work, self._kept)
        arrival = np.cumsum(work.gap_ns).tolist()
        plan = PlannedSteps(
            np.diff(work.samples.step_start),
            work.cumulative_bytes,
            work.compute_ns,
            arrival,
            self.saves.syncer.every,
            loop.access.readers > 0,
        )
        account = StepAccount(plan, world.rank, source.series, batches.reading, self._manager.busy_intervals)
        account.log = None if session.log is None else []
        name = f"{loop.name} without I/O" if session.reads_nothing else loop.name
        session.progress.start(name, number, loop.epochs, work.steps)
        trace, opened = recorder(), perf_counter_ns()
        if trace is not None:
            trace.begin_epoch(epoch + 1)
        # Every rank waits in `run_on_all`, so that clocks start together, with files open and nothing read yet.
        processing = make_processor(session, loop, data, work, epoch)
        world.run_on_all(lambda: batches.begin(EpochCalls(work.calls, work.rounds, work.most, processing)))
        self.saves.begin_epoch(work.steps)
        collect_every = collect_interval(loop.batch, len(work.calls.file), work.steps)
        settings = StepSettings(self.saves.syncer, loop.compute.busy, not world.polite, collect_every)
        counts = KernelCounts(batches.threads, batches.processes, self._manager)
        stop = run_steps(plan, settings, source, self.saves, account, session.progress)
        counts.stop_waits()
        # An error after the last sync is raised here by all ranks, before anything collective follows. In an epoch that
        # is shorter than the steps between two syncs, only this meeting lets ranks agree that the time is up.
        now = perf_counter_ns()
        self.saves.mark_due(now)
        stop = self.saves.syncer.end_epoch(stop or now >= self.saves.deadline)
        # Only the ranks of one communicator find that a file is too short; `run_on_all` raises the error on all ranks.
        world.run_on_all(batches.end)
        counts.stop_reads()
        if world.rank == 0 and (free := available_memory()) is not None:  # while buffers are in use
            self._free_memory = free if self._free_memory is None else min(self._free_memory, free)
        session.progress.end()
        record = account.make_record(self._salt, epoch + 1, loop.batch if data else 0, session.reads_nothing)
        source.record_reads(record)
        record.drop_ns = dropping
        counts.record_counts(record, loop, self.saves.core_wait_ns)
        if self._read.uncounted:
            record.read_bytes = -1
        if session.modelled is not None:
            record.rchar = -1
        if processing is not None:
            record.decode_ns, record.preprocess_ns = sum(processing.decode_ns), sum(processing.preprocess_ns)
        if data is not None:
            record_plan(session, loop, data, work, record, source.latencies)
        if epoch == 0:
            self._kept.seal()
        if session.log is not None and account.log:  # an epoch may have no step
            done = np.concatenate(account.log)
            asked = np.array(plan.compute[: len(done)], np.int64)
            session.log.epochs.append(LoggedEpoch(loop.kind, loop.batch, account.started, done, asked))
        self._save_after_epoch(record, source.series)
        if trace is not None:
            trace.end_epoch(loop.name, opened, perf_counter_ns())
        if self._timed:
            if not self._read.is_null and has_offsets(world.rank, world.size):
                source.series.offsets = call_offsets(work.calls, record.steps)
            keep_epoch(self._series, record.epoch, source.series)
        self._rows.append(rank_row(record))
        summary = summarise(record, world)
        if summary is not None:
            self._epochs.append(summary)
        return stop

    def _plan_epoch(self, epoch: int, steps: int) -> EpochWork:
        """Plan an epoch, and open the files, threads and buffers that it needs."""
        session, world = self._session, self._session.world
        work = world.run_on_all(lambda: plan_work(session, self._loop, self._read.data, epoch, steps, self._kept))
        # Every rank takes the largest buffer size of any rank, so that all ranks open their files again, or none does.
        needed = world.allreduce_number(work.calls.buffer_size, "max")
        if self._batches is None or needed > self._buffer_size:
            self._open_batches(needed, int(work.stored.extents.length[work.keeps].sum()))
        if work.rounds is None:
            return work
        return replace(work, most=world.allreduce(work.rounds.count.copy(), "max"))

    def _open_batches(self, needed: int, kept: int) -> None:
        """Open the loop's files, threads and buffers, or open them again with larger buffers.

        `needed` is the bytes of the largest step of any rank, `kept` the bytes that `cache memory` takes in addition.
        Raises ExecutionError [R402] if memory is too small.
        """
        access, world, read = self._loop.access, self._session.world, self._read
        self._close_batches()  # frees the old buffers before larger ones are allocated
        size = 0 if read.is_null or read.data is None else buffer_bytes(read.data.dataset, needed)
        # Only the files say how large the batches of some formats are. All ranks check before any rank allocates:
        # otherwise the last rank would see only what the first have left.
        asked = rank_buffers(self._loop, size, world.node.size, world.node.rank == 0) + kept
        asked += reader_bytes(access, read.data.dataset if read.data else None)
        world.require_memory(asked, f"read buffers of `{self._loop.name}`")

        def keep_batches() -> Batches:
            self._batches = read.build_batches(size)  # `close` ends its processes if another rank fails here
            return self._batches

        batches, self._buffer_size = world.run_on_all(keep_batches), max(size, needed)
        if read.data is not None and len(read.data.places.members) > 1:
            for reader in batches.readers:
                reader.meter.source_of = read.data.places.member_of_files
        self.saves.run = batches.run

    def _save_after_epoch(self, record: EpochRecord, series: EpochSeries) -> None:
        for held, content in self.saves.save_after_epoch(record.epoch):
            ended = record.wall_ns + record.content_ns
            series.add_checkpoint(ended, ended + held)
            record.checkpoint_ns += held
            record.content_ns += content
            record.wall_ns += held

    def make_view(self, runs: int | None) -> RunningLoop:
        """Make the view of the loop, which runs `runs` times (None: unknown), for threads that report partial results.

        It has no reference to the buffers, because a reader may keep the view after the loop.
        """
        loop = self._loop
        epochs = None if runs is None or loop.seconds is not None else runs * (1 if loop.arrivals else loop.epochs)
        root = ", ".join(self._read.roots) or None
        return RunningLoop(
            partial(_interim_summary, loop, root, self._session.reads_nothing, self._resident, self._epochs), epochs
        )

    def make_phase(self) -> Phase:
        """Return the phase of the loop, which is over."""
        session, access, rows, read = self._session, self._loop.access, self._rows, self._read
        readers = self._batches.readers if self._batches is not None else ()
        granted = next((reader.active_hints() for reader in readers if reader.meter.opens), None)
        asked, granted_ones = share_granted_hints(session.world, access, granted)
        counted = all(int(row[_RCHAR]) >= 0 for row in rows)
        wall_ns = session.world.allreduce_number(sum(int(row[_WALL]) for row in rows), "max")
        notes = (
            next((reader.meter.how for reader in readers if reader.meter.how), ""),
            *read.list_notes(counted, self._epochs),
            *self._cache_notes,
            read.uncounted,
        )
        summary = replace(
            self.make_view(1).so_far(),
            seconds=wall_ns * 1e-9,
            hints_asked=asked,
            hints_granted=granted_ones,
            notes=tuple(filter(None, notes)),
            free_memory=self._free_memory,
        )
        world, series = session.world, self._series
        gathered = gather_ranks(rows, world) if rows else None
        return Phase(summary, gathered, gather_timeline(series, world.rank, world.size, world) if series else None)


def run_loop(
    session: Session, saves: CheckpointSession, loop: Loop, ordinal: int, timed: bool
) -> Iterator[Phase | CheckpointSave]:
    """Run a loop with its evaluations; yield their phases, then each save, complete but perhaps not drained.

    Collective. `ordinal` distinguishes this loop from the others of the run in hashes and random draws. With `timed`
    the loop leaves a timeline, which rank 0 gathers from all ranks: 26 MB from 512 ranks.
    """
    outer = LoopRunner(session, saves, loop, ordinal, timed)
    inner = [
        # No outer loop has the salt of an evaluation: theirs are below 2^32.
        (evaluation, LoopRunner(session, saves, evaluation.loop, (number + 1 << 32) + ordinal, timed))
        for number, evaluation in enumerate(loop.evaluations)
    ]
    everyone = [outer, *(other for _, other in inner)]
    outer.look_at_cache()
    evaluations = [other.make_view(None if loop.seconds else count_due(one, loop.epochs)) for one, other in inner]
    session.finished.begin_loops((outer.make_view(1), *evaluations))
    failed = True
    gc.collect()
    gc.disable()
    try:
        for epoch, stop in outer.run_epochs():
            for evaluation, other in inner:
                if is_due(evaluation, epoch + 1):
                    if not other.has_run:  # only now, as the loop may have read the same data
                        other.look_at_cache()
                    for _ in other.run_epochs():
                        pass
            session.finished.keep()
            if stop:
                break
        outer.saves.save_at_end()
        failed = False
    finally:
        gc.enable()
        session.progress.end()
        for each in everyone:
            each.close(failed)
    for each in everyone:
        yield each.make_phase()
    yield from outer.saves.begun


def collect_interval(batch: int, calls: int, steps: int) -> int:
    """Return the steps after which read calls are collected: until then they take memory, and a sample may be many.

    `calls` are those of all `steps`; a step has `batch` samples.
    """
    each = max(batch, -(-calls // max(steps, 1)))
    return max(1, _COLLECTED_CALLS // each)


def _interim_summary(
    loop: Loop, root: str | None, null: bool, resident: float | None, epochs: list[EpochSummary]
) -> LoopPhase:
    """Return the phase of the epochs that are summarised so far; safe to call from another thread.

    Its seconds are the sum over these epochs.
    """
    access, done = loop.access, tuple(epochs)
    return LoopPhase(
        loop.name,
        loop.kind,
        sum(epoch.seconds for epoch in done),
        epochs=done,
        resident_share=resident,
        api=None if root is None else "null" if null else access.api,
        cache=None if root is None else access.cache,
        cold_each_epoch=loop.cold_within is not None,
        prefetch=access.prefetch if access.readers else 0,
        readers=access.readers,
        reader_processes=access.processes,
        through=access.through,
        hint_set=access.hint_set,
        root=root,
    )
