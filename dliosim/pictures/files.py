"""Saves and restores over a run: the time of each with its parts, and its rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dliosim.measure.figures.declaration import name_part, result_figures
from dliosim.measure.figures.epoch_summaries import VerbSummary
from dliosim.measure.results.run_summary import FilePhase
from dliosim.pictures.style import SERIES, figure, rate_axis, time_axis, whole_axis, wrap_text
from dliosim.report.phase_titles import title_of

#: More kinds of saves and restores have no room next to each other.
MOST_GROUPS = 6

# Characters of the titles of all groups in a line: longer ones would leave no room for the axes.
_LINE = 66

# Parts below this share of all time are drawn together.
_WORTH_A_COLOUR = 0.02

_OTHER = "#C9C9C9"

# Restores that found more than this share in the page cache are not storage's.
_CACHED = 0.01


def times_and_rates(groups: Sequence[Sequence[FilePhase]]) -> Figure:
    """Draw time and rate of each phase, groups next to each other."""
    parts = [[_name_parts(phase) for phase in group] for group in groups]
    colours = _choose_colours([one for of_group in parts for one in of_group])
    drawn = figure(height=4.2)
    widths = [max(len(group), 3) for group in groups]
    how = {"width_ratios": widths, "height_ratios": (2.4, 1.0)}
    panels = drawn.subplots(2, len(groups), sharex="col", squeeze=False, gridspec_kw=how)
    longest = max(phase.verb.seconds for group in groups for phase in group)
    unit = time_axis(panels[0][0].yaxis, longest, "time of the slowest rank")
    for group, of_group, above, below, width in zip(groups, parts, *panels, widths, strict=True):
        _draw_times(above, of_group, colours, unit)
        _draw_rates(below, group)
        above.set_title(wrap_text(title_of(group[0]), _LINE * width // sum(widths)))
        margin = (width - len(group)) / 2
        below.set(xlim=(0.5 - margin, len(group) + 0.5 + margin), xlabel=f"number of the {group[0].kind}")
        whole_axis(below.xaxis)
        rate_axis(below.yaxis)
        below.set_ylim(bottom=0)
        if above is not panels[0][0]:
            above.sharey(panels[0][0])
            above.tick_params(labelleft=False)
    panels[0][0].set_ylim(bottom=0)
    panels[1][0].set_ylabel("rate")
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    drawn.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.2, columnspacing=1.4)
    return drawn


def _name_parts(phase: FilePhase) -> dict[str, float]:
    """Return the parts of the time of the slowest rank by their names, as in the table of files; s."""
    words = {one.name: one.words for one in result_figures(VerbSummary)}
    return {words.get(name, name_part(name)): value for name, value in phase.parts.items()}


def _choose_colours(parts: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """Return the colours of the parts that are long enough, and one for all others."""
    names = dict.fromkeys(name for one in parts for name in one)
    whole = sum(sum(one.values()) for one in parts)
    totals = {name: sum(one.get(name, 0.0) for one in parts) for name in names}
    longest = sorted(names, key=lambda name: totals[name])[-len(SERIES) :]
    chosen = [name for name in names if name in longest and totals[name] > _WORTH_A_COLOUR * whole]
    rest = {"other": _OTHER} if len(chosen) < len(names) else {}
    return dict(zip(chosen, SERIES, strict=False)) | rest


def _draw_times(axes: Axes, parts: Sequence[Mapping[str, float]], colours: Mapping[str, str], unit: float) -> None:
    x, below = np.arange(1, len(parts) + 1), np.zeros(len(parts))
    for name, colour in colours.items():
        heights = np.array([one.get(name, 0.0) for one in parts])
        if colour == _OTHER:
            heights = np.array([sum(one[each] for each in one if each not in colours) for one in parts])
        axes.bar(x, heights * unit, bottom=below, color=colour, edgecolor="white", linewidth=0.5)
        below += heights * unit
    axes.grid(True, axis="y")


def _draw_rates(axes: Axes, group: Sequence[FilePhase]) -> None:
    rates = np.array([phase.verb.bytes_per_second or 0.0 for phase in group])
    cached = np.array([phase.kind == "restore" and (phase.resident_share or 0.0) > _CACHED for phase in group])
    x = np.arange(1, len(group) + 1)
    axes.plot(x, rates, color=SERIES[0], linewidth=1.0)
    for some, face in ((~cached, SERIES[0]), (cached, "white")):
        if not some.any():  # marks that are not clipped have a place, at the figure's corner, even without points
            continue
        axes.plot(x[some], rates[some], "o", markersize=5, color=SERIES[0], markerfacecolor=face, clip_on=False)
    axes.grid(True, axis="y")
