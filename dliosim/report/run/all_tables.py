"""All tables of a run: conditions, verbs that touched files, each loop, expectations and hashes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import TypeAlias

from dliosim.measure.answers.validity import doubt_of_utilization
from dliosim.measure.figures.aggregate import Latencies
from dliosim.measure.results.file_phases import FilePhase
from dliosim.measure.results.run_summary import ExpectationResult, RunSummary
from dliosim.readable import hash_text, number, percent, seconds, size
from dliosim.report.answer_sentences import sentence
from dliosim.report.phase_titles import group_phases, name_epochs, title_of
from dliosim.report.run.answer_lines import answer_lines
from dliosim.report.run.checkpoint_costs import checkpoint_tables
from dliosim.report.run.conditions import header
from dliosim.report.run.loops import loop_tables
from dliosim.report.run.save_tables import full_table
from dliosim.report.run.warnings import format_warnings
from dliosim.report.text_table import Column

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
        "" if run.null else full_table(run.files),
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


def _end_section(run: RunSummary) -> str:
    lines = [expectation_line(result) for result in run.expectations]
    if run.loops:
        lines.append(f"order hash {hash_text(run.order_hash)}, extent hash {hash_text(run.extent_hash)}")
    return "\n".join([*lines, f"whole run: {seconds(run.seconds)}"])
