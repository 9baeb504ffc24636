"""Several runs of one loop: next to each other, and over the number of ranks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator

from dliosim.measure.results.run_summary import RunSummary, Spread
from dliosim.pictures import style
from dliosim.pictures.style import FAINT, INK, NEEDED, PARTS, SERIES
from dliosim.readable import number, percent, size
from dliosim.report.pattern_diff import input_differences
from dliosim.report.reader.load import LoopResult, SavedRun

#: The runs that a curve over ranks joins: those of the same study on different numbers of ranks.
RULE = (
    "Only results with the same pattern, overrides, options (null, verify), kinds of file systems and access method "
    "are joined."
)


#: From this ratio of the most ranks to the fewest on, their axis is logarithmic.
_WIDE = 8


@dataclass(frozen=True, slots=True)
class LoopRate:
    """A loop of a result. Results of the same `study` belong on one line of a scaling curve."""

    label: str  #: label of the result
    study: str  #: name of the study; empty for a result in no curve
    ranks: int  #: number of ranks
    rate: float  #: rate over the epochs that count; B/s or samples/s
    epochs: tuple[float, ...]  #: rate of each of these epochs; B/s or samples/s
    shares: dict[str, float]  #: share of each of the `PARTS` in the time of all ranks
    is_doubtful: bool  #: True if ranks waited for cores, or bytes came from memory
    needs: float | None = None  #: rate that the loop needs for its goal; B/s; None without compute


@dataclass(frozen=True, slots=True)
class BusyPoint:
    """The storage-limited utilization on a number of ranks. Points of the same `study` belong on one line."""

    study: str  #: name of the line
    ranks: int  #: number of ranks
    busy: Spread  #: storage-limited utilization, with its interval
    goal: float  #: storage-limited utilization that is asked for
    is_doubtful: bool = False  #: True if ranks waited for cores, or bytes came from memory


def rate_bars(rated: Sequence[LoopRate], in_bytes: bool) -> Figure:
    """Draw rates and parts of the time, a row a result."""
    lines = sum(max(style.wrap_text(one.label, 34).count("\n"), 1) + 1 for one in rated)
    drawn = style.figure(height=1.6 + 0.17 * lines)
    left, right = drawn.subplots(1, 2, sharey=True)
    rows = np.arange(len(rated))
    left.hlines(rows, [min(one.epochs) for one in rated], [max(one.epochs) for one in rated], SERIES[0], linewidth=1.8)
    rates, doubtful = np.array([one.rate for one in rated]), np.array([one.is_doubtful for one in rated])
    for some, face in ((~doubtful, SERIES[0]), (doubtful, "white")):
        left.plot(rates[some], rows[some], "o", markersize=7, color=SERIES[0], markerfacecolor=face)
    needs = np.array([one.needs or 0.0 for one in rated])
    left.plot(needs[needs > 0], rows[needs > 0], "|", markersize=16, markeredgewidth=2.2, color=NEEDED)
    begins = np.zeros(len(rated))
    for part, colour in PARTS.items():
        shares = np.array([max(one.shares.get(part, 0.0), 0.0) for one in rated])
        right.barh(rows, shares, left=begins, height=0.62, color=colour, linewidth=0)
        ink = INK if part in ("compute", "sync wait", "checkpoint") else "white"
        for row in np.flatnonzero(shares > 0.09):
            middle, text = begins[row] + shares[row] / 2, percent(shares[row], 2)
            right.text(middle, row, text, ha="center", va="center", color=ink, fontsize=8)
        begins += shares
    left.set_xlim(0, 1.08 * max(max(*one.epochs, one.needs or 0.0) for one in rated) or 1.0)
    left.xaxis.set_major_locator(MaxNLocator(5))
    if in_bytes:
        style.rate_axis(left.xaxis)
    left.set(xlabel="bytes per second" if in_bytes else "samples per second", ylim=(len(rated) - 0.5, -0.5))
    left.set_yticks(rows, [style.wrap_text(one.label, 34) for one in rated])
    for axes in (left, right):
        axes.tick_params(axis="y", length=0)
        axes.grid(True, axis="x")
    right.set(xlim=(0, 1), xlabel="share of the time of all ranks")
    style.percent_axis(right.xaxis)
    handles: list[Artist] = []
    if needs.any():
        how: Any = {"linestyle": "", "marker": "|", "markersize": 10, "markeredgewidth": 2.2}
        handles.append(Line2D([], [], color=NEEDED, label="needs", **how))
    seen = [part for part in PARTS if any(one.shares.get(part, 0.0) > 0 for one in rated)]
    handles += [Patch(color=PARTS[part], label=part) for part in seen]
    drawn.legend(handles=handles, loc="outside upper right", ncols=len(handles), handlelength=1.2, columnspacing=1.4)
    return drawn


def scaling_curve(rated: Sequence[LoopRate], in_bytes: bool) -> Figure:
    """Draw the rate over ranks, both logarithmic, with the line of ideal scaling of each series."""
    drawn, axes = style.single_axes(height=4.0)
    lines: dict[str, list[LoopRate]] = {}
    for one in rated:
        lines.setdefault(one.study, []).append(one)
    counts = sorted({one.ranks for one in rated})
    for i, (name, points) in enumerate(lines.items()):
        colour = SERIES[i % len(SERIES)]
        points.sort(key=attrgetter("ranks"))
        same_ranks = groupby(points, attrgetter("ranks"))
        middles = {count: statistics.median(one.rate for one in some) for count, some in same_ranks}
        fewest, base = next(iter(middles.items()))
        ideal = [base * count / fewest for count in (fewest, counts[-1])]
        axes.plot([fewest, counts[-1]], ideal, color=FAINT, linewidth=1.0, linestyle=(0, (5, 3)))
        axes.plot(list(middles), list(middles.values()), color=colour, linewidth=1.2, label=style.wrap_text(name, 90))
        for one in points:
            axes.plot([one.ranks] * 2, [min(one.epochs), max(one.epochs)], color=colour, linewidth=1.8)
            face = "white" if one.is_doubtful else colour
            axes.plot([one.ranks], [one.rate], marker="o", markersize=6.5, color=colour, markerfacecolor=face)
            if one.needs:
                axes.plot([one.ranks], [one.needs], marker="_", markersize=14, markeredgewidth=2.2, color=NEEDED)
        for count, rate in middles.items():
            share = percent(rate * fewest / (base * count), 2) if count > fewest else ""
            is_doubtful = any(one.is_doubtful for one in points if one.ranks in (fewest, count))
            if note := f"{share}{'?' if is_doubtful else ''}":
                # Labels of different lines have different heights, as the lines may meet.
                below = (7, -9 - 11 * (i % 4))
                axes.annotate(note, (count, rate), xytext=below, textcoords="offset points", color=colour, fontsize=8.5)
    _rank_axis(axes, counts)
    axes.set(yscale="log", xlim=(counts[0] / 1.2, counts[-1] * 1.35))
    low, high = axes.get_ylim()
    if high < 20 * low:
        axes.set_ylim(low / 2.5, high * 2.5)
    style.log_axis(axes.yaxis, lambda value: f"{size(value, 1)}/s" if in_bytes else number(value, 1))
    if high < 100 * low:
        axes.yaxis.set_major_locator(LogLocator(10.0, subs=(1.0, 2.0, 5.0)))
    axes.set(xlabel="ranks", ylabel="bytes per second" if in_bytes else "samples per second")
    axes.grid(True, axis="both")
    axes.plot([], [], color=FAINT, linewidth=1.0, linestyle=(0, (5, 3)), label="ideal")
    if any(one.needs for one in rated):
        axes.plot([], [], linestyle="", marker="_", markersize=14, markeredgewidth=2.2, color=NEEDED, label="needs")
    axes.legend(loc="upper left")
    return drawn


def utilization_curve(points: Sequence[BusyPoint]) -> Figure:
    """Draw the storage-limited utilization over ranks, with its interval and the goals."""
    drawn, axes = style.single_axes(height=3.2)
    counts = sorted({one.ranks for one in points})
    for i, name in enumerate(dict.fromkeys(one.study for one in points)):
        line = sorted((one for one in points if one.study == name), key=attrgetter("ranks"))
        colour, ranks = SERIES[i % len(SERIES)], [one.ranks for one in line]
        axes.plot(ranks, [one.busy.mean for one in line], color=colour, label=style.wrap_text(name, 90))
        for one in line:
            face = "white" if one.is_doubtful else colour
            axes.plot([one.ranks] * 2, [one.busy.low, one.busy.high], color=colour, linewidth=1.8)
            axes.plot([one.ranks], [one.busy.mean], "o", markersize=6.5, color=colour, markerfacecolor=face)
    for goal in {one.goal for one in points}:
        axes.axhline(goal, color=NEEDED, linewidth=1.2)
        axes.annotate("goal", (counts[-1], goal), xytext=(0, 3), textcoords="offset points", color=NEEDED, ha="right")
    if counts[-1] > _WIDE * counts[0]:
        _rank_axis(axes, counts)
    axes.set(ylim=(0, 1.03), xlabel="ranks (accelerators)", ylabel="storage-limited utilization")
    style.percent_axis(axes.yaxis)
    axes.grid(True, axis="both")
    axes.legend(loc="lower left")
    return drawn


def _rank_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Make the axis of ranks logarithmic, with a tick at each number that has room for its label."""
    axes.set_xscale("log", base=2)
    kept: list[int] = []
    for count in counts:
        if not kept or count >= kept[-1] * 1.2:
            kept.append(count)
    style.log_axis(axes.xaxis, lambda value: str(round(value)), kept)


