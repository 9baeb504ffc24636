"""The passes of a comparison: one loop, save or restore, run again and again, with separate checkpoint directories.

Variants that differ only in the api or in `commit` would share the directory of their description. They would number,
delete and restore the checkpoints of each other, and those that were there before.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession, make_save_phase
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.context import Phase, Session
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.loop.training_loop import run_loop
from dliosim.execute.phase_summary import verb_phase
from dliosim.execute.run.page_cache_residency import drop_caches, warm_caches, warm_checkpoints
from dliosim.execute.store.manifest import resolve_in_root
from dliosim.model import Loop, Prepare, Restore, Save, Workload
from dliosim.model.verbs import flatten_verbs


def separate_checkpoints(workload: Workload, verb: Loop | Save | Restore, number: int) -> Workload:
    """Return the part of a workload that variant `number` (from 0) runs, with checkpoints in directories of its own.

    If the variant only saves or restores a checkpoint, nothing else of the workload is left.
    """
    checkpoints = tuple(replace(one, path=f"{one.path}/compare-{number + 1}") for one in workload.checkpoints)
    if isinstance(verb, Loop):
        return replace(workload, checkpoints=checkpoints)
    own = tuple(one for one in checkpoints if one.name == verb.checkpoint)
    verbs = (verb,) if isinstance(verb, Save) else (Save(verb.checkpoint), verb)
    return replace(workload, datasets=(), checkpoints=own, verbs=verbs, expectations=())


@contextmanager
def lock_variant_directories(sessions: Sequence[Session]) -> Iterator[None]:
    """Keep other jobs from saving to the directories of all variants, and delete these directories at the end.

    New directories above them are removed, too. A killed comparison leaves its directories; the next one overwrites and
    removes them. Collective to enter; raises ExecutionError [R405] on every rank where another job holds one.
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
    """Delete all that a pass has saved, so that none of its pages is written out while the next pass is measured.

    Collective. Raises DliosimError on every rank.
    """

    def delete() -> None:
        for place in _checkpoint_directories(session):
            for version in place.glob("*/*"):
                if version.is_dir():
                    shutil.rmtree(version)

    session.world.run_on_rank_0("delete the checkpoints of a pass", delete)


def _checkpoint_directories(session: Session) -> list[Path]:
    """Return the directories of this variant, by checkpoint and root."""
    checkpoints = session.workload.checkpoints
    found = [(one.path, root) for one in checkpoints for root in (one.root, one.drain) if root is not None]
    return [resolve_in_root(session.roots[root], path) for path, root in found]


def prepare_datasets(session: Session, prepared: set[Path]) -> Iterator[Phase]:
    """Prepare the data sets of the workload except those with a directory in `prepared`, and add the new ones to it.

    Yields the phase of each. Collective. Raises ExecutionError on every rank.
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


def run_pass(session: Session, verb: Loop | Save | Restore, cold: bool, first: bool) -> Phase:
    """Run one pass, from cold or warm caches; return its phase. What it saves is deleted at its end.

    Each pass of a loop has the same samples, draws and saves, with all that is inside of the loop. The first pass of a
    restore saves before what all its passes read. Collective. Raises DliosimError on every rank.
    """
    if isinstance(verb, Restore):
        if first:
            _save_for_restore(session, verb)
        return _run_restore_pass(session, verb, cold)
    phase = _run_save_pass(session, verb) if isinstance(verb, Save) else _run_loop_pass(session, verb, cold)
    delete_checkpoints(session)
    return phase


def _run_loop_pass(session: Session, loop: Loop, cold: bool) -> Phase:
    if cold:
        drop_caches(session)
    else:
        warm_caches(session, session.workload.dataset(loop.dataset))
    session.world.barrier()
    saved = [session.workload.checkpoint(cadence.checkpoint) for cadence in loop.checkpoints]
    with CheckpointSession(session, saved) as saves:
        phases = [each for each in run_loop(session, saves, loop, 0, timed=False) if isinstance(each, Phase)]
    if not phases:
        raise ExecutionError(f"`{loop.name}` gave no figures")
    return phases[0]


def _run_save_pass(session: Session, verb: Save) -> Phase:
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    with CheckpointSession(session, [checkpoint]) as saves:
        _synchronize_ranks(session)
        made = saves.save(checkpoint)
    return make_save_phase(session, made)


def _save_for_restore(session: Session, verb: Restore) -> None:
    """Save what the passes of a restore read, as its variant does."""
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    as_written = replace(checkpoint, parallel=verb.written_by) if verb.written_by is not None else checkpoint
    with CheckpointSession(session, [as_written]) as saves:
        saves.save(as_written)


def _run_restore_pass(session: Session, verb: Restore, cold: bool) -> Phase:
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    if cold:
        drop_caches(session)
    else:
        warm_checkpoints(session)
    _synchronize_ranks(session)
    record, notes = restore(session, checkpoint, verb)
    record.stall_ns = record.wall_ns  # no rank continues before it has what it restores
    return verb_phase(session, checkpoint.name, "restore", record, checkpoint.access, notes)


def _synchronize_ranks(session: Session) -> None:
    """Collect the garbage of the pass before, so that this pass does not pay for it, and begin together."""
    gc.collect()
    session.world.barrier()
