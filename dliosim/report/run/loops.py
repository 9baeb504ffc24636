"""The tables of one loop: rates, parts of the time, latencies, and the causes of the last ranks."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial
from itertools import zip_longest
from typing import Final

from dliosim.measure.answers.sources import epoch_source
from dliosim.measure.answers.validity import CORE_WAIT_LIMIT
from dliosim.measure.figures import aggregate
from dliosim.measure.figures.declaration import ResultFigure, TimeSpread, latency_kinds, result_figures
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.rank.histogram import Quantiles
from dliosim.measure.rank.records import CAUSES
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, Reason, RunSummary, select_epochs
from dliosim.model import MPI_APIS
from dliosim.readable import ABSENT, count, number, percent, seconds, size
from dliosim.report.answer_sentences import sentence
from dliosim.report.cells import percent_cell, time_cell
from dliosim.report.phase_titles import group_phases, name_epochs, title_of
from dliosim.report.run.conditions import format_notes
from dliosim.report.text_table import LINE, WIDTH, Column, grid, select_columns

#: Of more epochs than this, only the first ones and the last are printed; results.json has all.
MOST_EPOCHS = 12

#: A wait is mentioned from this share of the time on.
_WAIT_WORTH_A_WORD = 0.05

#: From this share of their busy time on, readers are reported to process rather than read.
_MOSTLY = 0.5

#: Names of `Quantiles`, in order.
_TAILS = ("p50", "p90", "p99", "p99.9", "max")

#: A quantile from this share of the maximum on is the maximum, within the error of both.
_MAXIMUM = 0.98


#: What a reader who compares with DLIO has to know.
_CLIENT_NOTE: Final = (
    "An AU that DLIO gives includes its own client: with storage in memory it was 31 to 45 %; `through library`, "
    "`decode on` and `preprocess T` add such a cost here (docs/dlio.md)."
)


def latencies_by_loop(run: RunSummary) -> dict[str, aggregate.Latencies]:
    """Return the latencies of each loop by its title, over the epochs that count for its answer; all if none do."""
    return {
        title_of(runs[0]): aggregate.latencies(select_epochs([one for phase in runs for one in phase.epochs], answer))
        for runs, answer in zip_longest(group_phases(run.loops), run.answers)
    }


def name_cause(cause: str) -> str:
    """Return the name of a cause of lateness; it also fits reads from memory."""
    return "reads" if cause == "storage" else cause


def loop_tables(
    runs: Sequence[LoopPhase], latencies: aggregate.Latencies, doubt: Reason | None, answer: Answer | None = None
) -> str:
    """Return the tables of all runs of one loop.

    `latencies` cover the epochs that count for the answer (all without one). `doubt` is the reason to distrust its
    utilization, or None.
    """
    name = title_of(runs[0])
    # Epochs are numbered across runs, so that only the very first epoch is separate.
    ran = [epoch for phase in runs for epoch in phase.epochs]
    epochs = [replace(epoch, epoch=place) for place, epoch in enumerate(ran, 1)]
    counted = select_epochs(epochs, answer)
    numbers = [one.epoch for one in counted]
    most, fewest = max(one.steps for one in epochs), min(one.fewest_steps for one in epochs)
    steps = count(most, "step") if most == fewest else f"{fewest} to {most} steps"
    title = f"{name}: {count(len(epochs), 'epoch')} of {steps} in {seconds(sum(phase.seconds for phase in runs))}"
    title += f" ({len(runs)} runs)" if len(runs) > 1 else ""
    title += f", {_access_method(runs[0])}" if runs[0].api else ""
    title += f", readers {runs[0].write_readers(runs[0].readers)}" if runs[0].reader_processes else ""
    title += "; means over ranks, utilization without first steps"
    title += f"; ?: not to be trusted: {sentence(doubt)}" if doubt else ""
    causes = f"{name}: bound by (shares of steps, by what delayed the last rank most), and checks"
    rates = _rate_columns("?" if doubt else "", answer)
    tables = [
        _figure_table(title, [rates, _table_columns("times"), _table_columns("core waits")], epochs, numbers),
        _shares_line(name, counted),
        _latency_table(f"{name}: latencies", epochs, latencies, numbers),
        _source_table(name, epochs),
        _figure_table(causes, [_CAUSES, _CHECKS, _table_columns("DLIO")], epochs, numbers),
        textwrap.fill(_CLIENT_NOTE, WIDTH) if runs[0].kind == "train" and any(one.dlio_au for one in epochs) else "",
        *(textwrap.fill(note, WIDTH) for note in _wait_notes(name, runs[0], counted)),
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


def _shares_line(name: str, epochs: Sequence[EpochSummary]) -> str:
    """Return the parts of the loop's time in one sentence: mean over ranks, over these epochs."""
    shares = aggregate.time_shares(epochs)
    sentence = ", ".join(f"{part} {percent(share, 3)}" for part, share in shares.items() if share)
    if not sentence:
        return ""
    waited = aggregate.core_wait_share(epochs)
    within = f"; {percent(waited, 3)} of it was waits for a core" if waited else ""
    when = name_epochs([one.epoch for one in epochs])
    return textwrap.fill(f"{name}: where the time without saves went in {when}: {sentence}{within}", WIDTH)


