"""Checkpoints of a comparison: each variant saves in a directory of its own, and nothing of them is left.

Variants that differ in the api or in `commit` alone would share the directory of their description, and would number,
delete and restore each other's checkpoints, and those that were there before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dliosim.execute.context import Session
from dliosim.execute.store.manifest import inside
from dliosim.model import Loop, Restore, Save, Workload


def apart(workload: Workload, verb: Loop | Save | Restore, number: int) -> Workload:
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
def own_directories(sessions: Sequence[Session]) -> Iterator[None]:
    """A block in which no other job saves where `apart` says, and at whose end nothing of that is left.

    Directories above that were not there are removed, too. What a killed comparison leaves, the next one saves over,
    and removes. Collective to enter; raises ExecutionError [R405] on every rank where another job is there.
    """
    world = sessions[0].world
    own = [place for session in sessions for place in _places(session)]
    above = {parent for place in own for parent in place.parents if not parent.exists()}
    for session in sessions:
        world.on_rank_0("lock the checkpoints", session.lock_checkpoints)
    try:
        yield
    finally:
        if world.rank == 0:
            for place in own:
                shutil.rmtree(place, ignore_errors=True)
            for parent in sorted(above, key=lambda one: len(one.parts), reverse=True):
                with suppress(OSError):
                    parent.rmdir()


def delete_saved(session: Session) -> None:
    """Delete all that a pass has saved, so that none of its pages is written out while the next one is measured.

    Collective. Raises DliosimError on every rank.
    """

    def delete() -> None:
        for place in _places(session):
            for version in place.glob("*/*"):
                if version.is_dir():
                    shutil.rmtree(version)

    session.world.on_rank_0("delete the checkpoints of a pass", delete)


def _places(session: Session) -> list[Path]:
    """The directories of this variant's own, by checkpoint and root."""
    checkpoints = session.workload.checkpoints
    found = [(one.path, root) for one in checkpoints for root in (one.root, one.drain) if root is not None]
    return [inside(session.roots[root], path) for path, root in found]
