"""One loop, save or restore of a comparison, run again and again, each variant with checkpoint directories of its own.

Variants that differ in the api or in `commit` alone would share the directory of their description, and would number,
delete and restore each other's checkpoints, and those that were there before.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.checkpoint_manager import CheckpointManager, make_save_phase
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.context import Phase, Session
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.loop.training_loop import run_loop
from dliosim.execute.mpi.world import World
from dliosim.execute.phase_summary import verb_phase
from dliosim.execute.run.page_cache_residency import drop_caches, warm_caches, warm_checkpoints
from dliosim.execute.store.manifest import resolve_in_root
from dliosim.measure.records import VerbRecord
from dliosim.model import Loop, Prepare, Restore, Save, Workload
from dliosim.model.verbs import flatten_verbs


def separate_checkpoints(workload: Workload, verb: Loop | Save | Restore, number: int) -> Workload:
    """What is run of the workload of a comparison's variant `number` (from 0), its checkpoints in their own places.

    Of a workload of which only a checkpoint is saved, or restored, nothing else is left.
    """
    checkpoints = tuple(replace(one, path=f"{one.path}/compare-{number + 1}") for one in workload.checkpoints)
    if isinstance(verb, Loop):
        return replace(workload, checkpoints=checkpoints)
    own = tuple(one for one in checkpoints if one.name == verb.checkpoint)
    verbs = (verb,) if isinstance(verb, Save) else (Save(verb.checkpoint), verb)
    return replace(workload, datasets=(), checkpoints=own, verbs=verbs, expectations=())


@contextmanager
def lock_variant_directories(sessions: Sequence[Session]) -> Iterator[None]:
    """A block in which no other job saves where `apart` says, and at whose end nothing of that is left.

    Directories above that were not there are removed, too. What a killed comparison leaves, the next one saves over,
    and removes. Collective to enter; raises ExecutionError [R405] on every rank where another job is there.
    """
    world = sessions[0].world
    own = [place for session in sessions for place in _checkpoint_directories(session)]
    above = {parent for place in own for parent in place.parents if not parent.exists()}
    for session in sessions:
        world.run_on_rank_0("lock the checkpoints", session.lock_checkpoints)
    try:
        yield
    finally:
        if world.rank == 0:
            for place in own:
                shutil.rmtree(place, ignore_errors=True)
            for parent in sorted(above, key=lambda one: len(one.parts), reverse=True):
                with suppress(OSError):
                    parent.rmdir()


def delete_checkpoints(session: Session) -> None:
    """Delete all that a pass has saved, so that none of its pages is written out while the next one is measured.

    Collective. Raises DliosimError on every rank.
    """

    def delete() -> None:
        for place in _checkpoint_directories(session):
            for version in place.glob("*/*"):
                if version.is_dir():
                    shutil.rmtree(version)

    session.world.run_on_rank_0("delete the checkpoints of a pass", delete)


def _checkpoint_directories(session: Session) -> list[Path]:
    """The directories of this variant's own, by checkpoint and root."""
    checkpoints = session.workload.checkpoints
    found = [(one.path, root) for one in checkpoints for root in (one.root, one.drain) if root is not None]
    return [resolve_in_root(session.roots[root], path) for path, root in found]


_COMPLETING: Final = ("commit", "manifest", "directory_sync")


def prepare_datasets(session: Session, prepared: set[Path]) -> Iterator[Phase]:
    """Prepare the data sets that the workload prepares, but those whose directories are in `prepared`; adds theirs.

    Collective. Raises ExecutionError on every rank.
    """
    for verb, _ in flatten_verbs(session.workload.verbs):
        if not isinstance(verb, Prepare):
            continue
        dataset = session.workload.dataset(verb.dataset)
        directory = session.directory(dataset.root, dataset.path, dataset.digest())
        if directory in prepared:
            continue
        prepared.add(directory)
        session.world.barrier()
        record, notes = prepare(session, verb, dataset)
        record.root = dataset.root
        yield verb_phase(session, dataset.name, "prepare", record, verb.access, notes)


def run_loop_pass(session: Session, loop: Loop, cold: bool) -> Phase:
    """A whole pass of a loop, with everything inside it, from caches that are cold or warm; its own phase.

    The same samples, draws and saves each time; what is saved is deleted when it is over. Collective. Raises
    DliosimError on every rank.
    """
    if cold:
        drop_caches(session)
    else:
        warm_caches(session, session.workload.dataset(loop.dataset))
    session.world.barrier()
    saved = [session.workload.checkpoint(cadence.checkpoint) for cadence in loop.checkpoints]
    with CheckpointManager(session, saved) as saves:
        phases = [each for each in run_loop(session, saves, loop, 0, timed=False) if isinstance(each, Phase)]
    delete_checkpoints(session)
    if not phases:
        raise ExecutionError(f"`{loop.name}` gave no figures")
    return phases[0]


def run_save_pass(session: Session, verb: Save) -> tuple[Phase, dict[str, float]]:
    """One save; its phase, and how long `completing` it took. What it has saved is deleted when it is over.

    Collective. Raises DliosimError on every rank.
    """
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    with CheckpointManager(session, [checkpoint]) as saves:
        _synchronize_ranks(session)
        made = saves.save(checkpoint)
    phase = make_save_phase(session, made)
    delete_checkpoints(session)
    return phase, _commit_seconds(made.record, session.world)


def save_for_restore(session: Session, verb: Restore) -> None:
    """Save what the passes of a restore read, as its variant does. Collective. Raises DliosimError on every rank."""
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    as_written = replace(checkpoint, parallel=verb.written_by) if verb.written_by is not None else checkpoint
    with CheckpointManager(session, [as_written]) as saves:
        saves.save(as_written)


def run_restore_pass(session: Session, verb: Restore, cold: bool) -> Phase:
    """One restore, from caches that are cold or warm; its phase. Collective. Raises DliosimError on every rank."""
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    if cold:
        drop_caches(session)
    else:
        warm_checkpoints(session)
    _synchronize_ranks(session)
    record, notes = restore(session, checkpoint, verb)
    record.stall_ns = record.wall_ns  # nobody goes on before it has what it restores
    return verb_phase(session, checkpoint.name, "restore", record, checkpoint.access, notes)


def _commit_seconds(record: VerbRecord, world: World) -> dict[str, float]:
    """How long making complete what was written took the rank that took longest, and parts of that, in seconds."""
    longest = world.allreduce(np.array([getattr(record, f"{name}_ns") for name in _COMPLETING], np.int64), "max")
    return dict(zip(_COMPLETING, (longest * 1e-9).tolist(), strict=True))


def _synchronize_ranks(session: Session) -> None:
    """Begin together, and let the garbage of the pass before not be part of this one."""
    gc.collect()
    session.world.barrier()
