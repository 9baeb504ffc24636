"""The differences between the inputs of runs: their patterns and their overrides."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.run_summary import RunSummary
from dliosim.readable import ABSENT


def override_rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Return rows of `-D name` and its value in each run, for names with different values."""
    values = [_overrides(run) for run in runs]
    names = dict.fromkeys(name for of_run in values for name in of_run)
    rows = [(f"-D {name}", *(of_run.get(name, ABSENT) for of_run in values)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def pattern_names(runs: Sequence[RunSummary]) -> list[str]:
    """Return a letter for each run's pattern, or a number after the 26th; equal texts have the same one."""
    texts = list(dict.fromkeys(run.pattern for run in runs))
    return [_letter(texts.index(run.pattern)) for run in runs]


def line_rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Return a row for each line that not all patterns have, with the patterns that have it.

    Comments and indentation are left out.
    """
    lines = [dict.fromkeys(_lines(run.pattern)) for run in runs]
    some = dict.fromkeys(line for of_run in lines for line in of_run)
    return [
        (line, *("yes" if line in of_run else ABSENT for of_run in lines))
        for line in some
        if any(line not in of_run for of_run in lines)
    ]


def _overrides(run: RunSummary) -> dict[str, str]:
    """Return values by name; a name that is given several times has all of them, as each may change another part."""
    found: dict[str, str] = {}
    for name, value in run.overrides:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def _lines(pattern: str) -> list[str]:
    stripped = (" ".join(line.split()) for line in pattern.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]
