"""Copy a complete checkpoint to another root, where it becomes complete in the same way; buffers of background saves.

A background save copies the state to host buffers before it flushes; they are reused by the next saves.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.save_steps import CheckpointSave, delete_old
from dliosim.execute.checkpoints.state_writer import Made, Run, fill_piece, generate_pieces, largest_call, pieces_of
from dliosim.execute.io_errors import call_error, truncation_error
from dliosim.execute.node.compute import sleep_until
from dliosim.execute.node.free_space import require_space
from dliosim.execute.node.striping import request_striping
from dliosim.execute.payload.payload_format import part_keys
from dliosim.execute.phases.context import Progress, Session
from dliosim.execute.safe_open import open_for_read, open_for_write
from dliosim.execute.store.checkpoint_manifest import load_manifest
from dliosim.execute.store.manifest import make_directory
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Checkpoint
from dliosim.model.checkpoint import Background
from dliosim.plan.checkpoints.layout import METADATA, StateFiles
from dliosim.plan.samples.sample_to_file import align_up
from dliosim.trace.calls import Call
from dliosim.trace.recorder import open_log

#: Bytes of a call where the checkpoint sets no `transfer`.
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

    def copy_own() -> None:
        copied = _runs_to_copy(files, world.rank, save.runs)
        buffer = allocate(drain_buffer_bytes(checkpoint) if copied else 0)
        for name, runs in copied.items():
            _copy_runs(source / name, aside / name, runs, buffer, checkpoint.fsync, record)

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


def _runs_to_copy(files: StateFiles, rank: int, written: Iterable[Run]) -> dict[str, list[tuple[int, int]]]:
    """Return the runs (offset, bytes) that a rank copies of each file: those it has written, except for its partner."""
    own: dict[str, list[tuple[int, int]]] = {name: [] for name in files.file_names(rank)}
    kept = {name for name, _ in files.partner_files()}
    for name, offset, length, _ in written:
        if name not in kept:
            own.setdefault(name, []).append((offset, length))
    if rank == 0 and files.checkpoint.metadata:
        own[METADATA] = []
    return own


def _copy_runs(
    source: Path, target: Path, runs: list[tuple[int, int]], buffer: memoryview, fsync: bool, record: VerbRecord
) -> None:
    """Copy runs of a file to the same offsets of another, which other ranks may be writing, too.

    The file of metadata is copied whole: no run counts its bytes.
    """
    path, call = source, "open"
    log = open_log(lambda file: str((source, target)[file]), Call.READ)
    with open_for_write(target, os.O_WRONLY | os.O_CREAT) as to:
        try:
            with open_for_read(source) as of:
                for begin, length in runs if source.name != METADATA else [(0, os.fstat(of).st_size)]:
                    at, end = begin, begin + length
                    while at < end:
                        path, call = source, "preadv"
                        begun = perf_counter_ns()
                        got = os.preadv(of, [buffer[: end - at]], at)
                        if log is not None:
                            log.add_call(Call.READ, begun, 0, at, end - at, got)
                        if not got:
                            raise truncation_error(call, str(source), at, end - at, got)
                        record.drain_bytes += got
                        path, call = target, "pwrite"
                        begun = perf_counter_ns()
                        wrote = os.pwrite(to, buffer[:got], at)
                        if log is not None:
                            log.add_call(Call.WRITE, begun, 1, at, got, wrote)
                        at += wrote
            if fsync:
                path, call = target, "fsync"
                begun = perf_counter_ns()
                os.fsync(to)
                if log is not None:
                    log.add_call(Call.FSYNC, begun, 1)
        except OSError as error:
            raise call_error(call, str(path), error) from error


class StagedSave(NamedTuple):
    """The copy of one save."""

    #: returns its calls, from the first again each time
    made: Callable[[], Made]
    #: time by which the copy was slower than its pace; ns
    late_ns: int
    #: gives the buffer back, if there is one
    release: Callable[[], None]
    #: nothing was copied, and contents are made during the flush
    simulated: bool


class StagingBuffers:
    """The staging buffers of one rank for one checkpoint: one a save in flight, none if simulated."""

    def __init__(self, files: StateFiles, rank: int, background: Background) -> None:
        """Allocate and touch the buffers. Raises ExecutionError [R402]."""
        self._files = files
        self._rank = rank
        self._background = background
        self._align = files.checkpoint.access.page
        size = _buffer_bytes(files, rank)
        self._source = memoryview(b"")
        self._free: deque[memoryview] = deque()
        if not background.simulated:
            # The state that a device would hold is made here, one call at a time.
            self._source = allocate(largest_call(files, rank))
            self._free.extend(allocate(size) for _ in range(background.in_flight))

    def stage(self, number: int, may_spin: bool, progress: Progress, record: VerbRecord) -> StagedSave:
        """Copy what this rank saves in save `number`, in the time that its pace asks for; a buffer must be free.

        `record.stage_ns` counts the copy alone, `record.content_ns` making what is copied.
        """
        keys = part_keys(self._files.checkpoint, self._files.parts, number)
        if self._background.simulated:
            late = self._wait_for_pace(perf_counter_ns(), 0, may_spin, record)
            return StagedSave(lambda: generate_pieces(self._files, keys, self._rank, record), late, lambda: None, True)
        buffer = self._free.popleft()
        at = copied = done = 0
        ended = perf_counter_ns()
        for piece in pieces_of(self._files, self._rank):
            begun = perf_counter_ns()
            source, target = self._source[: piece.length], buffer[at : at + piece.length]
            fill_piece(self._files, keys, piece, source)
            made = perf_counter_ns()
            # Not a slice assignment: numpy releases the interpreter lock, so that reader threads can continue.
            np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))
            ended = perf_counter_ns()
            record.content_ns += made - begun
            copied += ended - made
            at += align_up(piece.length, self._align)
            done += piece.length
            progress.tick(ended, 0, done)
        late = self._wait_for_pace(ended, copied, may_spin, record)
        return StagedSave(lambda: self._buffer_pieces(buffer), late, lambda: self._free.append(buffer), False)

    def _wait_for_pace(self, now: int, copied: int, may_spin: bool, record: VerbRecord) -> int:
        """Sleep for the rest of the time that the copy should take; return by how many ns it took longer."""
        pace = self._background.staging
        due = round(pace.duration(self._files.owner_bytes(self._rank)) * 1e9) if pace is not None else copied
        if due > copied:
            sleep_until(now + due - copied, may_spin)
        record.stage_ns += copied + perf_counter_ns() - now
        return max(0, copied - due)

    def _buffer_pieces(self, buffer: memoryview) -> Made:
        at = 0
        for piece in pieces_of(self._files, self._rank):
            yield piece, buffer[at : at + piece.length]
            at += align_up(piece.length, self._align)


def staging_bytes(files: StateFiles, rank: int, background: Background) -> int:
    """Return the bytes of all buffers that `StagingBuffers` of a rank allocates."""
    if background.simulated:
        return 0
    return background.in_flight * _buffer_bytes(files, rank) + largest_call(files, rank)


def _buffer_bytes(files: StateFiles, rank: int) -> int:
    # O_DIRECT writes a buffer without another copy only where it begins at a page.
    align = files.checkpoint.access.page
    if align == 1:
        return files.owner_bytes(rank)
    return sum(align_up(piece.length, align) for piece in pieces_of(files, rank))
