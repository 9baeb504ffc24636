"""The saves of a run: those that hold the ranks, those that are flushed during the steps, and their order; drains.

A drain copies a complete checkpoint to another root, and commits it there in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.background import StagedSave, StagingBuffers, Worker, require_threads
from dliosim.execute.checkpoints.save_steps import CheckpointSave, begin_save, delete_old, write_checkpoint
from dliosim.execute.checkpoints.state_writer import Run, generate_pieces
from dliosim.execute.mpi.world import World
from dliosim.execute.node.environment import require_space
from dliosim.execute.node.striping import request_striping, striping_hint_note
from dliosim.execute.payload.payload_format import part_keys
from dliosim.execute.phases.context import Phase, Session, verb_phase
from dliosim.execute.store.copy_file import copy_file
from dliosim.execute.store.manifest import load_manifest, make_directory
from dliosim.measure.rank.records import LoggedCheckpoint
from dliosim.model import Checkpoint
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, state_files
from dliosim.readable import seconds

#: Bytes of a call if the checkpoint sets no `transfer`.
_TRANSFER = 4 << 20


def drain(session: Session, save: CheckpointSave) -> str:
    """Copy what this rank has written of a complete checkpoint, complete the copy, delete old ones. Collective.

    Returns why the copy is not striped as the checkpoint is, or an empty text. Raises DliosimError on every rank, and
    leaves nothing of the copy then.
    """
    world, files, record, checkpoint = session.world, save.files, save.record, save.files.checkpoint
    begun = perf_counter_ns()
    base, source = session.drain_directory(checkpoint, files.split), save.base / f"{save.number:06d}"
    assert base is not None
    doing = f"make room to drain checkpoint `{checkpoint.name}`"
    aside, refused = world.run_on_rank_0(doing, lambda: _begin_copy(session, save, base))

    def count_bytes(got: int, _read: int, _write: int) -> None:
        record.drain_bytes += got

    def copy_own() -> None:
        copied = _runs_to_copy(files, world.rank, save.runs)
        buffer = allocate(drain_buffer_bytes(checkpoint) if copied else 0)
        for name, runs in copied.items():
            copy_file(source / name, aside / name, runs, buffer, count_bytes, checkpoint.fsync)

    try:
        world.run_on_all(copy_own)
        doing = f"complete the copy of checkpoint `{checkpoint.name}`"
        world.run_on_rank_0(doing, lambda: _complete_copy(session, save, base, source))
    except DliosimError:
        if world.rank == 0:
            session.stores.open_to_save(base).abandon(save.number)
        raise
    record.drain_ns = perf_counter_ns() - begun
    delete_old(session, save, base, "copies of checkpoint")
    return f"{refused} (root `{checkpoint.drain}`)" if refused else ""


def drain_buffer_bytes(checkpoint: Checkpoint) -> int:
    """Return the bytes of the buffer of a rank that drains what it has written."""
    return checkpoint.access.transfer or _TRANSFER


def _begin_copy(session: Session, save: CheckpointSave, base: Path) -> tuple[Path, str]:
    """Return the directory that a copy is written in, and why it is not striped as asked; empty if it is."""
    files, checkpoint = save.files, save.files.checkpoint
    store = session.stores.open_to_save(base)
    require_space(base.parent, files.total(), f"the copy of checkpoint `{checkpoint.name}`")
    aside = store.begin_copy(save.number)
    refused = request_striping(aside, checkpoint.stripe)
    for folder in sorted({name.rpartition("/")[0] for name, _ in files.files()} - {""}):
        make_directory(aside / folder)
    return aside, refused


def _complete_copy(session: Session, save: CheckpointSave, base: Path, source: Path) -> None:
    try:
        saved = load_manifest(source)
    except ValueError as error:
        raise ExecutionError(f"{source} {error}: it is not what was saved", "R401") from error
    copied = {name for name, _ in save.files.files()} | {METADATA}
    found = {name: size for name, size in saved.files.items() if name in copied}
    session.stores.open_to_save(base).commit(save.number, replace(saved, commit="rename", files=found))


def _runs_to_copy(files: StateFiles, rank: int, written: Iterable[Run]) -> dict[str, list[tuple[int, int]] | None]:
    """Return the runs (offset, bytes) that a rank copies of each file: those it has written, except for its partner.

    The file of metadata is copied whole (None): no run counts its bytes.
    """
    own: dict[str, list[tuple[int, int]]] = {name: [] for name in files.file_names(rank)}
    kept = {name for name, _ in files.partner_files()}
    for name, offset, length, _ in written:
        if name not in kept:
            own.setdefault(name, []).append((offset, length))
    return {**own, **({METADATA: None} if rank == 0 and files.checkpoint.metadata else {})}


#: A copy to staging buffers that is late by more than this share of its time gets a note.
_LATE = 0.1


class CheckpointSession:
    """Saves checkpoints and knows which are in flight; as a context, it waits for all of them at its end.

    It owns the threads and staging buffers of the saves in the background. All methods but `busy_intervals` and
    `count_drained_bytes` are collective and raise DliosimError on every rank.
    """

    def __init__(self, session: Session, checkpoints: Iterable[Checkpoint]) -> None:
        """Make the threads and staging buffers that these checkpoints need. Raises ExecutionError [R402, R403]."""
        self._session = session
        self._flights: deque[CheckpointSave] = deque()
        self._drains: deque[CheckpointSave] = deque()
        self._drained = 0
        self._workers: dict[str, Worker] = {}
        some = {} if session.reads_nothing else {one.name: one for one in checkpoints}
        world, planned = session.world, [_plan_files(session.world, one) for one in some.values()]
        staged = [(files, how) for files in planned if (how := files.checkpoint.background) is not None]
        if session.modelled is not None:  # no state is made, so none is copied
            staged = [(files, replace(how, simulated=True)) for files, how in staged]
        if staged:
            require_threads("`async on`")
            self._staging = world.run_on_all(
                lambda: {files.checkpoint.name: StagingBuffers(files, world.rank, how) for files, how in staged}
            )
            self._workers["flush"] = Worker(session, "flush")
        if any(one.drain is not None for one in some.values()):
            require_threads("`drain to`")
            self._workers["drain"] = Worker(session, "drain")

    def __enter__(self) -> CheckpointSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            # After an error the threads end too: they wait for each other in collective calls of what is in flight.
            for worker in self._workers.values():
                worker.close(free=error is None)

    def save(self, checkpoint: Checkpoint, run: Callable[[Callable[[], None]], None] | None = None) -> CheckpointSave:
        """Save a checkpoint, or begin to save it in the background.

        `run` executes an action with collective file calls on the thread that makes such calls; None executes it on
        this thread.
        """
        session, begun = self._session, perf_counter_ns()
        save = CheckpointSave(state_files(checkpoint, checkpoint.split(session.world.size)))
        if session.reads_nothing:
            return save
        if checkpoint.background is not None:
            self._save_async(save, checkpoint.background.in_flight)
            save.held_ns = save.record.stall_ns
        else:
            save.record.wait_ns = save.record.wall_ns = self.settle(mpi=checkpoint.access.is_mpi)
            (run or (lambda action: action()))(lambda: self._save_blocking(save))
            save.content_ns = save.record.content_ns
            save.record.delete_ns += delete_old(session, save, save.base)
            save.record.stall_ns += save.record.delete_ns
            # A rank that writes little waits for the others, and for the contents that they make.
            save.held_ns = session.world.allreduce_number(save.record.stall_ns, "max")
        if session.log is not None:
            log = LoggedCheckpoint("save", begun, begun + save.held_ns, save.files.total())
            session.log.checkpoints.append(log)
        if checkpoint.drain is not None:
            save.drain = self._workers["drain"].submit(lambda own: _drain(own, save), after=save.flush)
            while self._drains and self._drains[0].is_over and self._drains[0].error is None:
                self._drained += self._drains.popleft().record.drain_bytes
            self._drains.append(save)
        return save

    def settle(self, names: Iterable[str] = (), mpi: bool = False) -> int:
        """Wait until none of these checkpoints is being flushed, and with `mpi` none by MPI-IO; return the ns of it.

        Two threads in collective file calls deadlock on ROMIO's lock.
        """
        wanted, begun = set(names), perf_counter_ns()
        waited_for = [
            save
            for save in self._flights
            if save.files.checkpoint.name in wanted or (mpi and save.files.checkpoint.access.is_mpi)
        ]
        self._finish_flushes(waited_for)
        return perf_counter_ns() - begun if waited_for else 0

    def finish(self) -> None:
        """Wait until all checkpoints are complete and drained."""
        self._finish_flushes(list(self._flights))
        with self._session.progress.track_bytes("drain checkpoints", lambda: 0):
            for save in self._drains:
                assert save.drain is not None
                save.drain.wait(self._session.progress)
        failed = [save.error for save in self._drains]
        self._drained += sum(save.record.drain_bytes for save in self._drains)
        self._drains.clear()
        _raise_first_error(failed)

    def count_complete(self, saves: Iterable[CheckpointSave]) -> int:
        """Return how many of these saves, counted from the first, are over on every rank."""
        over = len(list(takewhile(lambda save: save.is_over, saves)))
        return self._session.world.allreduce_number(over, "min")

    def busy_intervals(self, since: int) -> NDArray[np.int64]:
        """Return when this rank's threads flushed or drained: begins and ends (n, 2) in perf_counter_ns, unordered."""
        found = [when for worker in self._workers.values() for when in worker.busy_intervals(since)]
        return np.array(found, np.int64).reshape(-1, 2)

    def count_drained_bytes(self) -> int:
        """Return the bytes that this rank has read so far to drain and to stage; /proc/self/io counts them, too.

        Not collective.
        """
        staged = sum(copy.count_bytes() for copy in self._session.copies.values())
        return self._drained + staged + sum(save.record.drain_bytes for save in self._drains)

    def _find_failure(self, checkpoint: Checkpoint) -> DliosimError | None:
        """Return the error that ended a background save of this checkpoint, as far as this rank knows."""
        own = (save for save in (*self._flights, *self._drains) if save.files.checkpoint.name == checkpoint.name)
        return next((save.error for save in own if save.error is not None), None)

    def _finish_flushes(self, saves: list[CheckpointSave]) -> None:
        if saves:
            with self._session.progress.track_bytes("complete checkpoints", lambda: 0):
                self._wait_for_flushes(saves)

    def _wait_for_flushes(self, saves: list[CheckpointSave]) -> None:
        """Wait for flushes, and raise the first error that ended one.

        The errors of their drains are not looked at here: a drain may be over on one rank and not yet on another. Then
        one rank would raise, and the other would wait for it for ever.
        """
        for save in saves:
            assert save.flush is not None
            save.flush.wait(self._session.progress)
            self._flights.remove(save)
        _raise_first_error(save.flush.error for save in saves if save.flush is not None)

    def _save_blocking(self, save: CheckpointSave) -> None:
        session, files, record, checkpoint = self._session, save.files, save.record, save.files.checkpoint
        world = session.world
        begin_save(session, save, self._find_failure(checkpoint))
        keys = part_keys(checkpoint, files.parts, save.number)
        with session.progress.track_bytes(f"save {checkpoint.name}", lambda: files.owner_bytes(world.rank)):
            write_checkpoint(session, save, lambda: generate_pieces(files, keys, world.rank, record))
        record.stall_ns = record.wall_ns

    def _save_async(self, save: CheckpointSave, in_flight: int) -> None:
        session, files, record, checkpoint = self._session, save.files, save.record, save.files.checkpoint
        begun = perf_counter_ns()
        with session.progress.track_bytes(f"stage {checkpoint.name}", lambda: files.owner_bytes(session.world.rank)):
            before = [each for each in self._flights if each.files.checkpoint.name == checkpoint.name]
            self._wait_for_flushes(before[: max(0, len(before) - in_flight + 1)])
            record.wait_ns = perf_counter_ns() - begun
            begin_save(session, save, self._find_failure(checkpoint))
            staged = self._staging[checkpoint.name].stage(
                save.number, not session.world.polite, session.progress, record
            )
        staged_at = perf_counter_ns()
        save.content_ns, save.late_ns = record.content_ns, staged.late_ns
        record.stall_ns = staged_at - begun - record.content_ns
        save.flush = self._workers["flush"].submit(lambda own: _flush(own, save, staged, staged_at))
        self._flights.append(save)


