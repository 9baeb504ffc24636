"""Save a checkpoint while the ranks wait: begin it, write it, complete it. Times do not count making contents."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError
from dliosim.execute.checkpoints import checkpoint_store
from dliosim.execute.checkpoints.checkpoint_manifest import CheckpointManifest
from dliosim.execute.checkpoints.partner_replication import copy_to_partner
from dliosim.execute.checkpoints.plan_metadata import exchange_plans, gather_runs, join_runs, write_metadata
from dliosim.execute.checkpoints.state_writer import Made, Run, generate_pieces, largest_call, write_state
from dliosim.execute.context import Session
from dliosim.execute.node.free_space import require_memory, require_space
from dliosim.execute.node.striping import request_striping
from dliosim.execute.payload.shard_payload import part_keys
from dliosim.measure.records import VerbRecord
from dliosim.model import Checkpoint
from dliosim.plan.checkpoints.layout import METADATA, StateFiles


class SaveTarget(NamedTuple):
    """A checkpoint that is being saved."""

    #: number of the checkpoint
    number: int
    #: the directory that it is written in
    directory: Path
    #: the directory of all numbers of this checkpoint
    base: Path
    #: notes for the report: why it is not striped as asked, and what was removed of earlier jobs
    notes: tuple[str, ...]

    @property
    def final_directory(self) -> Path:
        """Return the directory that holds it once it is complete."""
        return self.base / f"{self.number:06d}"


class WriteResult(NamedTuple):
    """The result of writing a checkpoint on this rank."""

    #: the runs that this rank has written
    runs: list[Run]
    #: the plans of all ranks, (shards, 7); None if the checkpoint has no file of them, and on other ranks than 0
    plan: NDArray[np.int64] | None


def save(
    session: Session, files: StateFiles, failed: DliosimError | None, record: VerbRecord
) -> tuple[SaveTarget, WriteResult]:
    """Write a checkpoint, make it complete, and return where it was saved and what this rank has written. Collective.

    Raises DliosimError on every rank. `failed` is the error of an earlier save; see `begin_save`.
    """
    world, checkpoint = session.world, files.checkpoint
    # Checked before anything is created, so that a failure leaves nothing behind.
    world.run_on_all(
        lambda: require_memory(write_buffer_bytes(files, world.rank), world.node.size, _buffer_label(checkpoint))
    )
    target = begin_save(session, files, failed, record)
    keys = part_keys(checkpoint, files.parts, target.number)

    def generate_calls() -> Made:
        return generate_pieces(files, keys, world.rank, record)

    with session.progress.track_bytes(f"save {checkpoint.name}", lambda: files.owner_bytes(world.rank)):
        written = write_shares(session, files, target, generate_calls, record)
        complete_save(session, files, target, written, record)
    record.stall_ns = record.wall_ns
    return target, written


def begin_save(session: Session, files: StateFiles, failed: DliosimError | None, record: VerbRecord) -> SaveTarget:
    """Make the directory in which the next checkpoint is written. Collective; raises DliosimError on every rank.

    `failed` is the error that ended an earlier save of this checkpoint, as far as rank 0 knows; every rank raises it
    then.
    """
    checkpoint = files.checkpoint
    begun = perf_counter_ns()
    base = session.save_directory(checkpoint, files.split)

    def make_target() -> SaveTarget:
        if failed is not None:
            raise failed
        lock = session.locks.lock_to_save(base)
        copies = 1 if checkpoint.partner is None else 2
        require_space(base, copies * files.total(), f"checkpoint `{checkpoint.name}`")
        drained = session.drain_directory(checkpoint, files.split)
        # If the faster root was emptied, the other root may still hold copies with higher numbers.
        above = checkpoint_store.highest_number(drained) if drained is not None else 0
        number, directory = checkpoint_store.begin_checkpoint(lock, checkpoint.commit, above)
        if checkpoint.drain is not None:
            lock.add_pin(number)  # until it is drained
        refused = request_striping(directory, checkpoint.stripe)
        swept = [f"removed {name}, which an earlier job had not finished" for name in lock.swept]
        lock.swept.clear()
        return SaveTarget(number, directory, base, tuple(filter(None, (refused, *swept))))

    target = session.world.run_on_rank_0(f"make room for checkpoint `{checkpoint.name}`", make_target)
    record.wall_ns += perf_counter_ns() - begun
    return target


def write_shares(
    session: Session, files: StateFiles, target: SaveTarget, made: Callable[[], Made], record: VerbRecord
) -> WriteResult:
    """Write the share of each rank, and that of its partner, and return what this rank has written. Collective.

    Raises DliosimError on every rank. `made` returns the calls of this rank; each time it is called, they begin again.
    If it fails on any rank, nothing is left of the checkpoint. `wall_ns` counts neither the making of contents nor the
    time of other ranks: it ends on each rank before the rank waits for others.
    """
    world = session.world
    error: DliosimError | None = None
    runs: list[Run] = []
    plan: NDArray[np.int64] | None = None
    started, made_before = perf_counter_ns(), record.content_ns
    try:
        try:
            if files.checkpoint.metadata:
                plan = exchange_plans(world, files, record)
            runs = write_state(session, files, target.directory, made(), record)
        except DliosimError as failure:
            if failure.shared:
                raise
            if files.checkpoint.writers.kind in ("one per", "rank"):
                world.abort(failure)
            error = failure
        record.wall_ns += perf_counter_ns() - started - (record.content_ns - made_before)
        world.agree_on_error(error)
        if files.checkpoint.partner is not None:
            runs += copy_to_partner(session, files, files.checkpoint.partner, target.directory, made(), record)
            record.wall_ns += record.partner_ns
    except DliosimError:
        if world.rank == 0:
            checkpoint_store.abandon(session.locks.lock_to_save(target.base), target.number)
        raise
    return WriteResult(runs, plan)


def complete_save(
    session: Session, files: StateFiles, target: SaveTarget, written: WriteResult, record: VerbRecord
) -> None:
    """Make a written checkpoint complete. Collective. Raises DliosimError on every rank."""
    world, checkpoint = session.world, files.checkpoint
    begun = perf_counter_ns()

    gathered = gather_runs(world, files, written.runs)

    def finish() -> Path:
        try:
            return _commit(session, files, target, written.plan, gathered or [], record)
        except (DliosimError, OSError):
            checkpoint_store.abandon(session.locks.lock_to_save(target.base), target.number)
            raise

    world.run_on_rank_0(f"complete checkpoint `{checkpoint.name}`", finish)
    record.commit_ns = perf_counter_ns() - begun
    record.wall_ns += record.commit_ns


def _commit(
    session: Session,
    files: StateFiles,
    target: SaveTarget,
    plan: NDArray[np.int64] | None,
    gathered: list[NDArray[np.int64]],
    record: VerbRecord,
) -> Path:
    """Join what all ranks have written, commit it, and return the complete directory; for rank 0."""
    checkpoint = files.checkpoint
    found = join_runs(files, gathered)
    if plan is not None:
        planned = perf_counter_ns()
        found[METADATA] = write_metadata(files, plan, target.directory)
        record.plan_ns += perf_counter_ns() - planned
    digest, ranks = target.base.name, files.split.present_ranks
    saved = CheckpointManifest(checkpoint.name, digest, checkpoint.commit, ranks, files.split, found)
    done = checkpoint_store.commit(session.locks.lock_to_save(target.base), target.number, saved)
    record.directory_sync_ns, record.manifest_ns, record.rename_ns = done.sync_ns, done.manifest_ns, done.rename_ns
    return done.directory


def delete_old(session: Session, files: StateFiles, target: SaveTarget, record: VerbRecord) -> None:
    """Delete the checkpoints that `keep` does not keep. Collective. Raises DliosimError on every rank."""
    checkpoint, keep = files.checkpoint, files.checkpoint.keep
    if keep is None:
        return
    begun = perf_counter_ns()
    doing = f"delete old checkpoints `{checkpoint.name}`"
    session.world.run_on_rank_0(
        doing, lambda: checkpoint_store.delete_old(session.locks.lock_to_save(target.base), keep)
    )
    record.delete_ns += perf_counter_ns() - begun


def _buffer_label(checkpoint: Checkpoint) -> str:
    return f"buffers of checkpoint `{checkpoint.name}`"


def write_buffer_bytes(files: StateFiles, rank: int) -> int:
    """Return the bytes of write buffers of a rank: one for its own calls, one for those of its senders in turn."""
    return largest_call(files, rank) + sum(largest_call(files, sender) for sender in islice(files.senders(rank), 1))
