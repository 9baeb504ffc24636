"""The report that a run prints at its end: conditions, verbs that touched files, each loop, expectations and hashes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from dliosim.measure.epoch_summaries import VerbSummary
from dliosim.measure.figures import result_figures
from dliosim.measure.file_phases import FilePhase
from dliosim.measure.histogram import merge_histograms
from dliosim.measure.machine import MEMORY_KINDS
from dliosim.measure.run_summary import ExpectationResult, RunSummary
from dliosim.measure.validity import doubt_of_utilization
from dliosim.readable import number, percent, seconds, size
from dliosim.report.answer_lines import answer_lines
from dliosim.report.checkpoints import checkpoint_tables
from dliosim.report.conditions import format_notes, header
from dliosim.report.loops import latency_cells, loop_tables
from dliosim.report.phase_titles import group_phases, name_epochs, shorten_name, title_of
from dliosim.report.text_table import Column, format_columns, grid, percent_cell, time_cell
from dliosim.report.warnings import format_warnings

#: A column of the table of files: a row is about all runs of a verb.
_VerbColumn: TypeAlias = Column[list[FilePhase]]


def run_report(run: RunSummary) -> str:
    """Return all that a run prints at its end, at most 120 columns wide."""
    loops = [
        loop_tables(
            group,
            bool(doubt_of_utilization(run, group)),
            not run.is_stored_on(group[0], MEMORY_KINDS),
        )
        for group in group_phases(run.loops)
    ]
    sections = [
        answer_lines(run),
        header(run),
        format_warnings(run),
        _file_table(run.files),
        checkpoint_tables(run),
        *loops,
        _end_section(run),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def expectation_line(result: ExpectationResult) -> str:
    """Return the line about the result of an `expect`."""
    if result.measured is None:
        measured = "nothing was measured"
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
        outcome = "" if result.measured is None else ", held" if result.held else ", missed"
        return f"reported only{outcome}: expect {result.text} ({found}): {result.reported_only}"
    return f"{'held' if result.held else 'MISSED'}: expect {result.text} ({found})"


def _file_table(phases: Sequence[FilePhase]) -> str:
    """Return a row for each verb that wrote, read or dropped files; one row for all runs of the same verb."""
    groups = group_phases(phases)
    if not groups:
        return ""
    verbs = [phase.verb for phase in phases]
    # The parts of a verb's time are means over ranks; those of completing files are parts of rank 0 while others wait.
    parts, completing = (
        [one for one in result_figures(VerbSummary, table) if any(getattr(verb, one.name).max for verb in verbs)]
        for table in ("parts", "completing")
    )
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
            _rate("GB/s", 1e9),
            _rate("GiB/s", 2**30),
            Column("cached", _resident_share, percent_cell),
        ],
        [_mean(one.heading, one.name, time_cell, "mean") for one in parts],
        [_mean(one.heading, one.name, time_cell, "max") for one in completing],
    ]
    title = "files: a run's time is the slowest rank's, and so are rates; the parts are means over ranks"
    title += ", those of completing files the slowest rank's" if completing else ""
    title += "; GB/s count once what ranks of a node ask for again" if amounts else ""
    text = format_columns(title, "", [(shorten_name(title_of(group[0])), group) for group in groups], columns)
    tails = [
        (shorten_name(title_of(group[0])), *latency_cells(calls))
        for group in groups
        if (calls := merge_histograms(phase.verb.call_latency for phase in group)).count
    ]
    latencies = grid("files: latency of calls", ["", "p50", "p90", "p99", "p99.9", "max"], tails) if tails else ""
    notes = format_notes([phase for group in groups for phase in group])
    return "\n\n".join(filter(None, [text, latencies, notes]))


def _extreme(heading: str, choose: Callable[[Iterable[float]], float]) -> _VerbColumn:
    """Return the column of the shortest or the longest time; empty where there was one run."""
    return Column(
        heading,
        lambda group: seconds(choose(phase.seconds for phase in group)) if len(group) > 1 else "",
        str,
    )


def _mean(heading: str, figure: str, show: Callable[[float], str], over_ranks: str | None = None) -> _VerbColumn:
    """Return the column of a figure's mean over runs; empty where one has none, and where no data are moved."""

    def cell(group: list[FilePhase]) -> str:
        values = [getattr(phase.verb, figure) for phase in group]
        if None in values or _moves_nothing(group):
            return ""
        return show(statistics.fmean(getattr(value, over_ranks) if over_ranks else value for value in values))

    return Column(heading, cell, str)


def _rate(heading: str, unit: float) -> _VerbColumn:
    """Return the column of all bytes that storage may have given / all time."""

    def cell(group: list[FilePhase]) -> str:
        wall, once = sum(phase.verb.seconds for phase in group), sum(phase.verb.bytes_once for phase in group)
        return "" if _moves_nothing(group) else number(once / wall / unit if wall > 0 and once else None)

    return Column(heading, cell, str)


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
