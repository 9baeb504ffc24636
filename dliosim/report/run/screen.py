"""The text that a run prints: its answer, warnings, a row an epoch and a verb; and the report with all tables."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

from dliosim.measure.answers.validity import doubt_of_utilization
from dliosim.measure.figures.aggregate import Latencies
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, ExpectationResult, Reason, RunSummary
from dliosim.readable import hash_text, number, percent, seconds, size
from dliosim.report.answer_sentences import sentence
from dliosim.report.cells import percent_cell, rate_cell, size_cell, text_cell, time_cell
from dliosim.report.phase_titles import group_phases, name_epochs, title_of
from dliosim.report.run.answer_lines import answer_lines, answer_rows, order_answers
from dliosim.report.run.checkpoint_costs import background_costs, checkpoint_tables, interval_section
from dliosim.report.run.conditions import conditions, copy_notes
from dliosim.report.run.loops import loop_tables, storage_alone
from dliosim.report.run.save_tables import full_table, screen_table
from dliosim.report.run.warnings import format_warnings, warnings_of
from dliosim.report.text_table import SCREEN, Column, align_rows, format_columns, shorten_name

#: Of more epochs than this, only the first ones and the last have a row.
_MOST_EPOCHS = 5

#: Characters of the name of a loop, so that the table fits.
_LONGEST_LOOP = 9


#: An epoch, and its storage-limited utilization in words.
_Row: TypeAlias = tuple[EpochSummary, str | None]


def run_screen(run: RunSummary) -> str:
    """Return the text of a run, at most 80 columns wide except for paths and command lines."""
    rows = answer_rows(run)[1]
    shown = order_answers(run)[0].reasons[0] if any(name == "WHY" for name, _ in rows) else None
    told = [
        expectation_line(one, "see WHY" if one.reported_only and _tells(shown, one.reported_only) else "")
        for one in run.expectations
        if not one.held or one.reported_only is not None
    ]
    expected = "\n".join(textwrap.fill(line, SCREEN, subsequent_indent=" " * 4) for line in told)
    sections = [answer_lines(run), expected, format_warnings(warnings_of(run)), _loop_table(run)]
    sections += [copy_notes(run, SCREEN), screen_table(run.files)]
    sections += [background_costs(run, SCREEN), interval_section(run, SCREEN)]
    return "\n\n".join(filter(None, [*sections, f"whole run: {seconds(run.seconds)}"])) + "\n"


def _tells(shown: Reason | None, reason: Reason) -> bool:
    """Return whether the reason that is shown has the kind and all values of another one."""
    return shown is not None and shown.kind == reason.kind and shown.values.items() >= reason.values.items()


def _loop_table(run: RunSummary) -> str:
    answers = {answer.loop: answer for answer in run.answers}
    rows = [row for runs in group_phases(run.loops) for row in _epoch_rows(runs, answers.get(runs[0].name))]
    title = "loops: time is without saves, utilization also without first steps"
    return format_columns(title, "", rows, [[one] for one in _LOOP_COLUMNS]) if rows else ""


def _epoch_rows(runs: Sequence[LoopPhase], answer: Answer | None) -> Iterator[tuple[str, _Row]]:
    """Yield name, figures, and storage-limited utilization of the first epochs of a loop, and of its last one."""
    name = shorten_name(title_of(runs[0]), _LONGEST_LOOP)
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    for place, epoch in enumerate(epochs, 1):
        if place < _MOST_EPOCHS or place == len(epochs):
            last = " last" * (place == len(epochs) > _MOST_EPOCHS)
            alone = _storage_alone(replace(epoch, epoch=place), answer)
            yield f"{name} {place}{last}", (epoch, alone)


def _storage_alone(epoch: EpochSummary, answer: Answer | None) -> str | None:
    """Return the storage-limited utilization if it counts, else the source of the bytes; None if no epoch has it."""
    alone = storage_alone(epoch, answer) if answer and answer.source not in ("memory", "null") else None
    return percent_cell(alone) if isinstance(alone, float) else alone


def _p99(epoch: EpochSummary) -> float | None:
    found = epoch.request_latency.quantiles() or epoch.batch_latency.quantiles()
    return None if found is None else found.p99


def _reads(epoch: EpochSummary) -> bool:
    return (epoch.bytes > 0 or epoch.asks_storage) and not epoch.null


_LOOP_COLUMNS: list[Column[_Row]] = [
    Column("asked", lambda row: row[0].bytes if _reads(row[0]) else None, size_cell, True, math.nan),
    Column("from the\ndevice", lambda row: row[0].device_bytes if _reads(row[0]) else None, size_cell, True, math.nan),
    Column("time", lambda row: row[0].loop_seconds, time_cell),
    Column("asked /\ntime", lambda row: row[0].bytes_per_second, rate_cell, True, math.nan),
    Column("utili-\nzation", lambda row: row[0].utilization, percent_cell, True, math.nan),
    Column("storage\nlimited", lambda row: row[1], text_cell, True),
    Column("latency\np99", lambda row: _p99(row[0]), time_cell, True, math.nan),
]


def run_report(run: RunSummary, latencies: Mapping[str, Latencies]) -> str:
    """Return all tables of a run, at most 120 columns wide; `latencies` as of `loops.latencies_by_loop`."""
    loops = [
        loop_tables(group, latencies[title_of(group[0])], doubt_of_utilization(run, group, answer), answer)
        for group, answer in zip_longest(group_phases(run.loops), run.answers)
    ]
    end = [expectation_line(result) for result in run.expectations]
    if run.loops:
        end.append(f"order hash {hash_text(run.order_hash)}, extent hash {hash_text(run.extent_hash)}")
    sections = [
        answer_lines(run),
        align_rows(conditions(run)),
        format_warnings(warnings_of(run)),
        "" if run.null else full_table(run.files),
        checkpoint_tables(run),
        *loops,
        "\n".join([*end, f"whole run: {seconds(run.seconds)}"]),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


_UNITS: dict[str, Callable[[float], str]] = {"ratio": percent, "s": seconds, "B/s": lambda rate: f"{size(rate)}/s"}


def expectation_line(result: ExpectationResult, reason: str = "") -> str:
    """Return the line about the result of an `expect`; `reason` stands for the sentence of why it is not judged."""
    if result.measured is None:
        measured = "nothing was measured" if result.reported_only is None else ""
    elif show := _UNITS.get(result.unit):
        measured = show(result.measured)
    else:
        measured = f"{number(result.measured)} {result.unit}"
    found = ", ".join(filter(None, [measured, name_epochs(result.epochs)]))
    if result.reported_only is not None:
        return f"not judged: expect {result.text} ({found}): {reason or sentence(result.reported_only)}"
    return f"{'held' if result.held else 'MISSED'}: expect {result.text} ({found})"
