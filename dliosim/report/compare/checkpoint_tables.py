"""The report of a comparison of saves or restores: stalls and their parts."""

from __future__ import annotations

from collections.abc import Callable

from dliosim.compare.checkpoint_pass import StallPass
from dliosim.compare.checkpoint_verdict import stall_verdict
from dliosim.compare.result import Outcome, VariantResult
from dliosim.readable import number
from dliosim.report.compare.tables import (
    FigureColumn,
    columns_table,
    comparison_report,
    format_figure,
    format_percent,
    format_time,
    sweep_table,
    verdict_table,
)


def _median(figure: Callable[[StallPass], float | None]) -> Callable[[VariantResult[StallPass]], float | None]:
    return lambda one: one.median(figure)


def _longest_stall(one: VariantResult[StallPass]) -> float:
    return max(each.stall for each in one.block_passes)


def _format_count(value: float | None) -> str:
    return f"{value or 0:.0f}"


_MORE = (
    FigureColumn("longest\nstall", _longest_stall, format_time),
    FigureColumn("complete\nafter", _median(lambda each: each.completion_time), format_time),
    FigureColumn("GB", _median(lambda each: each.bytes * 1e-9), format_figure),
    FigureColumn("files", _median(lambda each: each.files), _format_count),
    FigureColumn("calls", _median(lambda each: each.calls), _format_count),
    FigureColumn("in\ncalls", _median(lambda each: each.call), format_time),
    FigureColumn("open,\nclose", _median(lambda each: each.open_close), format_time),
    FigureColumn("passed\nto ranks", _median(lambda each: each.send), format_time, optional=True),
    FigureColumn("sync", _median(lambda each: each.file_sync), format_time, optional=True),
    FigureColumn("com-\nmit", _median(lambda each: each.commit), format_time, optional=True),
    FigureColumn("rename", _median(lambda each: each.rename), format_time, optional=True),
    FigureColumn("plan", _median(lambda each: each.plan), format_time, optional=True),
    FigureColumn("seria-\nlize", _median(lambda each: each.serialize), format_time, optional=True),
    FigureColumn("wait", _median(lambda each: each.wait), format_time, optional=True),
    FigureColumn("stage", _median(lambda each: each.stage), format_time, optional=True),
    FigureColumn("flush", _median(lambda each: each.flush), format_time, optional=True),
    FigureColumn("drain", _median(lambda each: each.drain), format_time, optional=True),
    FigureColumn("part-\nner", _median(lambda each: each.partner), format_time, optional=True),
    FigureColumn("cached\n%", _median(lambda each: each.resident_share), format_percent, optional=True),
)


def stall_report(outcome: Outcome[StallPass]) -> str:
    """Return all that a comparison of saves or restores prints at its end."""
    return comparison_report(outcome, _tables, stall_verdict)


def _tables(outcome: Outcome[StallPass], names: list[str]) -> list[str]:
    said = "how many times less than the first variant it stalls"
    title = (
        f"{outcome.what}: how long until complete, and the longest of any rank in each part (making contents left out)"
    )
    return [
        verdict_table(outcome, names, ["stall", "GB/s", "times\nless"], [_stall, _gigabytes], said),
        columns_table(outcome, names, _MORE, title),
        sweep_table(outcome, _stall, "stall"),
    ]


def _stall(one: VariantResult[StallPass]) -> str:
    return format_time(one.median(lambda each: each.stall))


def _gigabytes(one: VariantResult[StallPass]) -> str:
    rate = one.median(lambda each: each.bytes_per_second)
    return number(None if rate is None else rate * 1e-9)
