"""The common parts of a comparison's report: conditions, names of variants, verdicts, and variants that did not run."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace

from dliosim.compare.result import ComparisonAnswer, Outcome, VariantResult
from dliosim.compare.statistics import VariantComparison
from dliosim.readable import ABSENT, count, number, seconds
from dliosim.report.compare.answer_lines import comparison_lines, limits_below, name_target
from dliosim.report.compare.notes import compose_notes
from dliosim.report.compare.saved_table import variant_names
from dliosim.report.run.conditions import environment_rows
from dliosim.report.text_table import WIDTH, Column, align_rows, count_cell, format_columns, grid, time_cell


def _format_percent(share: float | None) -> str:
    return ABSENT if share is None else number(100 * share, 3)


def _format_figure(value: float | None) -> str:
    return number(value, 3)


def _median(
    heading: str, name: str, show: Callable[[float | None], str] = time_cell, optional: bool = False, unit: float = 1
) -> Column[VariantResult]:
    """Return the column of a figure's median, in units of `unit`."""

    def figure(one: VariantResult) -> float | None:
        median = one.median(name)
        return None if median is None else median / unit

    return Column(heading, figure, show, optional)


def _mean(heading: str, name: str, show: Callable[[float | None], str], unit: float = 1) -> Column[VariantResult]:
    """Return the column of a figure's geometric mean, in units of `unit`."""

    def figure(one: VariantResult) -> float | None:
        mean = one.mean(name)
        return None if mean is None else mean / unit

    return Column(heading, figure, show)


def _share(heading: str, part: str, optional: bool = False) -> Column[VariantResult]:
    return Column(heading, lambda one: one.share(part), _format_percent, optional)


def _tail(heading: str, name: str) -> Column[VariantResult]:
    return Column(heading, lambda one: one.latency and getattr(one.latency, name), time_cell)


_GIGABYTES = _mean("GB/s", "bytes_per_second", number, unit=1e9)
_SAMPLES = _mean("samples\n/s", "samples_per_second", number)
_STALL = _mean("stall", "stall_seconds", time_cell)

_LOOP_COLUMNS: tuple[Column[VariantResult], ...] = (
    _tail("batch\np50", "p50"),
    _tail("p99", "p99"),
    _tail("max", "max"),
    _median("utili-\nzation %", "utilization", _format_percent, optional=True),
    _share("data\nwait %", "data_wait_seconds"),
    _share("compute\n%", "compute_seconds", optional=True),
    _share("sync\nwait %", "sync_wait_seconds"),
    _share("arrival\nwait %", "arrival_wait_seconds", optional=True),
    _share("check-\npoint %", "checkpoint_seconds", optional=True),
    _median("check-\npoints", "checkpoint_seconds", optional=True),
    _share("proces-\nsing %", "processing_seconds", optional=True),
    _median("decode", "decode_seconds", optional=True),
    _median("pre-\nprocess", "preprocess_seconds", optional=True),
    _share("tool\n%", "tool_seconds"),
    _median("in\nflight", "depth", _format_figure),
    _median("read()\n/ asked", "amplification", number),
    _median("device\n/ asked", "storage_amplification", _format_figure, optional=True),
    _median("cached\n%", "resident_share", _format_percent),
)

_STALL_COLUMNS: tuple[Column[VariantResult], ...] = (
    Column("longest\nstall", lambda one: max(one.values_of("stall_seconds")), time_cell),
    _median("complete\nafter", "until_complete_seconds"),
    _median("GB", "bytes", _format_figure, unit=1e9),
    _median("files", "files", count_cell),
    _median("calls", "calls", count_cell),
    _median("in\ncalls", "call_seconds"),
    _median("open,\nclose", "open_seconds"),
    _median("passed\nto ranks", "send_seconds", optional=True),
    _median("sync", "file_sync_seconds", optional=True),
    _median("com-\nmit", "commit_seconds", optional=True),
    _median("rename", "rename_seconds", optional=True),
    _median("plan", "plan_seconds", optional=True),
    _median("seria-\nlize", "serialize_seconds", optional=True),
    _median("wait", "wait_seconds", optional=True),
    _median("stage", "stage_seconds", optional=True),
    _median("flush", "flush_seconds", optional=True),
    _median("drain", "drain_seconds", optional=True),
    _median("part-\nner", "partner_seconds", optional=True),
    _median("cached\n%", "resident_share", _format_percent, optional=True),
)


