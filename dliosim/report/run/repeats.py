"""Several runs of one pattern: the mean and the spread of the figures that each of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from statistics import fmean
from typing import Final

from dliosim.measure.figures import aggregate
from dliosim.measure.results.run_summary import RunSummary, select_epochs
from dliosim.readable import count, number, percent
from dliosim.report.cells import percent_cell, rate_cell
from dliosim.report.phase_titles import group_phases, title_of
from dliosim.report.text_table import SCREEN, grid

#: MLPerf Storage asks that repetitions are this close.
CLOSE = 0.05

#: Figures, and how they are shown.
_SHOW: Final[dict[str, Callable[[float], str]]] = {
    "storage-limited utilization": percent_cell,
    "samples/s": number,
    "bytes/s": rate_cell,
}


def format_repeats(runs: Sequence[RunSummary]) -> str:
    """Return the table of the figures of runs: mean, least, greatest and spread, as a share of the mean."""
    rows, widest = [], 0.0
    for (title, name), values in _collect_figures(runs).items():
        spread = relative_spread(values)
        widest = max(widest, spread)
        cells = map(_SHOW[name], (fmean(values), min(values), max(values)))
        rows.append([f"{title}, {name}", *cells, percent(spread, 2)])
    verdict = f"within {CLOSE:.0%}" if widest <= CLOSE else f"the widest differs by {percent(widest, 2)}"
    title = f"{count(len(runs), 'run')}: {verdict}"
    return grid(title, ["", "mean", "least", "greatest", "spread"], rows, width=SCREEN) + "\n"


def relative_spread(values: Sequence[float]) -> float:
    """Return the difference between the greatest and the least value, as a share of their mean."""
    mean = fmean(values)
    return (max(values) - min(values)) / mean if mean else 0.0


def main_figures(runs: Sequence[RunSummary]) -> dict[str, list[float]]:
    """Return a figure of each loop, save and restore in each run, by title: the first one that all runs have."""
    found: dict[str, list[float]] = {}
    for (title, _), values in _collect_figures(runs).items():
        found.setdefault(title, values)
    return found


def _collect_figures(runs: Sequence[RunSummary]) -> dict[tuple[str, str], list[float]]:
    """Return the values of the figures that all runs have, by title and name."""
    figures = [{name: value for name, value in _list_figures(run) if value is not None} for run in runs]
    return {name: [one[name] for one in figures] for name in figures[0] if all(name in one for one in figures)}


def _list_figures(run: RunSummary) -> Iterator[tuple[tuple[str, str], float | None]]:
    """Yield the figures of each loop, over the epochs that count, and the mean rate of each save and restore."""
    for phases, answer in zip_longest(group_phases(run.loops), run.answers):
        title, epochs = title_of(phases[0]), select_epochs([one for phase in phases for one in phase.epochs], answer)
        alone = answer.storage_utilization if answer else None
        yield (title, "storage-limited utilization"), alone.mean if alone else None
        yield (title, "samples/s"), aggregate.samples_per_second(epochs)
        yield (title, "bytes/s"), aggregate.bytes_per_second(epochs)
    for saves in group_phases([*run.saves, *run.restores]):
        rates = [rate for phase in saves if (rate := phase.verb.bytes_per_second) is not None]
        yield (title_of(saves[0]), "bytes/s"), fmean(rates) if rates else None
