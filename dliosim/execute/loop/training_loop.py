"""Train, evaluate and infer: epochs of steps over a data set, with checkpoints and evaluations between them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from threading import get_native_id
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import DliosimError, ExecutionError, PlanError
from dliosim.execute.backends.buffers import allocate
from dliosim.execute.backends.library_reader import library_read_note
from dliosim.execute.backends.registry import Files, open_readers
from dliosim.execute.batches.batch_schedule import EpochCalls
from dliosim.execute.batches.node_reader import make_scattered_batches
from dliosim.execute.batches.prefetch import Batches, make_batches, slot_count
from dliosim.execute.batches.sample_cache import SampleCache
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.checkpoints.save_steps import CheckpointSave
from dliosim.execute.context import Phase, RunningLoop, Session
from dliosim.execute.datasets.dataset_residency import measure_dataset_residency
from dliosim.execute.datasets.library_writer import index_prepared
from dliosim.execute.datasets.prepare import check_prepared
from dliosim.execute.loop.checkpoint_timers import CheckpointTimers
from dliosim.execute.loop.epoch_plan import EpochSource, EpochWork, make_processor, plan_work
from dliosim.execute.loop.meter_delta import MeterSnapshot, record_epoch_delta
from dliosim.execute.loop.step_loop import StepPlan, run_steps
from dliosim.execute.loop.step_sync import StepSync
from dliosim.execute.mpi.communicators import file_communicator, free_communicator, reader_note
from dliosim.execute.mpi.distinct_bytes import distinct_bytes
from dliosim.execute.node.core_waits import core_wait, core_wait_since
from dliosim.execute.node.free_space import require_memory
from dliosim.execute.node.page_cache import process_io_since, read_process_io
from dliosim.execute.phase_summary import share_granted_hints
from dliosim.formats.registry import bind, import_libraries
from dliosim.measure.phase import PhaseSummary
from dliosim.measure.records import EpochRecord
from dliosim.measure.summary import RANK_COLUMNS, gather_ranks, rank_row, summarise
from dliosim.measure.time_series import EpochSeries, select_calls
from dliosim.measure.timeline import gather_timeline, has_offsets, keep_epoch
from dliosim.model import Cadence, Dataset, Loop
from dliosim.model.counter_rng import key
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.plan.forecast.layout_forecast import guess_index
from dliosim.plan.samples.distinct_ranges import MOST_RANGES, are_reads_distinct, union_ranges
from dliosim.plan.samples.io_requests import Calls, Extents, file_sizes
from dliosim.plan.samples.order_hash import extent_hash, order_hash
from dliosim.plan.samples.read_ranges import buffer_bytes
from dliosim.plan.samples.sampler import plan_bytes
from dliosim.plan.samples.sizes import is_framed, sample_sizes

if TYPE_CHECKING:
    from dliosim.measure.epoch_summaries import EpochSummary

_WALL, _RCHAR = RANK_COLUMNS.index("wall_ns"), RANK_COLUMNS.index("rchar")


@dataclass(slots=True)
class _LoopState:
    """A loop that runs: its open files and threads, its cached samples, and its results so far."""

    #: the loop of the pattern
    loop: Loop
    #: the data set that it reads
    dataset: Dataset
    #: distinguishes the hashes of this loop from those of other loops of the run
    salt: int
    #: the loop leaves a timeline
    timed: bool
    #: the files of the data set, and the communicator that opens them
    files: Files
    #: the sync between steps
    syncer: StepSync
    #: timers of the checkpoints by seconds
    timers: CheckpointTimers
    #: samples that `cache memory` keeps
    kept: SampleCache
    #: the loop stops after this perf_counter_ns; None before the first epoch's clock, or without a time limit
    deadline: int | None = None
    #: threads, open files and buffers; None before the first epoch
    batches: Batches | None = None
    #: size of each buffer, bytes
    buffer_size: int = 0
    #: core wait of the stepping thread in the saves of the current epoch, ns
    save_core_wait_ns: int = 0
    #: saves that the loop has begun, in order
    saved: list[CheckpointSave] = field(default_factory=list)
    #: one row of `RANK_COLUMNS` for each epoch
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    #: summaries of the epochs that are done; on rank 0 only
    epochs: list[EpochSummary] = field(default_factory=list)
    #: series of the epochs that the timeline keeps, by epoch
    series: dict[int, EpochSeries] = field(default_factory=dict)
    #: share of the examined pages that were resident before the loop; None if none were examined
    resident: float | None = None
    #: notes about residency, for the report
    notes: tuple[str, ...] = ()


def run_loop(
    session: Session, saves: CheckpointSession, loop: Loop, ordinal: int, timed: bool
) -> Iterator[Phase | CheckpointSave]:
    """Run a loop with its evaluations; yield their phases, then each save, complete but perhaps not drained.

    Collective. `ordinal` distinguishes this loop from the others of the run in hashes and random draws. With `timed`
    the loop leaves a timeline, which rank 0 gathers from all ranks: 26 MB from 512 ranks.
    """
    running = _start_loop(session, loop, ordinal, timed)
    inner = [
        (evaluation.every, _start_loop(session, evaluation.loop, _evaluation_salt(ordinal, number), timed))
        for number, evaluation in enumerate(loop.evaluations)
    ]
    everyone = [running, *(other for _, other in inner)]
    evaluations = [
        _make_loop_view(session, other, None if loop.seconds else loop.epochs // every) for every, other in inner
    ]
    session.finished.begin_loops((_make_loop_view(session, running, 1), *evaluations))
    failed = True
    gc.collect()
    gc.disable()
    try:
        for epoch, stop in _run_epochs(session, saves, running):
            for every, other in inner:
                if (epoch + 1) % every == 0:
                    for _ in _run_epochs(session, saves, other):
                        pass
            if stop:
                break
        for cadence in loop.checkpoints:
            if cadence.unit == "end":
                _save_checkpoint(session, saves, running, cadence)
        saves.settle(cadence.checkpoint for cadence in loop.checkpoints)
        failed = False
    finally:
        gc.enable()
        session.progress.end()
        for each in everyone:
            _close_loop(session, each, failed)
    for each in everyone:
        yield _make_phase(session, each)
    yield from running.saved


def _evaluation_salt(ordinal: int, number: int) -> int:
    """Return the salt of an evaluation's hashes. No outer loop has it: their salts are below 2^32."""
    return (number + 1 << 32) + ordinal


