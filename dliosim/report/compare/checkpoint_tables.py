"""What a comparison of saves or restores prints: stalls, and what of them was what."""

from __future__ import annotations

from collections.abc import Callable

from dliosim.compare.checkpoint_pass import StallPass
from dliosim.compare.checkpoint_verdict import stall_verdict
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


def _median(figure: Callable[[StallPass], float | None]) -> Callable[[Measured[StallPass]], float | None]:
    return lambda one: one.median(figure)


def _longest(one: Measured[StallPass]) -> float:
    return max(each.stall for each in one.counted)


def _whole(value: float | None) -> str:
    return f"{value or 0:.0f}"


_MORE = (
    Column("longest\nstall", _longest, time),
    Column("complete\nafter", _median(lambda each: each.until_complete), time),
    Column("GB", _median(lambda each: each.bytes * 1e-9), plain),
    Column("files", _median(lambda each: each.files), _whole),
    Column("calls", _median(lambda each: each.calls), _whole),
    Column("in\ncalls", _median(lambda each: each.call), time),
    Column("open,\nclose", _median(lambda each: each.open_close), time),
    Column("passed\nto ranks", _median(lambda each: each.send), time, optional=True),
    Column("sync", _median(lambda each: each.file_sync), time, optional=True),
    Column("com-\nmit", _median(lambda each: each.commit), time, optional=True),
    Column("rename", _median(lambda each: each.rename), time, optional=True),
    Column("plan", _median(lambda each: each.plan), time, optional=True),
    Column("seria-\nlize", _median(lambda each: each.serialize), time, optional=True),
    Column("wait", _median(lambda each: each.wait), time, optional=True),
    Column("stage", _median(lambda each: each.stage), time, optional=True),
    Column("flush", _median(lambda each: each.flush), time, optional=True),
    Column("drain", _median(lambda each: each.drain), time, optional=True),
    Column("part-\nner", _median(lambda each: each.partner), time, optional=True),
    Column("cached\n%", _median(lambda each: each.resident_share), percents, optional=True),
)


def stall_report(outcome: Outcome[StallPass]) -> str:
    """Everything that a comparison of saves or restores prints at its end."""
    return report_of(outcome, _tables, stall_verdict)


def _tables(outcome: Outcome[StallPass], names: list[str]) -> list[str]:
    said = "how many times less than the first variant it stalls"
    title = (
        f"{outcome.what}: how long until complete, and the longest of any rank in each part (making contents left out)"
    )
    return [
        judged_table(outcome, names, ["stall", "GB/s", "times\nless"], [_stall, _gigabytes], said),
        columns_table(outcome, names, _MORE, title),
        sweep_table(outcome, _stall, "stall"),
    ]


def _stall(one: Measured[StallPass]) -> str:
    return time(one.median(lambda each: each.stall))


def _gigabytes(one: Measured[StallPass]) -> str:
    rate = one.median(lambda each: each.bytes_per_second)
    return number(None if rate is None else rate * 1e-9)
