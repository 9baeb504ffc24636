"""Several runs of one pattern: the mean and the spread of the figures that each of them has."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from dliosim.measure.figures import aggregate
from dliosim.measure.results.file_phases import FilePhase
from dliosim.measure.results.run_summary import RunSummary, select_epochs
from dliosim.readable import count, number, percent
from dliosim.report.cells import percent_cell, rate_cell
from dliosim.report.phase_titles import group_by, group_phases, title_of
from dliosim.report.text_table import SCREEN, grid

#: MLPerf Storage asks that repetitions are this close.
CLOSE = 0.05


def format_repeats(runs: Sequence[RunSummary]) -> str:
    """Return the table of the figures of runs: mean, least, greatest and spread, as a share of the mean."""
    values = [dict(_list_figures(run)) for run in runs]
    rows, widest = [], 0.0
    for name in values[0]:
        figures = [figure for one in values if (figure := one.get(name)) is not None]
        if len(figures) < len(runs):
            continue
        mean = statistics.fmean(figures)
        spread = (max(figures) - min(figures)) / mean if mean else 0.0
        widest = max(widest, spread)
        show = _SHOW[name.rpartition(", ")[2]]
        rows.append([name, *map(show, (mean, min(figures), max(figures))), percent(spread, 2)])
    verdict = f"within {CLOSE:.0%}" if widest <= CLOSE else f"the widest differs by {percent(widest, 2)}"
    title = f"{count(len(runs), 'run')}: {verdict}"
    return grid(title, ["", "mean", "least", "greatest", "spread"], rows, width=SCREEN) + "\n"


_SHOW: dict[str, Callable[[float], str]] = {
    "storage-limited utilization": percent_cell,
    "samples/s": number,
    "bytes/s": rate_cell,
}


def _list_figures(run: RunSummary) -> Iterator[tuple[str, float | None]]:
    """Yield the figures of each loop, over the epochs that count, and the rate of each save and restore."""
    for phases, answer in zip_longest(group_phases(run.loops), run.answers):
        title, epochs = title_of(phases[0]), select_epochs([one for phase in phases for one in phase.epochs], answer)
        alone = answer.storage_utilization if answer else None
        yield f"{title}, storage-limited utilization", alone.mean if alone else None
        yield f"{title}, samples/s", aggregate.samples_per_second(epochs)
        yield f"{title}, bytes/s", aggregate.bytes_per_second(epochs)
    moved: list[FilePhase] = [*run.saves, *run.restores]
    for (kind, name), some in group_by(moved, lambda phase: (phase.kind, phase.name)).items():
        rates = [phase.verb.bytes / phase.verb.seconds for phase in some if phase.verb.seconds > 0]
        yield f"{kind} {name}, bytes/s", statistics.fmean(rates) if rates else None
