"""The results of a saved comparison as a table, a row a variant; the same for terminals and for pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dliosim.readable import count, number
from dliosim.report.reader.comparison import REFERENCE, ComparisonResult, SavedVariant
from dliosim.report.reader.load import SavedComparison
from dliosim.report.text_table import (
    Column,
    Table,
    count_cell,
    percent_cell,
    select_columns,
    text_cell,
    time_cell,
)

# Where a variant's label is longer, tables have numbers.
_LONGEST_VARIANT = 44


def tables_of_comparison(saved: SavedComparison, names: Sequence[str]) -> list[Table]:
    """Return the table of a comparison, with these names of its variants; none where no variant ran."""
    found = saved.comparison
    if not found.variants:
        return []
    labels = [one.label for one in found.variants]
    reference = names[labels.index(found.reference)] if found.reference in labels else found.reference
    ratios, columns = f"ratios of rates to {reference}", _LOOP_COLUMNS
    if found.is_stall_comparison:
        ratios, columns = f"ratios of the stall of {reference} to others", _STALL_COLUMNS
    where = f"{count(found.ranks, 'rank')} on {count(found.nodes, 'node')}"
    title = f"{saved.label}, {where}, {count(found.repetitions, 'repetition')}; {ratios}"
    shown = select_columns(columns, found.variants)
    rows = [
        (name, REFERENCE if one.label == found.reference else one.verdict, *(column.cell(one) for column in shown))
        for name, one in zip(names, found.variants, strict=True)
    ]
    return [Table(title, ("", "verdict", *(column.heading for column in shown)), tuple(rows))]


def variant_names(labels: Sequence[str]) -> list[str]:
    """Return the names of variants in tables: their labels, or `(1)`, `(2)`, ... where any label is too long."""
    if max(map(len, labels), default=0) <= _LONGEST_VARIANT:
        return list(labels)
    return [f"({i + 1})" for i in range(len(labels))]


def legend_of_comparison(saved: SavedComparison) -> list[str]:
    """Return number and label of each variant where its tables have numbers."""
    labels = [one.label for one in saved.comparison.variants]
    names = variant_names(labels)
    return [f"{name} {label}" for name, label in zip(names, labels, strict=True) if name != label]


def not_run_lines(found: ComparisonResult) -> list[str]:
    """Return the variants that were not run, and why."""
    return [f"not run: {one.label}: {one.reason}" for one in found.not_run]


def _figure(
    heading: str, key: str, show: Callable[[Any], str] = time_cell, optional: bool = False
) -> Column[SavedVariant]:
    return Column(heading, lambda one: one.figures[key], show, optional)


def _tail(heading: str, tail: str) -> Column[SavedVariant]:
    return Column(heading, lambda one: one.batch_latency and getattr(one.batch_latency, tail), time_cell)


def _gigabytes(rate: float | None) -> str:
    return number(None if rate is None else rate / 1e9)


def _interval(one: SavedVariant) -> str | None:
    if one.ratio_low is None or one.ratio_high is None:
        return None
    return f"{number(one.ratio_low, 3)} .. {number(one.ratio_high, 3)}"


_RATIOS: list[Column[SavedVariant]] = [
    Column("ratio", lambda one: one.ratio, lambda ratio: number(ratio, 3)),
    Column("interval", _interval, text_cell, optional=True),
]

_LOOP_COLUMNS: list[Column[SavedVariant]] = [
    _figure("samples\n/s", "rate_samples_per_second", number),
    _figure("GB/s", "rate_bytes_per_second", _gigabytes),
    *_RATIOS,
    _figure("data\nwait", "data_wait_share", percent_cell),
    _figure("com-\npute", "compute_share", percent_cell),
    _figure("sync\nwait", "sync_wait_share", percent_cell),
    _figure("check-\npoints", "checkpoint_seconds", optional=True),
    _figure("proces-\nsing", "processing_share", percent_cell, optional=True),
    _tail("batch\np50", "p50"),
    _tail("batch\np99", "p99"),
    Column("read() /\nasked", lambda one: one.figures["amplification"], number, optional=True, usual=1.0),
    Column("two-\nphase", lambda one: one.two_phase, text_cell, optional=True),
]

_STALL_COLUMNS: list[Column[SavedVariant]] = [
    _figure("stall", "stall_seconds"),
    *_RATIOS,
    Column("longest\nstall", lambda one: max(one.seconds), time_cell),
    _figure("complete\nafter", "until_complete_seconds"),
    _figure("GB/s", "rate_bytes_per_second", _gigabytes),
    _figure("files", "files", count_cell),
    _figure("calls", "calls", count_cell),
    _figure("in\ncalls", "call_seconds"),
    _figure("open,\nclose", "open_seconds"),
    _figure("passed\nto ranks", "send_seconds", optional=True),
    _figure("sync", "file_sync_seconds", optional=True),
    _figure("com-\nmit", "commit_seconds", optional=True),
    _figure("rename", "rename_seconds", optional=True),
]