def _start_loop(session: Session, loop: Loop, salt: int, timed: bool) -> _LoopState:
    dataset = session.workload.dataset(loop.dataset)
    world, access = session.world, loop.access
    if loop.decode or access.through == "library":
        import_libraries(bind(dataset))
    directory, file_name = session.files(dataset)
    if not dataset.source:
        check_prepared(session, dataset)
    if not is_framed(dataset) and session.places[dataset.name] is None:
        # Without I/O there may be no file whose index can be read.
        found = guess_index(dataset) if session.options.null else index_prepared(session, dataset, directory)
        session.places[dataset.name] = found
    if access.readers and access.is_mpi and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        text = f"`readers` with {access.api} in `{loop.name}` needs an MPI with MPI_THREAD_MULTIPLE"
        raise _mark_shared(ExecutionError(f"{text}, and this one has less", "R403"))
    places = session.places[dataset.name]

    def size_of_file(file: int) -> int:
        return int(file_sizes(dataset, places, np.array([file]))[0])

    together = file_communicator(world, access)
    files = Files(directory, file_name, size_of_file, dataset.layout.files == 1, together, dataset)
    world.run_on_all(lambda: require_memory(loop.sync.size, world.node.size, "buffers of `sync allreduce`"))
    timers = CheckpointTimers(loop.checkpoints)
    syncer = StepSync(world, loop.sync, access.collective or access.scatter, len(timers.cadences))
    if timers.cadences and not syncer.every:
        name = timers.cadences[0].checkpoint
        text = f"`checkpoint {name}` by seconds in `{loop.name}` needs a sync, in which ranks agree that it is time"
        raise _mark_shared(PlanError(text))
    running = _LoopState(loop, dataset, salt, timed, files, syncer, timers, SampleCache())
    residency = measure_dataset_residency(session, dataset)
    found, examined = world.allreduce(np.array(residency[:2], np.int64), "sum").tolist()
    running.resident = found / examined if examined else None
    running.notes = residency.notes
    return running


def _mark_shared(error: DliosimError) -> DliosimError:
    """Mark an error as one that every rank raises here, and return it: no rank has to report it to the others."""
    error.shared = True
    return error


def _close_loop(session: Session, running: _LoopState, failed: bool) -> None:
    if running.batches is not None:
        running.batches.close(failed)
    if not failed:
        free_communicator(session.world, running.files.comm)


