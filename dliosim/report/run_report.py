"""The report that a run prints at its end: conditions, verbs that touched files, each loop, expectations and hashes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dliosim.measure.epoch_summaries import VerbSummary
from dliosim.measure.figures import result_figures
from dliosim.measure.file_phases import FilePhase
from dliosim.measure.histogram import merge_histograms
from dliosim.measure.machine import DISK_KINDS
from dliosim.measure.run_summary import ExpectationResult, RunSummary
from dliosim.measure.validity import doubt_of_utilization
from dliosim.readable import ABSENT, number, percent, seconds, size
from dliosim.report.checkpoints import checkpoint_tables
from dliosim.report.conditions import format_notes, header
from dliosim.report.loops import latency_cells, loop_tables
from dliosim.report.phase_titles import group_phases, shorten_name, title_of
from dliosim.report.text_table import grid
from dliosim.report.warnings import format_warnings


def run_report(run: RunSummary) -> str:
    """Return all that a run prints at its end, at most 120 columns wide."""
    loops = [
        loop_tables(
            group,
            bool(doubt_of_utilization(run, group)),
            run.is_stored_on(group[0], DISK_KINDS),
        )
        for group in group_phases(run.loops)
    ]
    sections = [
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
    if result.reported_only is not None:
        outcome = "" if result.measured is None else ", held" if result.held else ", missed"
        return f"reported only{outcome}: expect {result.text} ({measured}, over {result.over}): {result.reported_only}"
    return f"{'held' if result.held else 'MISSED'}: expect {result.text} ({measured}, over {result.over})"


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
    extremes = ["least", "most"] if any(len(group) > 1 for group in groups) else []
    amounts = [
        one
        for one in result_figures(VerbSummary, "amounts")
        if any(getattr(verb, one.name) is not None for verb in verbs)
    ]
    headings = ["", "runs", "time", *extremes, "files", "bytes", *(one.heading for one in amounts)]
    headings += ["GB/s", "GiB/s", "cached"]
    headings += [one.heading for one in (*parts, *completing)]
    rows = [
        _file_row(group, bool(extremes), *([one.name for one in some] for some in (amounts, parts, completing)))
        for group in groups
    ]
    title = "files: a run's time is the slowest rank's, and so are rates; the parts are means over ranks"
    title += ", those of completing files the slowest rank's" if completing else ""
    title += "; GB/s count once what ranks of a node ask for again" if amounts else ""
    widths = (7 + len(extremes) + len(amounts), len(parts), len(completing))
    text = grid(title, headings, rows, [group for group in widths if group])
    tails = [
        (shorten_name(title_of(group[0])), *latency_cells(calls))
        for group in groups
        if (calls := merge_histograms(phase.verb.call_latency for phase in group)).count
    ]
    latencies = grid("files: latency of calls", ["", "p50", "p90", "p99", "p99.9", "max"], tails) if tails else ""
    notes = format_notes([phase for group in groups for phase in group])
    return "\n\n".join(filter(None, [text, latencies, notes]))


def _file_row(
    group: Sequence[FilePhase],
    extremes: bool,
    amounts: Sequence[str],
    times: Sequence[str],
    completing: Sequence[str],
) -> list[str]:
    """Return the means over runs; with `extremes` also the shortest and the longest time."""
    verbs = [phase.verb for phase in group]
    walls = [phase.seconds for phase in group]
    row = [shorten_name(title_of(group[0])), str(len(group)), seconds(statistics.fmean(walls))]
    if extremes:
        row += [seconds(min(walls)), seconds(max(walls))] if len(walls) > 1 else [""] * 2
    shares = [phase.resident_share for phase in group if phase.resident_share is not None]
    cached = percent(statistics.fmean(shares), 3) if shares else ABSENT
    if group[0].kind == "drop caches":
        return [*row, *[""] * (4 + len(amounts)), cached, *[""] * (len(times) + len(completing))]
    wall, content = sum(verb.seconds for verb in verbs), sum(verb.bytes for verb in verbs)
    once = sum(verb.bytes_once for verb in verbs)
    rate = once / wall if wall > 0 and once else None
    return [
        *row,
        number(statistics.fmean(verb.files for verb in verbs), 1),
        size(content / len(verbs)),
        *(_amount([getattr(verb, name) for verb in verbs]) for name in amounts),
        number(rate if rate is None else rate / 1e9),
        number(rate if rate is None else rate / 2**30),
        cached,
        *(seconds(statistics.fmean(getattr(verb, time).mean for verb in verbs), 3) for time in times),
        *(seconds(statistics.fmean(getattr(verb, time).max for verb in verbs), 3) for time in completing),
    ]


def _amount(values: Sequence[int | None]) -> str:
    """Return the mean of bytes over runs; empty where it is unknown for one."""
    known = [value for value in values if value is not None]
    return size(statistics.fmean(known)) if known and len(known) == len(values) else ""


def _end_section(run: RunSummary) -> str:
    lines = [expectation_line(result) for result in run.expectations]
    if run.loops:
        lines.append(f"order hash {run.order_hash:016x}, extent hash {run.extent_hash:016x}")
    return "\n".join([*lines, f"whole run: {seconds(run.seconds)}"])