def _wait_notes(name: str, phase: LoopPhase, epochs: Sequence[EpochSummary]) -> Iterator[str]:
    """Yield what is behind waits for other ranks and for data."""
    shares = aggregate.time_shares(epochs)
    yield from (f"{name}: {note}" for note in _sync_notes(shares.get("sync wait", 0.0), epochs))
    waited = shares.get("data wait", 0.0)
    if waited <= _WAIT_WORTH_A_WORD:
        return
    if all(one.bound_by is not None and one.bound_by.storage == 0 for one in epochs):
        yield (
            f"{name}: data wait took {percent(waited, 2)} of the time although no step was bound by reads: in each "
            "step the last rank spent more time on something else"
        )
    share = aggregate.processing_share(epochs, phase.readers)
    if phase.readers and share > _MOSTLY:
        yield (
            f"{name}: readers spent {percent(share, 2)} of their busy time {_processing_parts(epochs)}, not reading: "
            "data waits, and steps bound by reads, wait for that"
        )


def _sync_notes(waited: float, epochs: Sequence[EpochSummary]) -> Iterator[str]:
    """Yield the causes of sync waits: the sync itself, which the last rank waits for, too, and the last rank."""
    causes = [astuple(one.bound_by) for one in epochs if one.bound_by is not None]
    if waited <= _WAIT_WORTH_A_WORD or len(causes) < len(epochs):
        return
    itself = sum(one.least_sync_wait_seconds or 0.0 for one in epochs) / sum(one.loop_seconds for one in epochs)
    for_core = (aggregate.core_wait_share(epochs) or 0.0) >= CORE_WAIT_LIMIT
    cost = "the sync itself, or a wait for a core" if for_core else "the cost of the sync itself"
    shares = f"{percent(min(itself, waited), 2)} {cost}"
    text = f"sync wait was {percent(waited, 2)} of the loop's time: {shares}"
    late = max(0.0, waited - itself)
    if late > 0 and epochs[0].ranks > 1:
        share, cause = max(zip(map(statistics.fmean, zip(*causes, strict=True)), CAUSES, strict=True))
        text += f", {percent(late, 2)} waiting for the last rank, which {name_cause(cause)} delayed in "
        text += f"{percent(share, 2)} of the steps"
    yield text


def _processing_parts(epochs: Sequence[EpochSummary]) -> str:
    parts = {"decoding": "decode_seconds", "preprocessing": "preprocess_seconds"}
    return " and ".join(part for part, name in parts.items() if any(getattr(epoch, name).max for epoch in epochs))


def _rate_columns(mark: str, answer: Answer | None) -> list[Column[EpochSummary]]:
    def mark_doubt(share: float | None) -> str:
        return number(share) + mark * (share is not None)

    return [
        Column("samples\n/s", lambda one: one.samples_per_second),
        Column("GB/s\nasked", lambda one: _scale(one.bytes_per_second, 1e-9)),
        Column("device /\nasked", lambda one: None if one.null else one.storage_amplification, number, True, math.nan),
        Column("utili-\nzation %", lambda one: _scale(one.utilization, 100), mark_doubt),
        Column("storage\nlimited %", partial(storage_alone, answer=answer), _alone_cell, optional=True, usual=math.nan),
        Column("slow-\ndown", lambda one: one.slowdown, optional=True),
    ]


def _alone_cell(share: float | str | None) -> str:
    return share if isinstance(share, str) else number(_scale(share, 100))


def _rank(rank: float | None) -> str:
    return ABSENT if rank is None else str(int(rank))


def _cause_column(cause: str) -> Column[EpochSummary]:
    usual = 0.0 if cause in ("arrivals", "decode") else math.nan
    return Column(
        name_cause(cause), lambda one: one.bound_by and getattr(one.bound_by, cause), percent_cell, True, usual
    )


def _table_columns(table: str) -> list[Column[EpochSummary]]:
    """Return the columns of the figures that are declared for a table."""
    return [_make_column(one) for one in result_figures(EpochSummary, table)]


def _make_column(one: ResultFigure) -> Column[EpochSummary]:
    def figure(epoch: EpochSummary) -> float | None:
        # A single rank is always the last one.
        value = None if epoch.ranks == 1 and one.name.startswith("slowest_rank") else getattr(epoch, one.name)
        return value.mean if isinstance(value, TimeSpread) else _scale(value, 100 if "%" in one.heading else 1)

    show: Callable[[float | None], str] = number
    if "TimeSpread" in one.kind or one.kind == "Part":
        show = time_cell
    elif one.name.endswith("_share"):
        show = percent_cell
    elif one.kind == "int | None":
        show = _rank
    return Column(one.heading, figure, show, one.optional, one.usual)


_CAUSES = [*map(_cause_column, CAUSES), *_table_columns("causes")]

_CHECKS = [
    Column("moved /\nasked", lambda one: one.bytes_moved / one.bytes if one.bytes else None, optional=True, usual=1.0),
    *_table_columns("checks"),
]


