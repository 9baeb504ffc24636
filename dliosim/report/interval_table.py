"""Table of the best interval of saves, as `plan` and `run` show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dliosim.plan.forecast import checkpoint_interval
from dliosim.readable import long_time, seconds
from dliosim.report.cells import percent_cell
from dliosim.report.text_table import WIDTH, Column, format_columns

EXPLAINED = (
    "An interval is the work between the end of a save and the start of the next. A background save costs its stall "
    "alone (steps that its flush slows down are not counted), and the next save cannot start before its flush ends. A "
    "failure loses the work since the newest complete save started."
)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One row of the interval table."""

    name: str  #: checkpoint, or bandwidth
    costs: checkpoint_interval.Costs  #: costs of a save and of a failure; s
    own: float | None = None  #: interval of the workload itself, if it has one; s
    knows_stall: bool = True  #: false if nothing says how long a save holds the ranks: `costs` have 0 s

    @property
    def own_possible(self) -> float | None:
        """Interval that saves of the workload have: its own one, raised to a flush that takes longer; s."""
        return None if self.own is None else checkpoint_interval.possible_interval(self.own, self.costs)


def explain_intervals(rows: Sequence[IntervalRow]) -> str:
    """Return the text below a table of these rows."""
    raised = list(dict.fromkeys(row.own for row in rows if row.own is not None and row.own < row.costs.flush))
    if not raised:
        return EXPLAINED
    short = " and ".join(long_time(each) for each in raised)
    return f"{EXPLAINED} The pattern's interval of {short} is shorter than a flush, so it was raised to the flush."


def interval_table(title: str, first: str, rows: Sequence[IntervalRow], width: int = WIDTH) -> str:
    """Return the interval table below a title; `first` is the heading of the names."""
    return format_columns(title, first, [(row.name, row) for row in rows], _INTERVAL_COLUMNS, width)


def _stall_figure(name: str, figure: Callable[[IntervalRow], float], show: Callable[[Any], str]) -> Column[IntervalRow]:
    """Return a column of a figure that follows from the stall alone; None if the stall is not known."""
    return Column(name, lambda row: figure(row) if row.knows_stall else None, show)


def _best_loss(row: IntervalRow) -> checkpoint_interval.Waste:
    return checkpoint_interval.compute_waste(checkpoint_interval.best_interval(row.costs), row.costs)


def _own_loss(row: IntervalRow) -> float | None:
    return None if row.own_possible is None else checkpoint_interval.compute_waste(row.own_possible, row.costs).total


_INTERVAL_COLUMNS: list[list[Column[IntervalRow]]] = [
    [
        _stall_figure("stall", lambda row: row.costs.stall, seconds),
        Column("flush", lambda row: row.costs.flush, seconds, optional=True),
        Column("restart", lambda row: row.costs.restart, seconds),
    ],
    [
        _stall_figure(
            "Young", lambda row: checkpoint_interval.young_interval(row.costs.stall, row.costs.mtbf), seconds
        ),
        _stall_figure("Daly", lambda row: checkpoint_interval.daly_interval(row.costs.stall, row.costs.mtbf), seconds),
        Column("save\nevery", lambda row: checkpoint_interval.best_interval(row.costs), seconds),
    ],
    [
        _stall_figure("saving", lambda row: _best_loss(row).saving, percent_cell),
        Column("work\nagain", lambda row: _best_loss(row).rework, percent_cell),
        Column("re-\nstarting", lambda row: _best_loss(row).restart, percent_cell),
        Column("lost\nin all", lambda row: _best_loss(row).total, percent_cell),
    ],
    [
        Column("own\ninterval", lambda row: row.own_possible, seconds, optional=True),
        Column("lost\nwith it", _own_loss, percent_cell, optional=True),
    ],
]


def interval_loss(interval: float, costs: checkpoint_interval.Costs) -> dict[str, float]:
    """Return an interval between saves, s, and the shares of the time that are lost with it."""
    shares = checkpoint_interval.compute_waste(interval, costs)
    return {"interval_seconds": interval, **asdict(shares), "total": shares.total}
