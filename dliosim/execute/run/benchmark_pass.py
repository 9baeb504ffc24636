"""The passes of a comparison: one loop, save or restore, run again and again, with separate checkpoint directories.

Variants that differ only in the api or in `commit` would share the directory of their description. They would number,
delete and restore each other's checkpoints, and those of earlier runs.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dliosim.execute.phases.context import Phase, PhaseLog, Session
from dliosim.execute.run.page_cache_residency import drop_caches, warm_caches, warm_checkpoints
from dliosim.execute.run.workload_runner import run_verbs
from dliosim.execute.store.manifest import resolve_in_root
from dliosim.model import Loop, Prepare, Restore, Save, Verb, Workload
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
    removes them. Collective to enter; raises ExecutionError [R405] on every rank if another job holds one.
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
    """Delete the checkpoints of a pass, so that none of their pages is written out while the next pass is measured.

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


def prepare_datasets(session: Session, prepared: set[Path]) -> list[Phase]:
    """Prepare the data sets of the workload except those with a directory in `prepared`, and add the new ones to it.

    Then copy what its `stage` verbs copy: a variant reads copies, and its passes do not make them.

    Returns the phase of each. Collective. Raises ExecutionError on every rank.
    """
    missing = []
    for verb, _ in flatten_verbs(session.workload.verbs):
        if isinstance(verb, Prepare):
            dataset = session.workload.dataset(verb.dataset)
            directory = session.directory(dataset.root, dataset.path, dataset.digest())
            if directory not in prepared:
                missing.append(verb)
            prepared.add(directory)
    return _run_alone(session, *missing, *dict.fromkeys(session.workload.stages()))


def run_pass(session: Session, verb: Loop | Save | Restore, cold: bool, first: bool) -> Phase:
    """Run one pass, from cold or warm caches; return its phase. What it saves is deleted at its end.

    Each pass of a loop has the same samples, draws, saves and inner loops. The first pass of a restore first saves the
    checkpoint that all passes read. Collective. Raises DliosimError on every rank.
    """
    if isinstance(verb, Restore) and first:
        _save_for_restore(session, verb)
    if cold:
        drop_caches(session)
    elif isinstance(verb, Loop):
        for dataset in session.workload.dataset(verb.dataset).members:
            warm_caches(session, dataset)
    elif isinstance(verb, Restore):
        warm_checkpoints(session)
    gc.collect()  # no pass pays for the garbage of the one before
    phases = _run_alone(session, verb)
    if not isinstance(verb, Restore):
        delete_checkpoints(session)
    return phases[0]


def _run_alone(session: Session, *verbs: Verb) -> list[Phase]:
    """Run verbs by themselves, without timelines; return their phases."""
    return run_verbs(replace(session, finished=PhaseLog()), verbs, timelines=0)


def _save_for_restore(session: Session, verb: Restore) -> None:
    """Save what the passes of a restore read, as its variant does."""
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    if verb.written_by is not None:
        checkpoint = replace(checkpoint, parallel=verb.written_by)
    _run_alone(replace(session, workload=replace(session.workload, checkpoints=(checkpoint,))), Save(checkpoint.name))