def _flush(own: Session, save: CheckpointSave, staged: StagedSave, staged_at: int) -> None:
    """Write, complete and count a staged save on the flusher's thread, with its own session."""
    record = save.record
    try:
        write_checkpoint(own, save, staged.made)
    finally:
        staged.release()
    record.flush_ns = perf_counter_ns() - staged_at
    if staged.simulated:
        record.flush_ns -= record.content_ns - save.content_ns
    else:
        # The contents were staged; only checksums were made here. They delay the writes, so the flush counts them.
        record.content_ns = save.content_ns
    record.wall_ns = record.stall_ns + record.flush_ns
    record.delete_ns += delete_old(own, save, save.base)


def _drain(own: Session, save: CheckpointSave) -> None:
    """Copy a complete checkpoint on the drainer's thread, with its own session."""
    try:
        save.notes += filter(None, [drain(own, save)])
    finally:
        save.runs = []
        if own.world.rank == 0:
            own.stores.open_to_save(save.base).remove_pin(save.number)
    # This checkpoint may have been kept only until it was drained.
    delete_old(own, save, save.base)


def _plan_files(world: World, checkpoint: Checkpoint) -> StateFiles:
    """Plan which rank makes which files before a clock runs; on rank 0 for all ranks."""
    files = state_files(checkpoint, checkpoint.split(world.size))
    deque(files.files() if world.rank == 0 else files.file_names(world.rank), maxlen=0)
    return files


