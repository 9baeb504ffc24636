"""Several runs of one pattern: the mean and the spread of the figures that each of them has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from operator import itemgetter
from statistics import fmean
from typing import Any, Final

from dliosim.measure.figures import aggregate
from dliosim.measure.results.machine import MEMORY_KINDS
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

_SHOWN: Final = ("mean", "least", "greatest")


def format_repeats(runs: Sequence[RunSummary]) -> str:
    """Return the table of the figures of runs: mean, least, greatest and spread; empty if they have none."""
    found = summarize_figures(runs)
    if not found:
        return ""
    rows = [
        [_name_figure(one), *(_SHOW[one["figure"]](one[name]) for name in _SHOWN), percent(one["spread"], 2)]
        for one in found
    ]
    widest = max(found, key=itemgetter("spread"))
    verdict = f"{'within' if widest['spread'] <= CLOSE else 'not within'} {percent(CLOSE, 1)}"
    title = f"{count(len(runs), 'run')}: {verdict}; {_name_figure(widest)} differs by {percent(widest['spread'], 2)}"
    return grid(title, ["", *_SHOWN, "spread"], rows, width=SCREEN) + "\n"


def repeats_json(runs: Sequence[RunSummary], warm_ups: int) -> str:
    """Return one line of JSON for scripts, with the figures of runs; `warm_ups` runs came before them."""
    content = {"warm_ups": warm_ups, "runs": len(runs), "figures": summarize_figures(runs)}
    return json.dumps({"repeats": content}, allow_nan=False) + "\n"


def summarize_figures(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return the figures that all runs have, with their spread as a share of the mean, and if memory gave any run's."""
    memory = {title for run in runs for title in _list_memory_titles(run)}
    return [
        {"title": title, "figure": name, "memory": name == "bytes/s" and title in memory}
        | {"mean": fmean(values), "least": min(values), "greatest": max(values), "spread": relative_spread(values)}
        for (title, name), values in _collect_figures(runs).items()
    ]


def _name_figure(figure: dict[str, Any]) -> str:
    return f"{figure['title']}, {figure['figure']}{' (memory)' * figure['memory']}"


def _list_memory_titles(run: RunSummary) -> Iterator[str]:
    """Yield the titles of loops, saves and restores whose bytes came from memory, or went there."""
    loops = zip(group_phases(run.loops), run.answers, strict=False)
    yield from (title_of(phases[0]) for phases, answer in loops if answer.source == "memory")
    yield from (title_of(one) for one in (*run.saves, *run.restores) if run.is_stored_on(one, MEMORY_KINDS))


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
    """Yield the figures of each loop, over the epochs that count, and bytes / time of each save and restore."""
    for phases, answer in zip_longest(group_phases(run.loops), run.answers):
        title, epochs = title_of(phases[0]), select_epochs([one for phase in phases for one in phase.epochs], answer)
        alone = answer.storage_utilization if answer else None
        yield (title, "storage-limited utilization"), alone.mean if alone else None
        yield (title, "samples/s"), aggregate.samples_per_second(epochs)
        yield (title, "bytes/s"), aggregate.bytes_per_second(epochs)
    for saves in group_phases([*run.saves, *run.restores]):
        whole, seconds = (sum(getattr(one.verb, name) for one in saves) for name in ("bytes_once", "seconds"))
        yield (title_of(saves[0]), "bytes/s"), whole / seconds if whole and seconds > 0 else None