def comparison_report(outcome: Outcome, answer: ComparisonAnswer) -> str:
    """Return all that a comparison prints at its end, at most `WIDTH` columns wide except for long labels."""
    labels = variant_names([one.label for one in outcome.measured])
    named = zip(outcome.measured, labels, strict=True)
    short = replace(outcome, measured=tuple(replace(one, label=label) for one, label in named))
    notes = compose_notes(short, answer.place(outcome))
    sections = [
        comparison_lines(outcome, answer),
        limits_below(outcome, answer),
        _legend(outcome, labels),
        *_tables(outcome, labels),
        "\n".join(textwrap.fill(sentence, WIDTH, subsequent_indent="    ") for sentence in notes),
        _not_run(outcome),
        _header(outcome),
        f"whole comparison: {seconds(outcome.total_seconds)}",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _tables(outcome: Outcome, names: list[str]) -> list[str]:
    main, what, columns, ratio = _SAMPLES, "samples/s", _LOOP_COLUMNS, "times as\nfast"
    meaning = "times as fast as the first variant"
    about = "batch latency, where the time of all ranks went, and what was read"
    if outcome.is_stall_comparison:
        main, what, columns, ratio = _STALL, "stall", _STALL_COLUMNS, "times\nless"
        meaning = "how many times less than the first variant it stalls"
        about = "how long until complete, and the longest of any rank in each part (making contents left out)"
    named = list(zip(names, outcome.measured, strict=True))
    return [
        _verdict_table(outcome, names, (main, _GIGABYTES), ratio, meaning),
        format_columns(f"{outcome.what}: {about}", "variant", named, [[column] for column in columns]),
        _sweep_table(outcome, main, what),
    ]


def _verdict_table(
    outcome: Outcome, names: list[str], columns: Sequence[Column[VariantResult]], ratio: str, meaning: str
) -> str:
    """Return a row for each variant: its figures, and its comparison with the first."""
    rows = [
        [name, *(column.cell(one) for column in columns), *_verdict_cells(outcome.comparison_of(place))]
        for place, (name, one) in enumerate(zip(names, outcome.measured, strict=True))
    ]
    title = (
        f"{outcome.what}: rates and stalls are geometric means of {count(outcome.repetitions, 'pass', 'passes')}. Next "
        f"to them: {meaning}, as a mean of the ratios within blocks, its 95 % interval, and p. Both allow for "
        "the number of variants"
    )
    headings = (column.heading for column in columns)
    return grid(title, ["variant", *headings, ratio, "from", "to", "p", "smallest\nshown", "verdict"], rows)


def _sweep_table(outcome: Outcome, column: Column[VariantResult], what: str) -> str:
    """Return a figure as a table of two varied names, the first downwards and the second across; empty for others."""
    if len(outcome.varied) != 2 or min(len(one.values) for one in outcome.varied) < 2:
        return ""
    down, across = outcome.varied
    found = {tuple(one.values): one for one in outcome.measured}
    rows = []
    for first in down.values:
        cells = [found.get(((down.name, first), (across.name, second))) for second in across.values]
        rows.append([first, *(ABSENT if one is None else column.cell(one) for one in cells)])
    title = f"{outcome.what}: {what} by {down.name} (down) and {across.name} (across)"
    return grid(title, [down.name, *across.values], rows, [1] * len(across.values))


def _header(outcome: Outcome) -> str:
    passes = count(outcome.repetitions, "pass", "passes")
    rows = [
        (
            "comparison",
            f"{outcome.name}: {name_target(outcome.what)}, {count(len(outcome.measured), 'variant')}, {passes} of each",
        ),
        *(("override", f"-D {name}={value}") for name, value in outcome.overrides),
        (
            "order",
            f"random in each of {count(outcome.repetitions, 'block')}, seed {outcome.seed}; a warm-up each before",
        ),
        *environment_rows(outcome.environment, outcome.ranks, outcome.nodes),
    ]
    for phase in outcome.prepared:
        rows += [("note", f"{phase.name}: {note}") for note in phase.notes]
    return align_rows(rows)


def _legend(outcome: Outcome, names: list[str]) -> str:
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


def _has_no_aggregation(one: VariantResult) -> bool:
    return one.api == "mpi-collective" and dict(one.hints_asked).get("romio_cb_read") == "disable"


def _verdict_cells(found: VariantComparison | None) -> list[str]:
    if found is None:
        return ["1", "", "", "", "", "reference"]
    p = number(found.p_adjusted, 2)
    return [number(found.ratio), number(found.low), number(found.high), p, number(found.smallest, 3), found.verdict]


def _not_run(outcome: Outcome) -> str:
    reasons: dict[str, list[str]] = {}
    for one in outcome.not_run:
        reasons.setdefault(one.reason, []).append(one.label)
    lines = [f"not run: {reason}: {'; '.join(labels)}" for reason, labels in reasons.items()]
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines)
