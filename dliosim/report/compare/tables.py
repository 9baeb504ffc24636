"""The common parts of a comparison's report: conditions, names of variants, verdicts, and variants that did not run."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from dliosim.compare.result import Outcome, P, VariantResult
from dliosim.compare.statistics import VariantComparison
from dliosim.readable import ABSENT, count, number, seconds
from dliosim.report.conditions import align_rows, environment_rows
from dliosim.report.text_table import WIDTH, grid


@dataclass(frozen=True, slots=True)
class FigureColumn(Generic[P]):
    """A figure of a variant in a table."""

    heading: str  #: heading of the column
    figure: Callable[[VariantResult[P]], float | None]  #: the figure of a variant
    show: Callable[[float | None], str]  #: the figure as text
    optional: bool = False  #: True if the column is left out where the figure is 0 or None in every variant


def format_time(value: float | None) -> str:
    """Return a time for a table."""
    return seconds(value, 3)


def format_percent(share: float | None) -> str:
    """Return a share for a column of per cents."""
    return ABSENT if share is None else number(100 * share, 3)


def format_figure(value: float | None) -> str:
    """Return another figure for a table."""
    return number(value, 3)


def comparison_report(
    outcome: Outcome[P],
    tables: Callable[[Outcome[P], list[str]], Sequence[str]],
    verdict: Callable[[Outcome[P]], list[str]],
) -> str:
    """Return all that a comparison prints at its end, at most `text_table.WIDTH` columns wide except for long labels.

    `tables` makes its tables with the names of variants that are given.
    """
    labels = _table_names(outcome)
    named = zip(outcome.measured, labels, strict=True)
    short = replace(outcome, measured=tuple(replace(one, label=label) for one, label in named))
    sections = [
        _header(outcome),
        _legend(outcome, labels),
        *tables(outcome, labels),
        "\n".join(textwrap.fill(sentence, WIDTH, subsequent_indent="    ") for sentence in verdict(short)),
        _not_run(outcome),
        f"whole comparison: {seconds(outcome.total_seconds)}",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def verdict_table(
    outcome: Outcome[P],
    names: list[str],
    headings: Sequence[str],
    figures: Sequence[Callable[[VariantResult[P]], str]],
    said: str,
) -> str:
    """Return a row for each variant: its figures, and its comparison with the first."""
    rows = [
        [name, *(figure(one) for figure in figures), *_verdict_cells(outcome.comparison_of(place))]
        for place, (name, one) in enumerate(zip(names, outcome.measured, strict=True))
    ]
    title = (
        f"{outcome.what}: medians of {count(outcome.repetitions, 'pass', 'passes')}; {said} "
        "from the ratios within each block (not of the medians), 95 % intervals and p of all variants together"
    )
    return grid(title, ["variant", *headings, "from", "to", "p", "would\nshow", "verdict"], rows)


def columns_table(outcome: Outcome[P], names: list[str], columns: Sequence[FigureColumn[P]], title: str) -> str:
    """Return a row for each variant, without the optional columns that are empty."""
    some = [one for one in columns if not one.optional or any(one.figure(each) for each in outcome.measured)]
    rows = [
        [name, *(column.show(column.figure(one)) for column in some)]
        for name, one in zip(names, outcome.measured, strict=True)
    ]
    return grid(title, ["variant", *(column.heading for column in some)], rows, [1] * len(some))


def sweep_table(outcome: Outcome[P], figure: Callable[[VariantResult[P]], str], what: str) -> str:
    """Return a figure as a table of two varied names, the first downwards and the second across; empty for others."""
    if len(outcome.varied) != 2 or min(len(one.values) for one in outcome.varied) < 2:
        return ""
    down, across = outcome.varied
    found = {tuple(one.values): one for one in outcome.measured}
    rows = []
    for first in down.values:
        cells = [found.get(((down.name, first), (across.name, second))) for second in across.values]
        rows.append([first, *(ABSENT if one is None else figure(one) for one in cells)])
    title = f"{outcome.what}: {what} by {down.name} (down) and {across.name} (across)"
    return grid(title, [down.name, *across.values], rows, [1] * len(across.values))


def _header(outcome: Outcome[P]) -> str:
    passes = count(outcome.repetitions, "pass", "passes")
    rows = [
        (
            "comparison",
            f"{outcome.name}: {_subject(outcome)}, {count(len(outcome.measured), 'variant')}, {passes} of each",
        ),
        *(("override", f"-D {name}={value}") for name, value in outcome.overrides),
        (
            "order",
            f"random in each of {count(outcome.repetitions, 'block')}, seed {outcome.seed}; a warm-up each before",
        ),
        *([("caches", f"{outcome.caches} before each pass")] if outcome.caches else []),
        *environment_rows(outcome.environment, outcome.ranks, outcome.nodes),
    ]
    for phase in outcome.prepared:
        rows += [("note", f"{phase.name}: {note}") for note in phase.notes]
    return align_rows(rows)


def _subject(outcome: Outcome[P]) -> str:
    """Return the target with its kind: `loop NAME`; `save NAME` has it already."""
    return outcome.what if " " in outcome.what else f"loop {outcome.what}"


def _table_names(outcome: Outcome[P]) -> list[str]:
    """Return the names of variants in tables: labels, or numbers with a legend where a label is too long."""
    labels = [one.label for one in outcome.measured]
    if max(map(len, labels)) <= 44:
        return labels
    return [f"({number + 1})" for number in range(len(labels))]


def _legend(outcome: Outcome[P], names: list[str]) -> str:
    lines = []
    # Notes that all variants have are printed once.
    common = [note for note in outcome.measured[0].notes if all(note in one.notes for one in outcome.measured)]
    for name, one in zip(names, outcome.measured, strict=True):
        added = f" (added: {one.added})" if one.added else ""
        label = "" if name == one.label else f" {one.label}"
        alone = "" if not _has_no_aggregation(one) else ": independent reads in a collective call, no aggregation"
        notes = "".join(f"; {note}" for note in one.notes if note not in common)
        if label or added or alone or notes:
            lines.append(f"{name}{label}{added}{alone}{notes}")
    lines += [textwrap.fill(f"all variants: {note}", WIDTH, subsequent_indent=" " * 4) for note in common]
    return "\n".join(lines)


def _has_no_aggregation(one: VariantResult[P]) -> bool:
    return one.api == "mpi-collective" and dict(one.hints_asked).get("romio_cb_read") == "disable"


def _verdict_cells(found: VariantComparison | None) -> list[str]:
    if found is None:
        return ["1", "", "", "", "", "reference"]
    p = number(found.p_adjusted, 2)
    return [number(found.ratio), number(found.low), number(found.high), p, number(found.smallest, 3), found.verdict]


def _not_run(outcome: Outcome[P]) -> str:
    reasons: dict[str, list[str]] = {}
    for one in outcome.not_run:
        reasons.setdefault(one.reason, []).append(one.label)
    lines = [f"not run: {reason}: {'; '.join(labels)}" for reason, labels in reasons.items()]
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines)