def _run_epochs(session: Session, saves: CheckpointSession, running: _LoopState) -> Iterator[tuple[int, bool]]:
    """Run the epochs of a loop; yield the number (from 0) of each, and whether the loop's time is up. Collective."""
    loop = running.loop
    each = steps_of_epoch(loop, running.dataset, session.world.size)
    if each == 0:
        text = f"`{loop.name}` has no steps: its batch is larger than the data of some rank"
        raise _mark_shared(PlanError(text, "E201"))
    epochs, steps = (1, loop.arrivals.requests) if loop.arrivals is not None else (loop.epochs, each)
    planned, world = plan_bytes(loop, running.dataset, steps), session.world
    world.run_on_all(lambda: require_memory(planned, world.node.size, f"the calls of an epoch of `{loop.name}`"))
    running.deadline = None
    # An evaluation continues with the epoch after its last run, with other orders and other random draws.
    first = len(running.rows)
    for epoch in range(first, first + epochs):
        stop = _run_epoch(session, saves, running, epoch, epoch - first + 1, steps)
        yield epoch, stop
        if stop:
            return


def _run_epoch(
    session: Session, saves: CheckpointSession, running: _LoopState, epoch: int, number: int, steps: int
) -> bool:
    """Plan, run and summarise one epoch, shown as `number` (from 1); return whether the time is up. Collective."""
    world, loop = session.world, running.loop
    error: DliosimError | None = None
    work: EpochWork | None = None
    try:
        work = plan_work(session, loop, running.dataset, epoch, steps, running.kept)
    except DliosimError as failure:
        error = failure
    # Every rank takes the largest buffer size of any rank, so that all ranks open their files again, or none does.
    needed = np.array([world.failure_flag(error), work.calls.buffer_size if work is not None else 0], np.int64)
    world.allreduce(needed, "max")
    world.raise_if_failed(int(needed[0]), error)
    if work is None:
        raise PlanError("an epoch could not be planned")
    batches = _open_batches(session, running, int(needed[1]), work.cache_growth)
    if work.rounds is not None:
        most = world.allreduce(work.rounds.count.copy(), "max")
        work = replace(work, most=most)
    source = EpochSource(session, running.dataset, batches, work, running.kept)
    record, series = EpochRecord(running.salt, epoch, batch=loop.batch, null=session.options.null), EpochSeries()
    before = MeterSnapshot.read_meters(batches)
    lengths = np.diff(work.extents.step_start).tolist()
    session.progress.start(loop.name, number, loop.epochs, work.steps)
    # Every rank waits in `run_on_all`, so that clocks start together, with files open and nothing read yet.
    processing = make_processor(session, loop, running.dataset, work, epoch)
    world.run_on_all(lambda: batches.begin(EpochCalls(work.calls, work.rounds, work.most, processing)))
    if running.deadline is None and loop.seconds is not None:
        running.deadline = perf_counter_ns() + round(loop.seconds * 1e9)
    running.timers.start(perf_counter_ns())
    this, running.save_core_wait_ns = [get_native_id()], 0
    course, waited, read_waited = (
        _make_step_plan(session, saves, running, work),
        core_wait(this),
        core_wait(batches.threads),
    )
    io_before, drained = read_process_io(), saves.count_drained_bytes()  # last: core_wait reads /proc, which it counts
    stop = run_steps(course, source, lengths, record, series, session.progress)
    # An error after the last sync is raised here by all ranks, before anything collective follows. In an epoch that is
    # shorter than the steps between two syncs, only this meeting lets ranks agree that the time is up.
    over = running.deadline is not None and perf_counter_ns() >= running.deadline
    running.timers.mark_due(running.syncer.due, perf_counter_ns())
    stop = running.syncer.end_epoch(stop or over)
    # Only the ranks of one communicator find that a file is too short; `run_on_all` raises the error on all ranks.
    world.run_on_all(batches.end)
    read = process_io_since(io_before, saves.count_drained_bytes() - drained)
    record.core_wait_ns = core_wait_since(waited, this)
    if record.core_wait_ns >= 0:
        record.core_wait_ns -= running.save_core_wait_ns
    record.reader_core_wait_ns = core_wait_since(read_waited, batches.threads)
    session.progress.end()
    record_epoch_delta(source, record, series, before, MeterSnapshot.read_meters(batches))
    if processing is not None:
        record.decode_ns, record.preprocess_ns = sum(processing.decode_ns), sum(processing.preprocess_ns)
    record.rchar = read.called_read if loop.access.counts_reads else -1
    record.read_bytes = read.storage_read
    if loop.access.through == "library" and record.rchar >= 0 and not session.options.null:
        # Only the kernel counts what a library reads in addition to the samples.
        record.bytes_moved = record.rchar
    if not session.options.null:
        record.distinct_bytes = _count_distinct_bytes(session, running, work.stored.extents, record.steps)
    content, place = key(running.salt, running.dataset.name), key(running.salt, running.dataset.digest())
    # The order hash takes the sizes of the samples themselves, so that it is equal for other formats of the same data.
    sizes = work.extents.length if running.dataset.source else sample_sizes(running.dataset, work.extents.sample)
    shown = replace(work.extents, length=sizes)
    record.order_hash = order_hash(world.rank, shown, 0, record.steps, epoch, content)
    if not session.options.null:
        record.extent_hash = extent_hash(work.stored.extents, 0, record.steps, place)
    if epoch == 0:
        running.kept.seal()
    by_epochs = (one for one in loop.checkpoints if one.unit == "epochs" and (epoch + 1) % one.every == 0)
    for cadence in (*by_epochs, *_pop_due_cadences(running)):
        begun = perf_counter_ns()
        content = _save_checkpoint(session, saves, running, cadence)
        held, ended = perf_counter_ns() - begun - content, record.wall_ns + record.content_ns
        series.add_checkpoint(ended, ended + held)
        record.checkpoint_ns += held
        record.content_ns += content
        record.wall_ns += held
    if running.timed:
        if not session.options.null and has_offsets(world.rank, world.size):
            series.offsets = _call_offsets(work.calls, record.steps)
        keep_epoch(running.series, epoch, series)
    running.rows.append(rank_row(record))
    summary = summarise(record, world)
    if summary is not None:
        running.epochs.append(summary)
    return stop