def _figure_table(
    title: str, groups: Sequence[Sequence[Column[EpochSummary]]], epochs: Sequence[EpochSummary], counted: Sequence[int]
) -> str:
    """Return a row for each epoch, then mean and standard deviation in per cent of those that count."""
    shown = [select_columns(group, epochs) for group in groups]
    columns = [one for group in shown for one in group]
    rows = _separate_first([(str(epoch.epoch), *(one.cell(epoch) for one in columns)) for epoch in epochs])
    if len(counted) > 1:
        values = [_amounts(one, [epochs[number - 1] for number in counted]) for one in columns]
        means = [one.show(statistics.fmean(some) if some else None) for one, some in zip(columns, values, strict=True)]
        rows += [LINE, (_numbers(counted), *means), ("+- %", *map(_variation, values))]
    return grid(title, ["epoch", *(one.heading for one in columns)], rows, [len(group) for group in shown if group])


def _amounts(column: Column[EpochSummary], epochs: Sequence[EpochSummary]) -> list[float]:
    """Return the figures of all epochs, or none if one is missing. Ranks have no mean, so they have none, too."""
    values = [value for value in map(column.figure, epochs) if value is not None and not isinstance(value, str)]
    return [] if len(values) < len(epochs) or column.show is _rank else values


def _variation(amounts: Sequence[float]) -> str:
    mean = statistics.fmean(amounts) if amounts else 0.0
    return number(100 * statistics.stdev(amounts) / mean, 2) if mean else ABSENT


def _latency_table(
    title: str, epochs: Sequence[EpochSummary], latencies: aggregate.Latencies, counted: Sequence[int]
) -> str:
    """Return a row for each epoch, then one for the latencies of those that count together, if there are several."""
    headings, groups = ["epoch"], []
    rows: list[tuple[str, ...]] = [(str(one.epoch),) for one in epochs]
    rows.append((_numbers(counted),))
    for kind in latency_kinds(EpochSummary):
        each = [getattr(one, f"{kind}_latency").quantiles() for one in epochs]
        if any(each):
            names, cells = latency_cells([*each, latencies[kind]])
            headings += [f"{kind}\n{name}" for name in names]
            groups.append(len(names))
            rows = [(*row, *more) for row, more in zip(rows, cells, strict=True)]
    if not groups:
        return ""
    *rows, whole = rows
    return grid(title, headings, [*_separate_first(rows), *([LINE, whole] if len(counted) > 1 else [])], groups)


def _source_table(name: str, epochs: Sequence[EpochSummary]) -> str:
    """Return a row for each of several data sets in the first and in the last epoch; empty for a loop over one."""
    shown = [(one, epoch) for epoch in dict.fromkeys((epochs[0], epochs[-1])) for one in epoch.datasets]
    if not shown:
        return ""
    tails, cells = latency_cells([one.call_latency.quantiles() for one, _ in shown])
    rows = [
        (
            str(epoch.epoch),
            one.name,
            f"{one.samples:_}",
            size(one.bytes, 3),
            number(one.samples_per_second),
            number(_scale(one.bytes_per_second, 1e-9)),
            *quantiles,
        )
        for (one, epoch), quantiles in zip(shown, cells, strict=True)
    ]
    headings = ["epoch", "data set", "samples", "bytes", "samples\n/s", "GB/s\nasked"]
    headings += [f"call\n{tail}" for tail in tails]
    return grid(f"{name}: by data set, in the first and the last epoch", headings, rows, [3, 2, len(tails)])


def latency_cells(found: Sequence[Quantiles | None]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the names of quantiles, and those of each row as text; without names that are the maximum in each row."""
    values = [(math.nan,) * len(_TAILS) if one is None else astuple(one) for one in found]
    shown = [
        place
        for place, name in enumerate(_TAILS)
        if name in ("p50", "max") or any(row[place] < _MAXIMUM * row[-1] for row in values)
    ]
    return [_TAILS[place] for place in shown], [tuple(seconds(row[place], 3) for place in shown) for row in values]


def _separate_first(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows of epochs with a line after the first; the middle ones are left out if there are many."""
    if len(rows) > MOST_EPOCHS:
        rows = [*rows[: MOST_EPOCHS - 2], ("...", *[""] * (len(rows[0]) - 1)), rows[-1]]
    return rows if len(rows) == 1 else [rows[0], LINE, *rows[1:]]


def _numbers(epochs: Sequence[int]) -> str:
    """Return the numbers of epochs for a cell."""
    return name_epochs(epochs).partition(" ")[2]


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def storage_alone(epoch: EpochSummary, answer: Answer | None) -> float | str | None:
    """Return the storage-limited utilization of an epoch that counts for an answer, else the source of its bytes.

    Epochs are numbered over all runs of their loop. None if there is no utilization, or no answer.
    """
    if epoch.storage_utilization is None or answer is None:
        return None
    if answer.source in ("memory", "null"):
        return answer.source
    if epoch.epoch in answer.epochs:
        return epoch.storage_utilization
    source = epoch_source(epoch)
    return "mixed" if source == "device" else source
