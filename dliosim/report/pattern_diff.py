"""The differences between the inputs of runs: their patterns and their overrides."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import ABSENT
from dliosim.report.phase_titles import group_by

# The lines of a pattern name it if they are no more characters than this in all.
_LONGEST_LINES = 40


def input_differences(runs: Sequence[RunSummary]) -> list[list[str]]:
    """Return a text of each run for each kind of difference: pattern, overrides, options, kinds of file systems.

    Patterns of one workload are named by their differing lines if these are short, else by a letter.
    """
    kinds = [
        _name_patterns(runs),
        *([f"{name}={cell}" if cell != ABSENT else "" for cell in cells] for name, *cells in override_rows(runs)),
        *([f"--{option}" if getattr(run, option) else "" for run in runs] for option in ("null", "verify")),
        [list_kinds(run) for run in runs],
    ]
    return [texts for texts in kinds if len(set(texts)) > 1]


def override_rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Return rows of a name that -D gives and its value in each run, for names with different values."""
    values = [_overrides(run) for run in runs]
    names = dict.fromkeys(name for of_run in values for name in of_run)
    rows = [(name, *(of_run.get(name, ABSENT) for of_run in values)) for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def list_kinds(run: RunSummary) -> str:
    """Return the kinds of the file systems of a run, each once."""
    return ", ".join(dict.fromkeys(place.kind for place in run.environment.file_systems))


def pattern_names(runs: Sequence[RunSummary]) -> list[str]:
    """Return a letter for each run's pattern, or a number after the 26th; equal texts have the same one."""
    texts = list(dict.fromkeys(run.pattern for run in runs))
    letters = [chr(ord("A") + place) if place < 26 else str(place + 1) for place in range(len(texts))]
    return [letters[texts.index(run.pattern)] for run in runs]


def line_rows(runs: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    """Return a row for each line that some patterns lack, with the patterns that have it.

    Comments and indentation are left out.
    """
    lines = [dict.fromkeys(_lines(run.pattern)) for run in runs]
    some = dict.fromkeys(line for of_run in lines for line in of_run)
    return [
        (line, *("yes" if line in of_run else ABSENT for of_run in lines))
        for line in some
        if any(line not in of_run for of_run in lines)
    ]


def _name_patterns(runs: Sequence[RunSummary]) -> list[str]:
    names = pattern_names(runs)
    if len({run.name for run in runs}) > 1 or len(set(names)) < 2:
        return [""] * len(runs)
    rows = line_rows(runs)
    own = [", ".join(line for line, *cells in rows if cells[i] != ABSENT) for i in range(len(runs))]
    lines_tell = max(map(len, own)) <= _LONGEST_LINES and len(set(own)) == len(set(names))
    return own if lines_tell else [f"pattern {name}" for name in names]


def _overrides(run: RunSummary) -> dict[str, str]:
    """Return values by name; a name that is given several times has all of them, as each may change another part."""
    pairs = group_by(run.overrides, lambda pair: pair[0])
    return {name: ", ".join(value for _, value in some) for name, some in pairs.items()}


def _lines(pattern: str) -> list[str]:
    stripped = (" ".join(line.split()) for line in pattern.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]
