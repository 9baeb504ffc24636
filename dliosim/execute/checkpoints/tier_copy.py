"""Copy a complete checkpoint to another root, and commit it there in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.save_steps import CheckpointSave, delete_old
from dliosim.execute.checkpoints.state_writer import Run
from dliosim.execute.node.environment import require_space
from dliosim.execute.node.striping import request_striping
from dliosim.execute.phases.context import Session
from dliosim.execute.store.copy_file import copy_file
from dliosim.execute.store.manifest import load_manifest, make_directory
from dliosim.model import Checkpoint
from dliosim.plan.checkpoints.layout import METADATA, StateFiles

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
