"""In what the inputs of runs differ: their patterns and their overrides."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.run_summary import RunSummary
from dliosim.readable import ABSENT


def override_rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """`-D name` and its value in each run, for the names whose values are not the same in all."""
    values = [_overrides(run) for run in runs]
    names = dict.fromkeys(name for of_run in values for name in of_run)
    rows = [(f"-D {name}", *(of_run.get(name, ABSENT) for of_run in values)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def pattern_names(runs: Sequence[RunSummary]) -> list[str]:
    """A letter, or a number after the 26th, for each run's pattern: the same for the same text."""
    texts = list(dict.fromkeys(run.pattern for run in runs))
    return [_letter(texts.index(run.pattern)) for run in runs]


def line_rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Each line of the patterns that not all have, and in which they are; without comments and indentation."""
    lines = [dict.fromkeys(_lines(run.pattern)) for run in runs]
    some = dict.fromkeys(line for of_run in lines for line in of_run)
    return [
        (line, *("yes" if line in of_run else ABSENT for of_run in lines))
        for line in some
        if any(line not in of_run for of_run in lines)
    ]


def _overrides(run: RunSummary) -> dict[str, str]:
    """Values by name; one given several times has all of them, as each may be for another part."""
    found: dict[str, str] = {}
    for name, value in run.overrides:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def _lines(pattern: str) -> list[str]:
    stripped = (" ".join(line.split()) for line in pattern.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]
