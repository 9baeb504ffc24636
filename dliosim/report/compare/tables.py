"""The report of a comparison: its answer, tables of its variants, notes and conditions; live and from compare.json."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dliosim.compare.answer import EITHER, USE
from dliosim.compare.result import ComparisonAnswer, Outcome
from dliosim.measure.results.machine import FileSystem
from dliosim.measure.results.verdicts import CANNOT_SAY
from dliosim.readable import ABSENT, count, number, seconds
from dliosim.report.answer_sentences import advice_rows, sentence
from dliosim.report.cells import count_cell, time_cell
from dliosim.report.compare.notes import compose_notes
from dliosim.report.compare.results import comparison_content
from dliosim.report.first_lines import FirstRows, Row, first_lines, first_rows, fit_rows, name_forms, title_results
from dliosim.report.phase_titles import group_by
from dliosim.report.reader.results import ComparisonResult, SavedVariant, parse_comparison
from dliosim.report.run.conditions import environment_rows
from dliosim.report.text_table import WIDTH, Column, Table, align_rows, format_table, select_columns

#: Words for each source: of what was read, and of saves, which have no caches.
_SOURCES = {
    "device": ("from the device", "to storage, synced"),
    "unknown": ("source not counted", "destination not counted"),
    "mixed": ("partly from memory", "not all variants sync what they save"),
    "memory": ("from memory, not from storage", "to memory, not to storage"),
    "modelled": ("modelled: no file was read or written", "modelled: no file was read or written"),
}
_CACHES = {"cold": "caches dropped before", "warm": "caches filled before"}

# Longer labels are numbers in tables.
_LONGEST_VARIANT = 44


def _format_percent(share: float | None) -> str:
    return ABSENT if share is None else number(100 * share, 3)


_three_digits = partial(number, digits=3)


def _format_gigabytes(amount: float | None, digits: int = 4) -> str:
    return number(None if amount is None else amount / 1e9, digits)


def _figure(
    heading: str, key: str, show: Callable[[Any], str] = time_cell, optional: bool = False
) -> Column[SavedVariant]:
    """Return the column of a figure, by its key in compare.json."""
    return Column(heading, lambda one: one.figures[key], show, optional)


def _tail(heading: str, name: str) -> Column[SavedVariant]:
    return Column(heading, lambda one: one.batch_latency and getattr(one.batch_latency, name), time_cell)


_CACHED: Column[SavedVariant] = Column("cached\n%", lambda one: one.resident_share, _format_percent)
_SAMPLES = _figure("samples\n/s", "rate_samples_per_second", number)
_GIGABYTES = _figure("GB/s", "rate_bytes_per_second", _format_gigabytes)
_STALL = _figure("stall", "stall_seconds")

_LOOP_COLUMNS: tuple[Column[SavedVariant], ...] = (
    _tail("batch\np50", "p50"),
    _tail("p99", "p99"),
    _tail("max", "max"),
    _figure("utili-\nzation %", "utilization", _format_percent, optional=True),
    _figure("data\nwait %", "data_wait_share", _format_percent),
    _figure("compute\n%", "compute_share", _format_percent, optional=True),
    _figure("sync\nwait %", "sync_wait_share", _format_percent),
    _figure("arrival\nwait %", "arrival_wait_share", _format_percent, optional=True),
    _figure("check-\npoint %", "checkpoint_share", _format_percent, optional=True),
    _figure("check-\npoints", "checkpoint_seconds", optional=True),
    _figure("proces-\nsing %", "processing_share", _format_percent, optional=True),
    _figure("decode", "decode_seconds", optional=True),
    _figure("pre-\nprocess", "preprocess_seconds", optional=True),
    _figure("tool\n%", "tool_share", _format_percent),
    _figure("in\nflight", "depth", _three_digits),
    _figure("read()\n/ asked", "amplification", number),
    _figure("device\n/ asked", "storage_amplification", _three_digits, optional=True),
    _CACHED,
)

_STALL_PARTS = (
    *(("passed\nto ranks", "send"), ("sync", "file_sync"), ("com-\nmit", "commit"), ("rename", "rename")),
    *(("plan", "plan"), ("seria-\nlize", "serialize"), ("wait", "wait"), ("stage", "stage"), ("flush", "flush")),
    *(("drain", "drain"), ("part-\nner", "partner")),
)

_STALL_COLUMNS: tuple[Column[SavedVariant], ...] = (
    Column("longest\nstall", lambda one: max(one.seconds), time_cell),
    _figure("complete\nafter", "until_complete_seconds"),
    _figure("GB", "bytes", partial(_format_gigabytes, digits=3)),
    _figure("files", "files", count_cell),
    _figure("calls", "calls", count_cell),
    _figure("in\ncalls", "call_seconds"),
    _figure("open,\nclose", "open_seconds"),
    *(_figure(heading, f"{name}_seconds", optional=True) for heading, name in _STALL_PARTS),
    replace(_CACHED, optional=True),
)


def comparison_report(outcome: Outcome, answer: ComparisonAnswer) -> str:
    """Return the whole text of a comparison, at most `WIDTH` columns wide except for long labels."""
    names = variant_names([one.label for one in outcome.measured])
    named = zip(outcome.measured, names, strict=True)
    short = replace(outcome, measured=tuple(replace(one, label=name) for one, name in named))
    found = parse_comparison(comparison_content(outcome, answer))
    notes = compose_notes(short, answer.place(outcome))
    end = [_header(outcome), f"whole comparison: {seconds(outcome.total_seconds)}"]
    return "\n\n".join([*comparison_sections(found, outcome.what, notes), *end]) + "\n"


def comparison_sections(found: ComparisonResult, title: str, notes: Sequence[str]) -> list[str]:
    """Return the first lines, the legend of variants, tables below a title, notes, and variants that did not run."""
    sections = [
        first_lines(*comparison_rows(found)),
        first_rows(more_limits(found)),
        wrap_lines(variant_legend(found)),
        *map(format_table, comparison_tables(found, title, variant_names([one.label for one in found.variants]))),
        wrap_lines(notes),
        wrap_lines(not_run_lines(found)),
    ]
    return list(filter(None, sections))


def comparison_rows(found: ComparisonResult) -> FirstRows:
    """Return the title and the rows of the first lines: a line for each question that the comparison can answer."""
    names, place = name_forms(found.name), next(iter(found.environment.file_systems), None)
    if found.modelled:
        place = FileSystem("", f"storage {found.modelled}", "MODELLED")
    title = title_results([f"{name}: {found.what}" for name in names], found.ranks, found.nodes, place, [""])
    return fit_rows(title, list(_answer_rows(found)), advice_rows(found.answer.advice))


def more_limits(found: ComparisonResult) -> list[Row]:
    """Return the limits for which the first lines have no room."""
    shown = comparison_rows(found)[1]
    return [row for row in _answer_rows(found) if row[0] == "LIMIT" and row not in shown]


def _answer_rows(found: ComparisonResult) -> Iterator[tuple[str, str]]:
    answer = found.answer
    lead = _lead(answer, found.is_stall_comparison)
    if answer.verdict == USE:
        yield "ANSWER", f"use {answer.use}: {lead}"
    elif answer.verdict == EITHER:
        yield "ANSWER", f"{answer.verdict}: {sentence(answer.reasons[0])}"
    else:
        verdict = "" if answer.verdict == CANNOT_SAY else f"{answer.verdict}: "
        yield "ANSWER", f"{verdict}cannot say what to use"
        yield "WHY", sentence(answer.reasons[0])
        if answer.use:
            yield "MEASURED", f"{answer.use}: {lead}"
    if answer.tied:
        tied = (f"{one} (ahead, maybe by chance)" if one in answer.ahead else one for one in answer.tied)
        yield "EQUAL", f"not shown to differ from it: {'; '.join(tied)}"
    source = _SOURCES[answer.source][0 if found.caches else 1]
    without = "no checkpoints" if found.without_saves else ""
    parts = [source, _CACHES.get(found.caches, "") if answer.source != "memory" else "", without]
    yield "MEMORY" if answer.source == "memory" else "STORAGE", "; ".join(filter(None, parts))
    yield from (("LIMIT", sentence(one)) for one in answer.limits)


def _lead(answer: ComparisonAnswer, is_stall: bool) -> str:
    """Return by how much the variant to use is better than another, with the interval before the long name."""
    times = f"{number(answer.ratio, 3)} times"
    if answer.ratio_low is not None and answer.ratio_high is not None:
        times += f" (95 %: {number(answer.ratio_low, 3)} to {number(answer.ratio_high, 3)})"
    return f"stalls {times} shorter than with {answer.against}" if is_stall else f"{times} as fast as {answer.against}"


def comparison_tables(found: ComparisonResult, title: str, names: Sequence[str]) -> list[Table]:
    """Return verdicts, figures, and a sweep of two settings if there are two; none if no variant ran.

    Titles begin with `title`; `names` are those of the variants.
    """
    if not found.variants:
        return []
    main, what, columns, ratio = _SAMPLES, "samples/s", _LOOP_COLUMNS, "times as\nfast"
    meaning = "Speedups over the first variant"
    about = "batch latency, where the time of all ranks went, and what was read"
    if found.is_stall_comparison:
        main, what, columns, ratio = _STALL, "stall", _STALL_COLUMNS, "times\nshorter"
        meaning = "Ratios of the first variant's stalls to those of the others"
        about = "time until complete, and time of the slowest rank in each part (without generating contents)"
    verdicts = (
        f"{title}: rates and stalls are geometric means of {count(found.repetitions, 'pass', 'passes')}. "
        f"{meaning} are geometric means over blocks; their 95 % intervals and p-values are adjusted for the number "
        "of variants"
    )
    shown, named = select_columns(columns, found.variants), list(zip(names, found.variants, strict=True))
    headings = ("variant", main.heading, "GB/s", ratio, "from", "to", "p", "smallest\nshown", "verdict")
    rows = [(name, main.cell(one), _GIGABYTES.cell(one), *_verdict_cells(one, found.reference)) for name, one in named]
    figures = [(name, *(column.cell(one) for column in shown)) for name, one in named]
    tables = [
        Table(verdicts, headings, tuple(rows)),
        Table(f"{title}: {about}", ("variant", *(column.heading for column in shown)), tuple(figures)),
    ]
    if len(found.varied) == 2 and min(len(one.values) for one in found.varied) > 1:
        tables.append(_sweep_table(found, main, f"{title}: {what}"))
    return tables


def _sweep_table(found: ComparisonResult, column: Column[SavedVariant], title: str) -> Table:
    """Return a figure as a table of two varied settings, the first downwards and the second across."""
    down, across = found.varied
    cells = {frozenset(one.settings): column.cell(one) for one in found.variants}
    rows = [
        (first, *(cells.get(frozenset([(down.name, first), (across.name, other)]), ABSENT) for other in across.values))
        for first in down.values
    ]
    return Table(f"{title} by {down.name} (down) and {across.name} (across)", (down.name, *across.values), tuple(rows))


def _verdict_cells(one: SavedVariant, reference: str) -> list[str]:
    if one.label == reference:
        return ["1", "", "", "", "", "reference"]
    smallest = None if one.smallest_difference is None else 1 + one.smallest_difference
    ends = (number(one.ratio_low), number(one.ratio_high))
    return [number(one.ratio), *ends, number(one.p_adjusted, 2), number(smallest, 3), one.verdict]


def variant_names(labels: Sequence[str]) -> list[str]:
    """Return the names of variants in tables: their labels, or `(1)`, `(2)`, ... if any label is too long."""
    if max(map(len, labels), default=0) <= _LONGEST_VARIANT:
        return list(labels)
    return [f"({i + 1})" for i in range(len(labels))]


def variant_legend(found: ComparisonResult) -> list[str]:
    """Return the legend of variants: the labels behind numbers, why a variant was added, and notes of their loops."""
    lines = []
    # Notes that all variants have are printed once.
    notes_of_first = next((one.notes for one in found.variants), ())
    common = [note for note in notes_of_first if all(note in one.notes for one in found.variants)]
    for name, one in zip(variant_names([one.label for one in found.variants]), found.variants, strict=True):
        label = "" if name == one.label else f" {one.label}"
        added = f" (added: {one.added})" if one.added else ""
        is_alone = one.api == "mpi-collective" and dict(one.hints_asked).get("romio_cb_read") == "disable"
        alone = ": independent reads in a collective call, no aggregation" if is_alone else ""
        notes = "".join(f"; {note}" for note in one.notes if note not in common)
        if label or added or alone or notes:
            lines.append(f"{name}{label}{added}{alone}{notes}")
    return lines + [f"all variants: {note}" for note in common]


def not_run_lines(found: ComparisonResult) -> list[str]:
    """Return the variants that did not run, by the reason."""
    reasons = group_by(found.not_run, lambda one: one.reason)
    return [f"not run: {reason}: {'; '.join(one.label for one in some)}" for reason, some in reasons.items()]


def wrap_lines(lines: Sequence[str]) -> str:
    """Return lines of a wide terminal."""
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines)


def _header(outcome: Outcome) -> str:
    passes, blocks = count(outcome.repetitions, "pass", "passes"), count(outcome.repetitions, "block")
    variants = count(len(outcome.measured), "variant")
    target = outcome.what if outcome.is_stall_comparison else f"loop {outcome.what}"
    rows = [
        ("comparison", f"{outcome.name}: {target}, {variants}, {passes} of each"),
        *(("override", f"-D {name}={value}") for name, value in outcome.overrides),
        ("order", f"random in each of {blocks}, seed {outcome.seed}; a warm-up each before"),
        *environment_rows(outcome.environment, outcome.ranks, outcome.nodes),
    ]
    for phase in outcome.prepared:
        rows += [("note", f"{phase.name}: {note}") for note in phase.notes]
    return align_rows(rows)