def _count_distinct_bytes(session: Session, running: _LoopState, asked: Extents, steps: int) -> int:
    """Return this rank's share of the bytes that its node asked for in `steps` steps, each byte once. Collective."""
    rows = slice(0, int(asked.step_start[steps]))
    file, begin, length = asked.file[rows], asked.offset[rows], asked.length[rows]
    world, places = session.world, session.places[running.dataset.name]
    if are_reads_distinct(running.loop, running.dataset, places, world.size):
        return int(length.sum())
    known = len(file) <= MOST_RANGES
    return distinct_bytes(world, union_ranges(file, begin, begin + length) if known else None)


def _open_batches(session: Session, running: _LoopState, needed: int, kept: int) -> Batches:
    """Return the loop's files, threads and buffers; make them again if an epoch needs larger buffers. Collective.

    `needed` is the bytes of the largest step of any rank, `kept` the bytes that `cache memory` takes in addition.
    Raises ExecutionError [R402] where memory is too small.
    """
    access, batches = running.loop.access, running.batches
    if batches is not None and needed <= running.buffer_size:
        return batches
    if batches is not None:
        batches.close()
        batches = running.batches = None  # frees the old buffers before larger ones are allocated
    size = buffer_bytes(running.dataset, needed)
    size, world = 0 if session.options.null else size, session.world
    asked = size * access.batches + kept
    # All ranks check before any rank allocates: otherwise the last rank would see only what the first have left.
    world.run_on_all(lambda: require_memory(asked, world.node.size, "read buffers"))

    def build_batches() -> Batches:
        if access.scatter and not session.options.null:
            return make_scattered_batches(world, access, running.files, size)
        slots = [allocate(size) for _ in range(slot_count(access))]
        return make_batches(access, open_readers(access, running.files, session.options.null), slots)

    running.batches, running.buffer_size = world.run_on_all(build_batches), max(size, needed)
    return running.batches


def _make_step_plan(session: Session, saves: CheckpointSession, running: _LoopState, work: EpochWork) -> StepPlan:
    loop = running.loop
    by_steps = [cadence for cadence in loop.checkpoints if cadence.unit == "steps"]
    steps = {step for cadence in by_steps for step in range(cadence.every - 1, work.steps, cadence.every)}

    def save_after(step: int) -> int:
        this = [get_native_id()]
        waited = core_wait(this)
        running.syncer.sync_before_save()
        now = (cadence for cadence in by_steps if (step + 1) % cadence.every == 0)
        content = sum(
            _save_checkpoint(session, saves, running, cadence) for cadence in (*now, *_pop_due_cadences(running))
        )
        running.save_core_wait_ns += max(core_wait_since(waited, this), 0)
        return content

    arrival = np.cumsum(work.gap_ns).tolist() if work.gap_ns else []
    return StepPlan(
        work.steps,
        work.compute_ns,
        loop.compute.busy,
        arrival,
        running.syncer,
        frozenset(steps),
        save_after,
        running.deadline,
        not session.world.polite,
        running.timers,
        saves.busy_intervals,
    )


