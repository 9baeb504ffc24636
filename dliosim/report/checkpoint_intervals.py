"""How often it is best to save, and what saves and failures cost then: the same table for forecasts and for runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dliosim.plan.forecast.checkpoint_interval import Costs, best, daly, lost, young
from dliosim.readable import ABSENT, number, percent, seconds
from dliosim.report.text_table import grid

EXPLAINED = (
    "Intervals are of work between the end of a save and the beginning of the next. A save in the background costs its "
    "stall alone (steps that its flush slows down are not counted), may come no sooner than its flush ends, and a "
    "failure loses the work since the newest complete one began."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its name, what a save and a failure cost, and the interval that the workload has, if it has one."""

    name: str
    costs: Costs
    own: float | None = None


def long_time(value: float) -> str:
    """A time that may be hours."""
    return f"{number(value / 3600)} h" if value >= 3600 else seconds(value)


def interval_table(title: str, first: str, rows: Sequence[Row]) -> str:
    """The table below a title; `first` heads the names."""
    flushes = any(row.costs.flush for row in rows)
    owns = any(row.own is not None for row in rows)
    costs = ["stall", *(["flush"] if flushes else []), "restart"]
    best_ones = ["Young", "Daly", "save\nevery"]
    shares = ["saving", "work\nagain", "re-\nstarting", "lost\nin all"]
    own = ["own\ninterval", "lost\nwith it"] if owns else []
    cells = [[row.name, *_cells(row, flushes, owns)] for row in rows]
    groups = [len(group) for group in (costs, best_ones, shares, own) if group]
    return grid(title, [first, *costs, *best_ones, *shares, *own], cells, groups)


def _cells(row: Row, flushes: bool, owns: bool) -> list[str]:
    costs, interval = row.costs, best(row.costs)
    at_best = lost(interval, costs)
    cells = [costs.stall, *([costs.flush] if flushes else []), costs.restart]
    cells += [young(costs.stall, costs.mtbf), daly(costs.stall, costs.mtbf), interval]
    shares = [at_best.saving, at_best.rework, at_best.restart, at_best.total]
    text = [*(seconds(value) for value in cells), *(percent(share, 3) for share in shares)]
    if owns and row.own is None:
        return [*text, ABSENT, ABSENT]
    return [*text, seconds(row.own), percent(lost(row.own, costs).total, 3)] if row.own is not None else text
