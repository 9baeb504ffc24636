"""Table of the best interval of saves, as `plan` and `run` show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dliosim.plan.forecast.checkpoint_interval import Costs, best_interval, compute_waste, daly_interval, young_interval
from dliosim.readable import number, seconds
from dliosim.report.text_table import WIDTH, Column, format_columns, percent_cell

EXPLAINED = (
    "Intervals are of work between the end of a save and the beginning of the next. A save in the background costs its "
    "stall alone (steps that its flush slows down are not counted), may come no sooner than its flush ends, and a "
    "failure loses the work since the newest complete one began."
)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One row of the interval table."""

    name: str  #: checkpoint, or bandwidth
    costs: Costs  #: costs of a save and of a failure; s
    own: float | None = None  #: interval of the workload itself, if it has one; s


def format_long_time(value: float) -> str:
    """Return a time that may be hours."""
    return f"{number(value / 3600)} h" if value >= 3600 else seconds(value)


def interval_table(title: str, first: str, rows: Sequence[IntervalRow], width: int = WIDTH) -> str:
    """Return the interval table below a title; `first` is the heading of the names."""
    return format_columns(title, first, [(row.name, row) for row in rows], _INTERVAL_COLUMNS, width)


def _best_share(heading: str, share: str) -> Column[IntervalRow]:
    """Return the column of a share of the time that is lost with the best interval."""
    return Column(heading, lambda row: getattr(compute_waste(best_interval(row.costs), row.costs), share), percent_cell)


def _own_loss(row: IntervalRow) -> float | None:
    return None if row.own is None else compute_waste(row.own, row.costs).total


_INTERVAL_COLUMNS: list[list[Column[IntervalRow]]] = [
    [
        Column("stall", lambda row: row.costs.stall, seconds),
        Column("flush", lambda row: row.costs.flush, seconds, optional=True),
        Column("restart", lambda row: row.costs.restart, seconds),
    ],
    [
        Column("Young", lambda row: young_interval(row.costs.stall, row.costs.mtbf), seconds),
        Column("Daly", lambda row: daly_interval(row.costs.stall, row.costs.mtbf), seconds),
        Column("save\nevery", lambda row: best_interval(row.costs), seconds),
    ],
    [
        _best_share("saving", "saving"),
        _best_share("work\nagain", "rework"),
        _best_share("re-\nstarting", "restart"),
        _best_share("lost\nin all", "total"),
    ],
    [
        Column("own\ninterval", lambda row: row.own, seconds, optional=True),
        Column("lost\nwith it", _own_loss, percent_cell, optional=True),
    ],
]