def _pop_due_cadences(running: _LoopState) -> list[Cadence]:
    """Return the lines by seconds that the last sync found due, and clear `syncer.due`."""
    due = running.syncer.due
    lines = [cadence for cadence, now in zip(running.timers.cadences, due.tolist(), strict=True) if now]
    due[:] = 0
    return lines


def _save_checkpoint(session: Session, saves: CheckpointSession, running: _LoopState, cadence: Cadence) -> int:
    """Save, or begin a save in the background; return the ns of making contents, which the loop's clocks leave out."""
    checkpoint = session.workload.checkpoint(cadence.checkpoint)
    # On the thread that makes the loop's collective calls: two threads in such calls deadlock on ROMIO's lock.
    save = saves.save(checkpoint, running.batches.run if running.batches is not None else None)
    save.within = running.loop.name
    running.saved.append(save)
    if running.deadline is not None:
        running.deadline += save.content_ns
    running.timers.delay(save.content_ns)
    if cadence in running.timers.cadences:
        running.timers.restart_timer(running.timers.cadences.index(cadence), perf_counter_ns())
    return save.content_ns


def _call_offsets(calls: Calls, steps: int) -> NDArray[np.int64]:
    """Return step, file and offset (bytes) of a selection of calls of the first `steps` steps; shape (n, 3)."""
    row = select_calls(int(calls.step_start[steps]))
    step = np.searchsorted(calls.step_start, row, "right") - 1
    return np.column_stack([step, calls.file[row], calls.offset[row]])


def _make_phase(session: Session, running: _LoopState) -> Phase:
    loop, access = running.loop, running.loop.access
    readers = running.batches.readers if running.batches is not None else ()
    granted = next((reader.active_hints() for reader in readers if reader.meter.opens), None)
    asked, granted_ones = share_granted_hints(session.world, access, granted)
    how = next((reader.meter.how for reader in readers if reader.meter.how), "")
    counted = all(int(row[_RCHAR]) >= 0 for row in running.rows)
    counts = "" if session.options.null else library_read_note(access, counted)
    wall = np.array([sum(int(row[_WALL]) for row in running.rows)], np.int64)
    session.world.allreduce(wall, "max")
    index_note = session.index_notes.get(running.dataset.name)
    summary = replace(
        _interim_summary(loop, running.dataset.root, session.options.null, running.resident, running.epochs),
        seconds=int(wall[0]) * 1e-9,
        hints_asked=asked,
        hints_granted=granted_ones,
        notes=tuple(
            filter(
                None, (how, reader_note(access), counts, _compression_note(running.dataset), index_note, *running.notes)
            )
        ),
    )
    world, series = session.world, running.series
    rows = gather_ranks(running.rows, world) if running.rows else None
    return Phase(summary, rows, gather_timeline(series, world.rank, world.size, world) if series else None)


def _make_loop_view(session: Session, running: _LoopState, runs: int | None) -> RunningLoop:
    """Make the view of a loop that runs `runs` times (None: unknown) for threads that report partial results.

    It has no reference to the buffers, because a reader may keep the view after the loop.
    """
    loop = running.loop
    epochs = None if runs is None or loop.seconds is not None else runs * (1 if loop.arrivals else loop.epochs)
    return RunningLoop(
        partial(_interim_summary, loop, running.dataset.root, session.options.null, running.resident, running.epochs),
        epochs,
    )


def _interim_summary(
    loop: Loop, root: str, null: bool, resident: float | None, epochs: list[EpochSummary]
) -> PhaseSummary:
    """Return the phase of the epochs that are summarised so far; safe to call from another thread.

    Its seconds are the sum over these epochs.
    """
    access, done = loop.access, tuple(epochs)
    return PhaseSummary(
        loop.name,
        loop.kind,
        sum(epoch.seconds for epoch in done),
        epochs=done,
        resident_share=resident,
        api="null" if null else access.api,
        cache=access.cache,
        prefetch=access.prefetch if access.readers else 0,
        readers=access.readers,
        through=access.through,
        hint_set=access.hint_set,
        root=root,
    )


def _compression_note(dataset: Dataset) -> str:
    """Return the note about bytes and rates of compressed samples; empty for others."""
    if dataset.compress is None:
        return ""
    return "bytes and GB/s are of samples as they are stored, compressed; samples/s compares with uncompressed ones"
