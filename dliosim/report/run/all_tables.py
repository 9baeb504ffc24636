"""All tables of a run: conditions, verbs that touched files, each loop, expectations and hashes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TypeAlias

from dliosim.measure.answers.validity import doubt_of_utilization
from dliosim.measure.figures.aggregate import Latencies
from dliosim.measure.figures.declaration import ResultFigure, result_figures
from dliosim.measure.figures.epoch_summaries import VerbSummary
from dliosim.measure.results.file_phases import FilePhase, SavePhase
from dliosim.measure.results.run_summary import ExpectationResult, RunSummary
from dliosim.readable import number, percent, seconds, size
from dliosim.report.phase_titles import group_phases, name_epochs, title_of
from dliosim.report.run.answer_lines import answer_lines
from dliosim.report.run.checkpoints import checkpoint_tables
from dliosim.report.run.conditions import format_notes, header
from dliosim.report.run.loops import latency_cells, loop_tables
from dliosim.report.run.warnings import format_warnings
from dliosim.report.text_table import Column, format_columns, grid, percent_cell, shorten_name, time_cell
from dliosim.report.words import sentence

#: A column of the table of files: a row is about all runs of a verb.
_VerbColumn: TypeAlias = Column[list[FilePhase]]

#: Words for what is left of a verb's time.
_REST = "rest_seconds"


def run_report(run: RunSummary, latencies: Mapping[str, Latencies]) -> str:
    """Return all tables of a run, at most 120 columns wide; `latencies` as of `loops.latencies_by_loop`."""
    loops = [
        loop_tables(group, latencies[title_of(group[0])], doubt_of_utilization(run, group, answer), answer)
        for group, answer in zip_longest(group_phases(run.loops), run.answers)
    ]
    sections = [
        answer_lines(run),
        header(run),
        format_warnings(run),
        "" if run.null else _file_table(run.files),
        checkpoint_tables(run),
        *loops,
        _end_section(run),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def expectation_line(result: ExpectationResult, reason: str = "") -> str:
    """Return the line about the result of an `expect`; `reason` stands for the sentence of why it is not judged."""
    if result.measured is None:
        measured = "nothing was measured" if result.reported_only is None else ""
    elif result.unit == "ratio":
        measured = percent(result.measured)
    elif result.unit == "s":
        measured = seconds(result.measured)
    elif result.unit == "B/s":
        measured = f"{size(result.measured)}/s"
    else:
        measured = f"{number(result.measured)} {result.unit}"
    found = ", ".join(filter(None, [measured, name_epochs(result.epochs)]))
    if result.reported_only is not None:
        return f"not judged: expect {result.text} ({found}): {reason or sentence(result.reported_only)}"
    return f"{'held' if result.held else 'MISSED'}: expect {result.text} ({found})"


def _file_table(phases: Sequence[FilePhase]) -> str:
    """Return a row for each verb that wrote, read or dropped files; one row for all runs of the same verb."""
    groups = [group for group in group_phases(phases) if any(one.seconds or one.verb.bytes for one in group)]
    if not groups:
        return format_notes(phases)
    verbs = [phase.verb for phase in phases]
    completing = [
        one
        for one in result_figures(VerbSummary, "completing")
        if any(getattr(phase.verb, one.name).max for phase in phases if isinstance(phase, SavePhase))
    ]
    amounts = [
        one
        for one in result_figures(VerbSummary, "amounts")
        if any(getattr(verb, one.name) is not None for verb in verbs)
    ]
    extremes = [_extreme("least", min), _extreme("most", max)] if any(len(group) > 1 for group in groups) else []
    columns: list[list[_VerbColumn]] = [
        [
            Column("runs", len, str),
            Column("time", lambda group: statistics.fmean(phase.seconds for phase in group), seconds),
            *extremes,
            _mean("files", "files", lambda value: number(value, 1)),
            _mean("bytes", "bytes", size),
            *(_mean(one.heading, one.name, size) for one in amounts),
            Column("GB/s", _rate, str),
            Column("cached", _resident_share, percent_cell, optional=True, usual=math.nan),
        ],
        *([one] for one in _part_columns(phases)),
        [_completing(one) for one in completing],
    ]
    title = "files: the time of a run is its slowest rank's; the parts of that rank's time add up to it"
    title += "; GB/s count a byte once per node" if amounts else ""
    text = format_columns(title, "", [(shorten_name(title_of(group[0])), group) for group in groups], columns)
    return "\n\n".join(filter(None, [text, _call_latencies(groups), format_notes(phases)]))


def _call_latencies(groups: Sequence[Sequence[FilePhase]]) -> str:
    """Return the latencies of calls of each verb; of several runs those of the one that took longest."""
    slowest = [max(group, key=lambda phase: phase.seconds) for group in groups]
    known = [(phase, found) for phase in slowest if (found := phase.verb.call_latency.quantiles())]
    if not known:
        return ""
    names, cells = latency_cells([found for _, found in known])
    rows = [(shorten_name(title_of(phase)), *row) for (phase, _), row in zip(known, cells, strict=True)]
    return grid("files: latency of calls, in the run that took longest", ["", *names], rows)


def _part_columns(phases: Sequence[FilePhase]) -> list[_VerbColumn]:
    """Return the columns of the parts of the slowest rank's time, means over runs, without those that nothing took."""
    headings = {one.name: one.heading for one in result_figures(VerbSummary)} | {_REST: "rest"}
    found = dict.fromkeys(name for phase in phases for name, time in phase.parts.items() if time)

    def make_column(name: str) -> _VerbColumn:
        def cell(group: list[FilePhase]) -> str:
            known = [phase.parts.get(name) for phase in group]
            times = [time for time in known if time is not None]
            return time_cell(statistics.fmean(times)) if any(times) and not _moves_nothing(group) else ""

        return Column(headings[name], cell, str)

    return [make_column(name) for name in headings if name in found]


