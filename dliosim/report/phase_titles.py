"""What phases are called, and which of them are runs of the same verb or loop."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.phase import PhaseSummary

# Longer names are cut in tables; the conditions above them have them whole.
_LONGEST = 32


def title_of(phase: PhaseSummary) -> str:
    """What a phase is called: its keyword, its name where that says more, and what tells it from others of the name."""
    name = phase.name if phase.name.startswith(phase.kind) else f"{phase.kind} {phase.name}".rstrip()
    return f"{name} {phase.how}".rstrip()


def shorten_name(name: str) -> str:
    """A name that leaves room for figures: its beginning and its end."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 15]}...{name[-12:]}"


def group_phases(phases: Sequence[PhaseSummary]) -> list[list[PhaseSummary]]:
    """All runs of the same verb or loop together, in the order of the first ones."""
    groups: dict[str, list[PhaseSummary]] = {}
    for phase in phases:
        groups.setdefault(title_of(phase), []).append(phase)
    return list(groups.values())
