"""The text that a run prints: its answer, warnings, a row an epoch and a verb; `run_report` has all tables."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, Reason, RunSummary
from dliosim.readable import seconds, size
from dliosim.report.phase_titles import group_phases, title_of
from dliosim.report.run.all_tables import expectation_line
from dliosim.report.run.answer_lines import answer_lines, answer_rows, order_answers
from dliosim.report.run.checkpoint_costs import background_costs, interval_section
from dliosim.report.run.loops import storage_alone
from dliosim.report.run.save_tables import screen_table
from dliosim.report.run.warnings import format_warnings
from dliosim.report.text_table import SCREEN, Column, format_columns, percent_cell, shorten_name, time_cell

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
    sections = [answer_lines(run), expected, format_warnings(run), _loop_table(run), screen_table(run.files)]
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
    for number, epoch in enumerate(epochs, 1):
        if number < _MOST_EPOCHS or number == len(epochs):
            last = " last" * (number == len(epochs) > _MOST_EPOCHS)
            alone = _storage_alone(replace(epoch, epoch=number), answer)
            yield f"{name} {number}{last}", (epoch, alone)


def _storage_alone(epoch: EpochSummary, answer: Answer | None) -> str | None:
    """Return the storage-limited utilization if it counts, else the source of the bytes; None if no epoch has it."""
    alone = storage_alone(epoch, answer) if answer and answer.source not in ("memory", "null") else None
    return percent_cell(alone) if isinstance(alone, float) else alone


def _p99(epoch: EpochSummary) -> float | None:
    found = epoch.request_latency.quantiles() or epoch.batch_latency.quantiles()
    return None if found is None else found.p99


def _reads(epoch: EpochSummary) -> bool:
    return (epoch.bytes > 0 or epoch.asks_storage) and not epoch.null


def _rate_cell(rate: float | None) -> str:
    return f"{size(rate, 3)}/s" if rate is not None else size(None)


_size_cell = partial(size, digits=3)


def _read_from_device(epoch: EpochSummary) -> float | None:
    return epoch.device_bytes if _reads(epoch) else None


def _read_epoch(figure: Callable[[EpochSummary], float | None]) -> Callable[[_Row], float | None]:
    return lambda row: figure(row[0])


_LOOP_COLUMNS: list[Column[_Row]] = [
    Column("asked", _read_epoch(lambda one: one.bytes if _reads(one) else None), _size_cell, True, math.nan),
    Column("from the\ndevice", _read_epoch(_read_from_device), _size_cell, True, math.nan),
    Column("time", _read_epoch(lambda one: one.loop_seconds), time_cell),
    Column("asked /\ntime", _read_epoch(lambda one: one.bytes_per_second), _rate_cell, True, math.nan),
    Column("utili-\nzation", _read_epoch(lambda one: one.utilization), percent_cell, True, math.nan),
    Column("storage\nlimited", lambda row: row[1], lambda text: text or "-", True),
    Column("latency\np99", _read_epoch(_p99), time_cell, True, math.nan),
]