def _extreme(heading: str, choose: Callable[[Iterable[float]], float]) -> _VerbColumn:
    """Return the column of the shortest or the longest time; empty if there was one run."""
    return Column(
        heading,
        lambda group: seconds(choose(phase.seconds for phase in group)) if len(group) > 1 else "",
        str,
    )


def _mean(heading: str, figure: str, show: Callable[[float], str]) -> _VerbColumn:
    """Return the column of a figure's mean over runs; empty if one has none, and if no data are moved."""

    def cell(group: list[FilePhase]) -> str:
        values = [getattr(phase.verb, figure) for phase in group]
        return "" if None in values or _moves_nothing(group) else show(statistics.fmean(values))

    return Column(heading, cell, str)


def _completing(one: ResultFigure) -> _VerbColumn:
    """Return the column of a time of completing saves: of the rank that took longest in it, mean over saves."""

    def cell(group: list[FilePhase]) -> str:
        is_save = isinstance(group[0], SavePhase)
        return time_cell(statistics.fmean(getattr(phase.verb, one.name).max for phase in group)) if is_save else ""

    return Column(one.heading if one.name == "delete_seconds" else f"commit:\n{one.words}", cell, str)


def _rate(group: list[FilePhase]) -> str:
    """Return the GB/s of all bytes that storage may have given / all time."""
    wall, once = sum(phase.verb.seconds for phase in group), sum(phase.verb.bytes_once for phase in group)
    return "" if _moves_nothing(group) else number(once / wall / 1e9 if wall > 0 and once else None)


def _moves_nothing(group: list[FilePhase]) -> bool:
    return group[0].kind == "drop caches"


def _resident_share(group: list[FilePhase]) -> float | None:
    shares = [phase.resident_share for phase in group if phase.resident_share is not None]
    return statistics.fmean(shares) if shares else None


def _end_section(run: RunSummary) -> str:
    lines = [expectation_line(result) for result in run.expectations]
    if run.loops:
        lines.append(f"order hash {run.order_hash:016x}, extent hash {run.extent_hash:016x}")
    return "\n".join([*lines, f"whole run: {seconds(run.seconds)}"])
