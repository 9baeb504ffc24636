"""Titles of phases, and groups of the phases of one verb or loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dliosim.measure.results.phase import PhaseSummary
from dliosim.measure.results.run_summary import RestorePhase

K = TypeVar("K")
T = TypeVar("T")
P = TypeVar("P", bound=PhaseSummary)


def title_of(phase: PhaseSummary) -> str:
    """Return the title of a phase: keyword, name (if it adds to the keyword), and its distinguishing options."""
    return f"{_verb_of(phase)} {phase.how}".rstrip() if isinstance(phase, RestorePhase) else _verb_of(phase)


def short_titles(phases: Sequence[PhaseSummary]) -> list[str]:
    """Return the titles of phases for a narrow column: options of a restore are left out if its name is unique."""
    verbs = [_verb_of(phase) for phase in phases]
    return [verb if verbs.count(verb) == 1 else title_of(phase) for verb, phase in zip(verbs, phases, strict=True)]


def _verb_of(phase: PhaseSummary) -> str:
    return phase.name if phase.name.startswith(phase.kind) else f"{phase.kind} {phase.name}".rstrip()


def group_phases(phases: Sequence[P]) -> list[list[P]]:
    """Return the runs of each verb or loop as a group, in the order of their first runs."""
    return list(group_by(phases, title_of).values())


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items that have the same key as a group, in the order of their first ones."""
    groups: dict[K, list[T]] = {}
    for one in items:
        groups.setdefault(key(one), []).append(one)
    return groups


def name_epochs(numbers: Sequence[int]) -> str:
    """Return epochs by their numbers, from 1: `epochs 2 to 5`; empty if there are none."""
    if len(numbers) < 2:
        return f"epoch {numbers[0]}" if numbers else ""
    if len(numbers) > 2 and len(numbers) == numbers[-1] - numbers[0] + 1:
        return f"epochs {numbers[0]} to {numbers[-1]}"
    return f"epochs {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
