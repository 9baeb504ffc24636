"""Saving a checkpoint while the ranks wait: begun, written, and completed; what it took, contents not counted."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError
from dliosim.execute import versions
from dliosim.execute.savedfiles import SavedFiles
from dliosim.execute.session import Session
from dliosim.execute.shardcontent import part_keys
from dliosim.execute.space import require_memory, require_space
from dliosim.execute.statemetadata import agree_on_plan, gather_written, joined, write_metadata
from dliosim.execute.statewriting import Made, Run, generated, largest_call, write_state
from dliosim.execute.striping import ask_for_striping
from dliosim.measure.records import VerbRecord
from dliosim.model import Checkpoint
from dliosim.plan.statefiles import METADATA, StateFiles, state_files


class Target(NamedTuple):
    """A checkpoint that is being saved: its number, the directory it is written in, and the one of all its numbers."""

    number: int
    directory: Path
    base: Path


class Written(NamedTuple):
    """What this rank has written of a checkpoint, and on rank 0 all ranks' plans where it has a file of them."""

    runs: list[Run]
    plan: NDArray[np.int64] | None


def save(session: Session, checkpoint: Checkpoint) -> VerbRecord:
    """Write a checkpoint and make it complete; collective. Raises DliosimError on every rank."""
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record
    files = state_files(checkpoint, checkpoint.split(world.size))
    # Asked before anything is made, so that nothing is left where it fails.
    world.together(lambda: require_memory(_buffers(files, world.rank), world.node.size, _what(checkpoint)))
    target = begin(session, files)
    made = generated(files, part_keys(checkpoint, files.parts, target.number), world.rank, record)
    with session.progress.during(f"save {checkpoint.name}", lambda: files.owned_bytes(world.rank)):
        written = write_all(session, files, target, made, record)
        complete(session, files, target, written, record)
    record.stall_ns = record.wall_ns
    delete_old(session, files, target, record)
    return record


def begin(session: Session, files: StateFiles) -> Target:
    """Make the directory in which the next checkpoint is written. Collective; raises DliosimError on every rank."""
    checkpoint = files.checkpoint
    base = session.directory(checkpoint.root, checkpoint.path, checkpoint.digest(files.split))

    def make() -> Target:
        hold = session.locks.to_save(base)
        require_space(base, files.total(), f"checkpoint `{checkpoint.name}`")
        number, directory = versions.begin(hold, checkpoint.commit)
        if checkpoint.stripe is not None:
            ask_for_striping(directory, checkpoint.stripe)
        return Target(number, directory, base)

    return session.world.on_rank_0(f"make room for checkpoint `{checkpoint.name}`", make)


def write_all(session: Session, files: StateFiles, target: Target, made: Made, record: VerbRecord) -> Written:
    """Write every rank's share; what this rank has written. Collective. Raises DliosimError on every rank.

    If it fails anywhere, nothing is left of the checkpoint. Time spent on contents is no part of `wall_ns`, nor is that
    of others: a rank's own ends before it waits for them.
    """
    world = session.world
    error: DliosimError | None = None
    runs: list[Run] = []
    plan: NDArray[np.int64] | None = None
    started, made_before = perf_counter_ns(), record.content_ns
    try:
        try:
            if files.checkpoint.metadata:
                plan = agree_on_plan(world, files, record)
            runs = write_state(session, files, target.directory, made, record)
        except DliosimError as failure:
            if failure.shared:
                raise
            if files.checkpoint.writers.kind in ("one per", "rank"):
                world.abort(failure)
            error = failure
        record.wall_ns += perf_counter_ns() - started - (record.content_ns - made_before)
        world.agree(error)
    except DliosimError:
        if world.rank == 0:
            versions.abandon(session.locks.to_save(target.base), target.number)
        raise
    return Written(runs, plan)


def complete(session: Session, files: StateFiles, target: Target, written: Written, record: VerbRecord) -> None:
    """Make a written checkpoint complete. Collective. Raises DliosimError on every rank."""
    world, checkpoint = session.world, files.checkpoint
    begun = perf_counter_ns()

    gathered = gather_written(world, files, written.runs)

    def finish() -> Path:
        found = joined(files, gathered or [])
        if written.plan is not None:
            planned = perf_counter_ns()
            found[METADATA] = write_metadata(files, written.plan, target.directory)
            record.plan_ns += perf_counter_ns() - planned
        digest, ranks = target.base.name, files.split.present
        saved = SavedFiles(checkpoint.name, digest, checkpoint.commit, ranks, files.split, found)
        done = versions.commit(session.locks.to_save(target.base), target.number, saved)
        record.directory_sync_ns, record.manifest_ns, record.rename_ns = done.sync_ns, done.manifest_ns, done.rename_ns
        return done.directory

    world.on_rank_0(f"complete checkpoint `{checkpoint.name}`", finish)
    record.commit_ns = perf_counter_ns() - begun
    record.wall_ns += record.commit_ns


def delete_old(session: Session, files: StateFiles, target: Target, record: VerbRecord) -> None:
    """Delete what `keep` does not keep. Collective. Raises DliosimError on every rank."""
    checkpoint, keep = files.checkpoint, files.checkpoint.keep
    if keep is None:
        return
    begun = perf_counter_ns()
    doing = f"delete old checkpoints `{checkpoint.name}`"
    session.world.on_rank_0(doing, lambda: versions.delete_old(session.locks.to_save(target.base), keep))
    record.delete_ns = perf_counter_ns() - begun


def _what(checkpoint: Checkpoint) -> str:
    return f"buffers of checkpoint `{checkpoint.name}`"


def _buffers(files: StateFiles, rank: int) -> int:
    """Bytes of buffers: one's own calls are made in one, those of the others come into another, by turns."""
    return largest_call(files, rank) + sum(largest_call(files, sender) for sender in islice(files.senders(rank), 1))
