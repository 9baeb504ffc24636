"""What a comparison of loops prints: rates, latencies and where the time went, beside what all comparisons have."""

from __future__ import annotations

from collections.abc import Callable

from dliosim.compare.loop_pass import Pass
from dliosim.compare.loop_verdict import verdict
from dliosim.compare.result import Measured, Outcome
from dliosim.readable import number
from dliosim.report.compare.tables import (
    Column,
    columns_table,
    judged_table,
    percents,
    plain,
    report_of,
    sweep_table,
    time,
)


def _tail(name: str) -> Callable[[Measured[Pass]], float | None]:
    return lambda one: None if one.latency is None else float(getattr(one.latency, name))


def _share(part: Callable[[Pass], float]) -> Callable[[Measured[Pass]], float | None]:
    return lambda one: one.share(part)


def _median(figure: Callable[[Pass], float | None]) -> Callable[[Measured[Pass]], float | None]:
    return lambda one: one.median(figure)


_MORE = (
    Column("batch\np50", _tail("p50"), time),
    Column("p99", _tail("p99"), time),
    Column("max", _tail("max"), time),
    Column("utili-\nzation %", _median(lambda each: each.utilization), percents, optional=True),
    Column("data\nwait %", _share(lambda each: each.data_wait), percents),
    Column("compute\n%", _share(lambda each: each.compute), percents, optional=True),
    Column("sync\nwait %", _share(lambda each: each.sync_wait), percents),
    Column("arrival\nwait %", _share(lambda each: each.arrival_wait), percents, optional=True),
    Column("check-\npoint %", _share(lambda each: each.checkpoint), percents, optional=True),
    Column("check-\npoints", _median(lambda each: each.checkpoint), time, optional=True),
    Column("proces-\nsing %", _share(lambda each: each.processing), percents, optional=True),
    Column("decode", _median(lambda each: each.decode), time, optional=True),
    Column("pre-\nprocess", _median(lambda each: each.preprocess), time, optional=True),
    Column("tool\n%", _share(lambda each: each.tool), percents),
    Column("in\nflight", _median(lambda each: each.depth), plain),
    Column("read()\n/ asked", _median(lambda each: each.amplification), number),
    Column("device\n/ asked", _median(lambda each: each.storage_amplification), plain, optional=True),
    Column("cached\n%", _median(lambda each: each.resident_share), percents),
)


def compare_report(outcome: Outcome[Pass]) -> str:
    """Everything that a comparison of loops prints at its end."""
    return report_of(outcome, _tables, verdict)


def _tables(outcome: Outcome[Pass], names: list[str]) -> list[str]:
    said = "times as fast as the first variant"
    title = f"{outcome.what}: batch latency, where the time of all ranks went, and what was read"
    return [
        judged_table(outcome, names, ["samples\n/s", "GB/s", "times as\nfast"], [_samples, _gigabytes], said),
        columns_table(outcome, names, _MORE, title),
        sweep_table(outcome, _samples, "samples/s"),
    ]


def _samples(one: Measured[Pass]) -> str:
    return number(one.median(lambda each: each.samples_per_second))


def _gigabytes(one: Measured[Pass]) -> str:
    rate = one.median(lambda each: each.bytes_per_second)
    return number(None if rate is None else rate * 1e-9)