def study_names(pairs: Sequence[tuple[SavedRun, LoopResult]]) -> list[str]:
    """Return the name of each run's study, with what distinguishes it from the others.

    The name is empty for a run that is left out, as its study has no other number of ranks.
    """
    keys = [_study_key(saved.run, loop) for saved, loop in pairs]
    ranks: dict[object, set[int]] = {}
    for key, (saved, _) in zip(keys, pairs, strict=True):
        ranks.setdefault(key, set()).add(saved.run.ranks)
    first = {key: pair for key, pair in reversed(list(zip(keys, pairs, strict=True))) if len(ranks[key]) > 1}
    names = dict(zip(first, _study_labels(list(first.values())), strict=True))
    return [names.get(key, "") for key in keys]


def _study_key(run: RunSummary, loop: LoopResult) -> object:
    # The order of overrides only matters for equal names: the last one counts, or each counts for its own part.
    overrides = tuple(sorted(run.overrides, key=lambda pair: pair[0]))
    roots = tuple(sorted((place.root, place.kind) for place in run.environment.file_systems))
    return (run.name, run.pattern, overrides, run.null, run.verify, roots, loop.phases[0].api)


def _study_labels(pairs: Sequence[tuple[SavedRun, LoopResult]]) -> list[str]:
    differences = input_differences([saved.run for saved, _ in pairs])
    return [
        ", ".join(filter(None, [f"{saved.run.name}: {loop.title}", loop.phases[0].api or "no reads", *details]))
        for (saved, loop), *details in zip(pairs, *differences, strict=True)
    ]
