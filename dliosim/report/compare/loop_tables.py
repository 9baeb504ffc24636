"""The report of a comparison of loops: rates, latencies, parts of the time, and the tables of every comparison."""

from __future__ import annotations

from collections.abc import Callable

from dliosim.compare.loop_pass import LoopPass
from dliosim.compare.loop_verdict import loop_verdict
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


def _tail(name: str) -> Callable[[VariantResult[LoopPass]], float | None]:
    return lambda one: None if one.latency is None else float(getattr(one.latency, name))


def _share(part: Callable[[LoopPass], float]) -> Callable[[VariantResult[LoopPass]], float | None]:
    return lambda one: one.share(part)


def _median(figure: Callable[[LoopPass], float | None]) -> Callable[[VariantResult[LoopPass]], float | None]:
    return lambda one: one.median(figure)


_MORE = (
    FigureColumn("batch\np50", _tail("p50"), format_time),
    FigureColumn("p99", _tail("p99"), format_time),
    FigureColumn("max", _tail("max"), format_time),
    FigureColumn("utili-\nzation %", _median(lambda each: each.utilization), format_percent, optional=True),
    FigureColumn("data\nwait %", _share(lambda each: each.data_wait), format_percent),
    FigureColumn("compute\n%", _share(lambda each: each.compute), format_percent, optional=True),
    FigureColumn("sync\nwait %", _share(lambda each: each.sync_wait), format_percent),
    FigureColumn("arrival\nwait %", _share(lambda each: each.arrival_wait), format_percent, optional=True),
    FigureColumn("check-\npoint %", _share(lambda each: each.checkpoint), format_percent, optional=True),
    FigureColumn("check-\npoints", _median(lambda each: each.checkpoint), format_time, optional=True),
    FigureColumn("proces-\nsing %", _share(lambda each: each.processing), format_percent, optional=True),
    FigureColumn("decode", _median(lambda each: each.decode), format_time, optional=True),
    FigureColumn("pre-\nprocess", _median(lambda each: each.preprocess), format_time, optional=True),
    FigureColumn("tool\n%", _share(lambda each: each.tool), format_percent),
    FigureColumn("in\nflight", _median(lambda each: each.depth), format_figure),
    FigureColumn("read()\n/ asked", _median(lambda each: each.amplification), number),
    FigureColumn("device\n/ asked", _median(lambda each: each.storage_amplification), format_figure, optional=True),
    FigureColumn("cached\n%", _median(lambda each: each.resident_share), format_percent),
)


def compare_report(outcome: Outcome[LoopPass]) -> str:
    """Return all that a comparison of loops prints at its end."""
    return comparison_report(outcome, _tables, loop_verdict)


def _tables(outcome: Outcome[LoopPass], names: list[str]) -> list[str]:
    said = "times as fast as the first variant"
    title = f"{outcome.what}: batch latency, where the time of all ranks went, and what was read"
    return [
        verdict_table(outcome, names, ["samples\n/s", "GB/s", "times as\nfast"], [_samples, _gigabytes], said),
        columns_table(outcome, names, _MORE, title),
        sweep_table(outcome, _samples, "samples/s"),
    ]


def _samples(one: VariantResult[LoopPass]) -> str:
    return number(one.median(lambda each: each.samples_per_second))


def _gigabytes(one: VariantResult[LoopPass]) -> str:
    rate = one.median(lambda each: each.bytes_per_second)
    return number(None if rate is None else rate * 1e-9)
