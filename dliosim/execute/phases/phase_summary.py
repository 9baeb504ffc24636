"""The phase of a verb that writes or reads files, and the hints that it asked for and was granted."""

from __future__ import annotations

from typing import Any

from dliosim.execute.mpi.world import World
from dliosim.execute.phases.context import Phase, Session
from dliosim.measure.figures.summary import summarise_verb
from dliosim.measure.rank.records import VerbRecord
from dliosim.measure.results.phase import PhaseSummary
from dliosim.model import Access

_Hints = tuple[tuple[str, str], ...]


def verb_phase(
    session: Session,
    name: str,
    kind: str,
    record: VerbRecord,
    access: Access | None,
    notes: tuple[str, ...] = (),
    **more: Any,
) -> Phase:
    """Return the phase of a verb, with figures, and `more` of a save or restore, on rank 0 only. Collective."""
    asked, granted = ((), ()) if access is None else share_granted_hints(session.world, access, record.hints)
    verb = summarise_verb(record, session.world)
    if verb is None:
        return Phase(PhaseSummary(name, kind, record.wall_ns * 1e-9))
    from dliosim.measure.results.file_phases import FILE_PHASES

    return Phase(
        FILE_PHASES[kind](
            name,
            kind,
            verb.seconds,
            verb=verb,
            resident_share=verb.resident_share,
            api=access.api if access is not None else None,
            hints_asked=asked,
            hints_granted=granted,
            hint_set=access.hint_set if access is not None else "library",
            notes=notes,
            root=record.root,
            **more,
        )
    )


def share_granted_hints(world: World, access: Access, granted: dict[str, str] | None) -> tuple[_Hints, _Hints]:
    """Return the hints asked for, and those of the first rank that opened a file; none if no rank did. Collective."""
    found = world.broadcast_first(granted)
    return ((), ()) if found is None else (access.hints, tuple(sorted(found.items())))
