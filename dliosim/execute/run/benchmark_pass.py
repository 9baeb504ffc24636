"""One loop, save or restore alone, over and over: what a comparison of its variants needs of a session."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.checkpoint_manager import Saves, save_phase
from dliosim.execute.checkpoints.restore import restore
from dliosim.execute.context import Phase, Session
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.loop.training_loop import run_loop
from dliosim.execute.mpi.world import World
from dliosim.execute.phase_summary import verb_phase
from dliosim.execute.run.compare_dirs import delete_saved
from dliosim.execute.run.page_cache_residency import drop_caches, warm_caches, warm_checkpoints
from dliosim.measure.records import VerbRecord
from dliosim.model import Loop, Prepare, Restore, Save
from dliosim.model.verbs import flat

_COMPLETING: Final = ("commit", "manifest", "directory_sync")


def prepare_data(session: Session, prepared: set[Path]) -> Iterator[Phase]:
    """Prepare the data sets that the workload prepares, but those whose directories are in `prepared`; adds theirs.

    Collective. Raises ExecutionError on every rank.
    """
    for verb, _ in flat(session.workload.verbs):
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


def run_pass(session: Session, loop: Loop, cold: bool) -> Phase:
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
    with Saves(session, saved) as saves:
        phases = [each for each in run_loop(session, saves, loop, 0, timed=False) if isinstance(each, Phase)]
    delete_saved(session)
    if not phases:
        raise ExecutionError(f"`{loop.name}` gave no figures")
    return phases[0]


def save_pass(session: Session, verb: Save) -> tuple[Phase, dict[str, float]]:
    """One save; its phase, and how long `completing` it took. What it has saved is deleted when it is over.

    Collective. Raises DliosimError on every rank.
    """
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    with Saves(session, [checkpoint]) as saves:
        _settle(session)
        made = saves.save(checkpoint)
    phase = save_phase(session, made)
    delete_saved(session)
    return phase, _completing(made.record, session.world)


def save_to_restore(session: Session, verb: Restore) -> None:
    """Save what the passes of a restore read, as its variant does. Collective. Raises DliosimError on every rank."""
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    as_written = replace(checkpoint, parallel=verb.written_by) if verb.written_by is not None else checkpoint
    with Saves(session, [as_written]) as saves:
        saves.save(as_written)


def restore_pass(session: Session, verb: Restore, cold: bool) -> Phase:
    """One restore, from caches that are cold or warm; its phase. Collective. Raises DliosimError on every rank."""
    checkpoint = session.workload.checkpoint(verb.checkpoint)
    if cold:
        drop_caches(session)
    else:
        warm_checkpoints(session)
    _settle(session)
    record, notes = restore(session, checkpoint, verb)
    record.stall_ns = record.wall_ns  # nobody goes on before it has what it restores
    return verb_phase(session, checkpoint.name, "restore", record, checkpoint.access, notes)


def _completing(record: VerbRecord, world: World) -> dict[str, float]:
    """How long making complete what was written took the rank that took longest, and parts of that, in seconds."""
    longest = world.allreduce(np.array([getattr(record, f"{name}_ns") for name in _COMPLETING], np.int64), "max")
    return dict(zip(_COMPLETING, (longest * 1e-9).tolist(), strict=True))


def _settle(session: Session) -> None:
    """Begin together, and let the garbage of the pass before not be part of this one."""
    gc.collect()
    session.world.barrier()
