"""Copy a complete checkpoint to another root, and commit it there in the same way."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.save_steps import CheckpointSave, delete_old
from dliosim.execute.checkpoints.state_writer import Run
from dliosim.execute.io_errors import truncation_error, wrap_call
from dliosim.execute.node.environment import require_space
from dliosim.execute.node.striping import request_striping
from dliosim.execute.phases.context import Session
from dliosim.execute.safe_open import open_for_read, open_for_write
from dliosim.execute.store.manifest import load_manifest, make_directory
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Checkpoint
from dliosim.plan.checkpoints.layout import METADATA, StateFiles
from dliosim.trace.calls import Call
from dliosim.trace.recorder import open_log

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
    log = open_log(lambda file: str((source, target)[file]), Call.READ)
    with open_for_write(target, os.O_WRONLY | os.O_CREAT) as to:
        with wrap_call("open", source), open_for_read(source) as of:
            for begin, length in runs if source.name != METADATA else [(0, os.fstat(of).st_size)]:
                at, end = begin, begin + length
                while at < end:
                    begun = perf_counter_ns()
                    with wrap_call("preadv", source):
                        got = os.preadv(of, [buffer[: end - at]], at)
                    if log is not None:
                        log.add_call(Call.READ, begun, 0, at, end - at, got)
                    if not got:
                        raise truncation_error("preadv", str(source), at, end - at, got)
                    record.drain_bytes += got
                    begun = perf_counter_ns()
                    with wrap_call("pwrite", target):
                        wrote = os.pwrite(to, buffer[:got], at)
                    if log is not None:
                        log.add_call(Call.WRITE, begun, 1, at, got, wrote)
                    at += wrote
        if fsync:
            begun = perf_counter_ns()
            with wrap_call("fsync", target):
                os.fsync(to)
            if log is not None:
                log.add_call(Call.FSYNC, begun, 1)
