"""The tables of one loop: rates, parts of the time, latencies, and the causes of the last ranks."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dliosim.measure import aggregate
from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.figures import ResultFigure, TimeSpread, latency_kinds, result_figures
from dliosim.measure.histogram import Histogram, merge_histograms
from dliosim.measure.phase import LoopPhase
from dliosim.measure.records import CAUSES
from dliosim.model import MPI_APIS
from dliosim.readable import ABSENT, count, number, percent, seconds
from dliosim.report.conditions import format_notes
from dliosim.report.phase_titles import title_of
from dliosim.report.summary_line import headline, processing_note
from dliosim.report.text_table import LINE, WIDTH, Column, grid, percent_cell, select_columns, time_cell

#: Of more epochs than this, only the first ones and the last are printed; results.json has all.
MOST_EPOCHS = 12

#: Waiting for data is mentioned from this share of the time on.
_WAIT_WORTH_A_WORD = 0.05

#: Calls in flight have a column where they differ from 1 by this or more.
_DEPTH_WORTH_A_COLUMN = 0.01

_TAILS = ("p50", "p90", "p99", "p99.9", "max")


def loop_tables(runs: Sequence[LoopPhase], doubtful: bool, counted: bool) -> str:
    """Return the tables of all runs of one loop.

    `doubtful` marks its utilization as not to be trusted. `counted` is True if the kernel counts the bytes from a
    device.
    """
    name = title_of(runs[0])
    # Epochs are numbered across runs, so that only the very first epoch is separate.
    epochs = [replace(epoch, epoch=i) for i, epoch in enumerate(epoch for phase in runs for epoch in phase.epochs)]
    later = epochs[1:] or epochs
    most, fewest = max(one.steps for one in epochs), min(one.fewest_steps for one in epochs)
    steps = count(most, "step") if most == fewest else f"{fewest} to {most} steps"
    title = f"{name}: {count(len(epochs), 'epoch')} of {steps} in {seconds(sum(phase.seconds for phase in runs))}"
    title += f" ({len(runs)} runs)" if len(runs) > 1 else ""
    title += f", {_access_method(runs[0])}" if runs[0].api else ""
    title += "; means over ranks, utilization without first steps"
    causes = f"{name}: bound by (what made the last rank of a step last, in which share of steps), and checks"
    tables = [
        headline(name, runs, epochs, doubtful, counted),
        _figure_table(title, [_rate_columns(doubtful), _table_columns("times"), _table_columns("core waits")], epochs),
        _shares_line(name, epochs, later),
        _latency_table(f"{name}: latencies", epochs),
        _figure_table(causes, [_CAUSES, [*_CHECKS, *_depth_columns(epochs)], _table_columns("DLIO")], epochs),
        *(textwrap.fill(note, WIDTH) for note in _wait_notes(name, runs[0], later)),
    ]
    return "\n\n".join(filter(None, [*tables, format_notes(runs)]))


def _access_method(phase: LoopPhase) -> str:
    """Return the api of a loop with its set of hints."""
    if phase.through == "library":
        return f"{phase.api} by the format's library"
    if phase.api == "mpi-collective" and phase.hint_set == "no-aggregation":
        return "mpi-collective without aggregation: independent reads in a collective call"
    named = phase.hint_set != "library" and phase.api in MPI_APIS
    return f"{phase.api} with hints {phase.hint_set}" if named else str(phase.api)


def _shares_line(name: str, epochs: Sequence[EpochSummary], later: Sequence[EpochSummary]) -> str:
    """Return the parts of the time of all ranks in one sentence; over the later epochs."""
    shares = aggregate.time_shares(later)
    sentence = ", ".join(f"{part} {percent(share, 3)}" for part, share in shares.items() if share)
    if not sentence:
        return ""
    when = " after the first epoch" if len(epochs) > 1 else ""
    waited = aggregate.core_wait_share(later)
    within = f"; in these {percent(waited, 3)} waiting for a core" if waited else ""
    return textwrap.fill(f"{name}: where the time went{when}: {sentence}{within}", WIDTH)


def _wait_notes(name: str, phase: LoopPhase, epochs: Sequence[EpochSummary]) -> Iterator[str]:
    """Yield what is behind waits for data: a part that took longer in each step, or with readers decoding."""
    waited = aggregate.time_shares(epochs).get("data wait", 0.0)
    if waited <= _WAIT_WORTH_A_WORD:
        return
    if all(one.bound_by is not None and one.bound_by.storage == 0 for one in epochs):
        yield (
            f"{name}: data wait took {percent(waited, 2)} of the time although no step was bound by storage: in each "
            "one the last rank had spent more on something else"
        )
    processing = processing_note(phase, epochs) if phase.readers else ""
    if processing:
        yield f"{name}: {processing}: data waits, and steps bound by storage, are waits for that"


def _rate_columns(doubtful: bool) -> list[Column[EpochSummary]]:
    mark = "?" if doubtful else ""
    return [
        Column("samples\n/s", lambda one: one.samples_per_second),
        Column("GB/s", lambda one: _scale(one.bytes_per_second, 1e-9)),
        Column("GiB/s", lambda one: _scale(one.bytes_per_second, 2**-30)),
        Column(
            "utili-\nzation %",
            lambda one: _scale(one.utilization, 100),
            lambda share: number(share) + (mark if share is not None else ""),
        ),
        Column("slow-\ndown", lambda one: one.slowdown, optional=True),
    ]


def _rank(rank: float | None) -> str:
    return ABSENT if rank is None else str(int(rank))


def _depth_columns(epochs: Sequence[EpochSummary]) -> list[Column[EpochSummary]]:
    """Return the column of calls in flight, if more than one was in flight in any epoch."""
    several = any(one.depth is not None and abs(one.depth - 1) >= _DEPTH_WORTH_A_COLUMN for one in epochs)
    return [Column("calls in\nflight", lambda one: one.depth)] if several else []


def _cause_column(cause: str) -> Column[EpochSummary]:
    optional = cause in ("arrivals", "decode")
    return Column(cause, lambda one: one.bound_by and getattr(one.bound_by, cause), percent_cell, optional)


def _table_columns(table: str) -> list[Column[EpochSummary]]:
    """Return the columns of the figures that are declared for a table."""
    return [_make_column(one) for one in result_figures(EpochSummary, table)]


def _make_column(one: ResultFigure) -> Column[EpochSummary]:
    def figure(epoch: EpochSummary) -> float | None:
        value = getattr(epoch, one.name)
        return value.mean if isinstance(value, TimeSpread) else _scale(value, 100 if "%" in one.heading else 1)

    show: Callable[[float | None], str] = number
    if "TimeSpread" in one.kind or one.kind == "Part":
        show = time_cell
    elif one.name.endswith("_share"):
        show = percent_cell
    elif one.kind == "int | None":
        show = _rank
    return Column(one.heading, figure, show, one.optional)


_CAUSES = [*map(_cause_column, CAUSES), *_table_columns("causes")]

_CHECKS = [
    Column("moved /\nasked", lambda one: one.bytes_moved / one.bytes if one.bytes else None),
    *_table_columns("checks"),
]


def _figure_table(title: str, groups: Sequence[Sequence[Column[EpochSummary]]], epochs: Sequence[EpochSummary]) -> str:
    """Return the first epoch, the later ones, and of the later ones the mean and the standard deviation in per cent."""
    shown = [select_columns(group, epochs) for group in groups]
    columns = [one for group in shown for one in group]
    rows = [(str(epoch.epoch + 1), *(one.cell(epoch) for one in columns)) for epoch in epochs]
    rows = _separate_first(rows)
    later = epochs[1:]
    if len(later) > 1:
        values = [_amounts(one, later) for one in columns]
        means = [
            one.show(statistics.fmean(amounts) if amounts else None)
            for one, amounts in zip(columns, values, strict=True)
        ]
        rows += [LINE, (_epoch_range(later), *means), ("+- %", *map(_variation, values))]
    return grid(title, ["epoch", *(one.heading for one in columns)], rows, [len(group) for group in shown if group])


def _amounts(column: Column[EpochSummary], epochs: Sequence[EpochSummary]) -> list[float]:
    """Return the figures of all epochs, or none where one is missing. Ranks have no mean, so they have none, too."""
    values = [value for value in map(column.figure, epochs) if value is not None]
    return [] if len(values) < len(epochs) or column.show is _rank else values


def _variation(amounts: Sequence[float]) -> str:
    mean = statistics.fmean(amounts) if amounts else 0.0
    return number(100 * statistics.stdev(amounts) / mean, 2) if mean else ABSENT


def _latency_table(title: str, epochs: Sequence[EpochSummary]) -> str:
    """Return a row for each epoch, then one for the latencies of all later epochs together."""
    tables = []
    for kind in latency_kinds(EpochSummary):
        found = [getattr(one, f"{kind}_latency") for one in epochs]
        if any(one.count for one in found):
            rows = _separate_first([(str(i + 1), *latency_cells(one)) for i, one in enumerate(found)])
            if len(epochs) > 2:
                rows += [LINE, (_epoch_range(epochs[1:]), *latency_cells(merge_histograms(found[1:])))]
            tables.append((kind, rows))
    headings = ["epoch", *(f"{kind}\n{tail}" for kind, _ in tables for tail in _TAILS)]
    lines = [
        sum((row[1:] for row in rest), first) if first else LINE
        for first, *rest in zip(*(rows for _, rows in tables), strict=True)
    ]
    return grid(title, headings, lines, [len(_TAILS)] * len(tables)) if tables else ""


def latency_cells(latencies: Histogram) -> tuple[str, ...]:
    """Return p50, p90, p99, p99.9 and the maximum as text; the quantiles are exact to 1 %, the maximum is exact."""
    found = latencies.quantiles()
    if found is None:
        return (ABSENT,) * len(_TAILS)
    return (*(seconds(value, 3) for value in (found.p50, found.p90, found.p99, found.p999)), seconds(found.max))


def _separate_first(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows of epochs with a line after the first; the middle ones are left out if there are many."""
    if len(rows) > MOST_EPOCHS:
        rows = [*rows[: MOST_EPOCHS - 2], ("...", *[""] * (len(rows[0]) - 1)), rows[-1]]
    return rows if len(rows) == 1 else [rows[0], LINE, *rows[1:]]


def _epoch_range(epochs: Sequence[EpochSummary]) -> str:
    return f"{epochs[0].epoch + 1}..{epochs[-1].epoch + 1}"


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