def make_save_phase(session: Session, save: CheckpointSave) -> Phase:
    """Return the phase of a save that is over. Collective."""
    checkpoint = save.files.checkpoint
    unlocked = session.stores.lock_note(session.save_directory(checkpoint))
    dropped = striping_hint_note(checkpoint.access, checkpoint.stripe, save.record.hints)
    part = checkpoint.describe_part(checkpoint.split(session.world.size))
    smaller = part and f"only {part} was saved: its time is not that of a whole save"
    nothing = "nothing was written (--storage)" if session.modelled is not None else ""
    notes = tuple(filter(None, (nothing, unlocked, smaller, *save.notes, dropped)))
    if checkpoint.background is not None and checkpoint.background.staging is not None:
        slow = np.array([save.late_ns, save.record.stage_ns], np.int64)
        late, took = (int(most) for most in session.world.allreduce(slow, "max"))
        if late > _LATE * took:
            asked = f"{seconds(took * 1e-9, 3)}, {seconds(late * 1e-9, 3)} longer than `staging` says"
            slower = "the memory of this machine is slower than that pace"
            notes = (*notes, f"copying to staging buffers took up to {asked}: {slower}")
    save.record.root = session.place_name(checkpoint.root, session.save_directory(checkpoint))
    how = {"within": save.within, "fsync": checkpoint.fsync, "commit": checkpoint.commit, "part_of": part}
    return verb_phase(session, checkpoint.name, "save", save.record, checkpoint.access, notes, **how)


def _raise_first_error(errors: Iterable[DliosimError | None]) -> None:
    for error in errors:
        if error is not None:
            raise error
