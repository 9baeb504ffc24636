"""The phase of a verb that writes or reads files, and the hints that it asked for and was granted."""

from __future__ import annotations

import numpy as np

from dliosim.execute.context import Phase, Session
from dliosim.execute.mpi.world import World
from dliosim.measure.phase import PhaseSummary
from dliosim.measure.records import VerbRecord
from dliosim.measure.summary import summarise_verb
from dliosim.model import Access

_Hints = tuple[tuple[str, str], ...]


def verb_phase(
    session: Session,
    name: str,
    kind: str,
    record: VerbRecord,
    access: Access | None,
    notes: tuple[str, ...] = (),
) -> Phase:
    """Return the phase of a verb, with figures on rank 0 only. Collective."""
    asked: _Hints = ()
    granted: _Hints = ()
    if access is not None:
        asked, granted = share_granted_hints(session.world, access, record.hints)
    summary = summarise_verb(record, session.world)
    seconds = summary.seconds if summary is not None else record.wall_ns * 1e-9
    share = summary.resident_share if summary is not None else None
    api = access.api if access is not None else None
    return Phase(
        PhaseSummary(
            name,
            kind,
            seconds,
            verb=summary,
            resident_share=share,
            api=api,
            hints_asked=asked,
            hints_granted=granted,
            hint_set=access.hint_set if access is not None else "library",
            notes=notes,
            root=record.root,
        )
    )


def share_granted_hints(world: World, access: Access, granted: dict[str, str] | None) -> tuple[_Hints, _Hints]:
    """Return the hints asked for, and those of the first rank that opened a file; none if no rank did. Collective."""
    first = int(world.allreduce(np.array([world.rank if granted is not None else world.size], np.int64), "min")[0])
    if first == world.size:
        return (), ()
    found = world.broadcast_object(granted if world.rank == first else None, first)
    return access.hints, tuple(sorted(found.items()))
