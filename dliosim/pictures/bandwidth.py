"""Bandwidth over time: of each rank as a map, and of all ranks together as a curve."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dliosim.pictures.epochs import EpochSpan, align_epochs, mark_epochs, name_rows, rank_text, save_handles
from dliosim.pictures.style import FAINT, INK, LIGHT_HEAT, NEEDED, SERIES, rate_axis, single_axes, whole_axis
from dliosim.readable import size
from dliosim.report.reader.arrays import Floats, RecordedEpoch

# A needed rate that is more times the greatest one is named, but not drawn: the curve would be flat.
_MOST_ABOVE = 5

# Of the columns in which something was read this share sets the scale, in per cent: a single peak would hide the rest.
_ON_SCALE = 98

MAP_CAPTION = (
    "How to read it: a row is a rank; the darker, the more it gets, and white is nothing. A light row is a rank that "
    "gets less than the others, a white column a time in which no rank gets anything: steps that have all they need, "
    "or storage that stalls. The darkest colour is also of all that is above the scale. The line across the scale is "
    "what each rank needs on average for the loop's goal. "
    "Formula: bytes of a rank in a bin / the bin's length, the bytes of a step spread evenly over the time in which "
    "it was read."
)

SUM_CAPTION = (
    "How to read it: the curve is what all ranks get together; the broken line, and the figure at an epoch's name, is "
    "what the epoch was given, by the time that its steps would take if storage alone held them. Above the line "
    "`needs` it is enough for the loop's goal, below it is not. Gaps are steps that have all they need. The scale is "
    "that of the epochs that count for the answer; peaks above it have a mark. "
    "Formula: bytes of all ranks in a bin / the bin's length, the bytes of a step spread evenly over the time in "
    "which it was read; broken line: bytes asked / the time of docs/metrics.md, Storage-limited utilization, of the "
    "steps after the first."
)


def bandwidth_map(
    epochs: Sequence[RecordedEpoch], needs: float | None = None, longest: float = 0.0, counted: Collection[int] = ()
) -> Figure:
    """Draw bandwidth by rank and time; `needs` is what a rank needs, in bytes/s.

    The scale is that of the epochs that are `counted`, or of all if none is recorded.
    """
    places = align_epochs(epochs)
    rows = max(len(place.epoch.ranks) for place in places)
    drawn, axes = single_axes(height=min(5.6, 2.4 + 0.1 * rows))
    unit = mark_epochs(axes, places, longest)
    rates = [_rates(place) for place in places]
    greatest = max(_scale_end(places, rates, counted), needs or 0.0) or 1.0
    is_above = max(float(one.max()) for one in rates) > greatest
    for place, rate in zip(places, rates, strict=True):
        across = np.arange(len(place.epoch.ranks) + 1) - 0.5
        some = np.ma.masked_equal(rate, 0.0)
        colours = colormaps[LIGHT_HEAT]
        mesh = axes.pcolormesh(place.edges * unit, across, some, vmin=0, vmax=greatest, cmap=colours, rasterized=True)
    axes.set_ylim(rows - 0.5, -0.5)
    whole_axis(axes.yaxis)
    name_rows(axes.yaxis, places[0].epoch)
    axes.set_ylabel("rank")
    bar = drawn.colorbar(mesh, ax=axes, pad=0.01, aspect=25, extend="max" if is_above else "neither")
    rate_axis(bar.ax.yaxis)
    bar.set_label("what a rank gets")
    handles = [Patch(facecolor="white", edgecolor=FAINT, label="nothing read"), *save_handles(places)]
    if needs:
        bar.ax.axhline(needs, color=NEEDED, linewidth=2.5)
        handles.append(Line2D([], [], color=NEEDED, linewidth=2.5, label=f"a rank needs {size(needs, 3)}/s"))
    drawn.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return drawn


def bandwidth_over_time(
    epochs: Sequence[RecordedEpoch],
    ranks: int,
    rates: Mapping[int, float | None],
    needs: float | None = None,
    longest: float = 0.0,
    counted: Collection[int] = (),
) -> Figure:
    """Draw the bandwidth of all ranks together over time, with the rate of each epoch, and the rate that they need.

    `rates` and `needs` are in bytes/s, rates by the number of the epoch. The scale is that of the epochs that are
    `counted`, or of all if none is recorded.
    """
    places = align_epochs(epochs)
    drawn, axes = single_axes(height=3.1)
    known = {number: rate for number, rate in rates.items() if rate is not None}
    unit = mark_epochs(axes, places, longest, {number: f"{size(rate, 3)}/s" for number, rate in known.items()})
    curves = [_rates(place).sum(axis=0, keepdims=True) for place in places]
    shown = [known[place.epoch.epoch] for place in places if place.epoch.epoch in known]
    greatest = max([_scale_end(places, curves, counted), *shown])
    is_drawn = needs is not None and needs <= _MOST_ABOVE * greatest
    top = 1.1 * max(greatest, needs if needs and is_drawn else 0.0) or 1.0
    for place, (curve,) in zip(places, curves, strict=True):
        axes.stairs(curve, place.edges * unit, fill=True, color=SERIES[0], alpha=0.25, linewidth=0)
        axes.stairs(curve, place.edges * unit, color=SERIES[0], linewidth=1.0)
        rate = known.get(place.epoch.epoch)
        if rate is not None:
            axes.hlines(rate, place.begin * unit, place.end * unit, color=INK, linewidth=1.4, linestyle=(0, (5, 2)))
    axes.set_ylim(0, top)
    handles = [
        Patch(facecolor=SERIES[0], alpha=0.4, label="all ranks get"),
        Line2D([], [], color=INK, linewidth=1.4, linestyle=(0, (5, 2)), label="an epoch was given"),
    ]
    handles += [*_mark_peaks(axes, places, curves, top, unit), *save_handles(places)]
    if needs and not is_drawn:
        handles.append(Line2D([], [], linestyle="", label=f"needs {size(needs, 3)}/s, far above"))
    elif needs:
        axes.axhline(needs, color=NEEDED, linewidth=1.6)
        note = f"needs\n{size(needs, 3)}/s"
        axes.text(1.005, needs, note, transform=axes.get_yaxis_transform(), va="center", color=NEEDED)
    drawn.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    rate_axis(axes.yaxis)
    axes.set_ylabel(f"bytes per second, {rank_text(places[0].epoch, ranks)}")
    axes.grid(True, axis="y")
    return drawn


def _rates(place: EpochSpan) -> Floats:
    """Return what each rank got in each column, in bytes/s."""
    rates: Floats = place.reduce(np.add, place.epoch.bytes) / (place.epoch.bin_ns * 1e-9)
    return rates


def _scale_end(places: Sequence[EpochSpan], rates: Sequence[Floats], counted: Collection[int]) -> float:
    """Return the rate up to which a scale must reach for the epochs that count, single peaks left out."""
    numbers = [place.epoch.epoch for place in places]
    of_counted = [rate for number, rate in zip(numbers, rates, strict=True) if number in counted] or rates
    return max((float(np.percentile(rate[rate > 0], _ON_SCALE)) for rate in of_counted if rate.any()), default=0.0)


def _mark_peaks(
    axes: Axes, places: Sequence[EpochSpan], curves: Sequence[Floats], top: float, unit: float
) -> list[Line2D]:
    """Mark the columns that are higher than the axis; return the entry of the legend, if there are any."""
    pairs = zip(places, curves, strict=True)
    peaks = np.concatenate([((one.edges[:-1] + one.edges[1:]) / 2)[curve[0] > top] for one, curve in pairs]) * unit
    if not peaks.size:
        return []
    highest = max(float(curve.max()) for curve in curves)
    how: Any = {"linestyle": "", "marker": "^", "markersize": 3.5, "color": SERIES[0]}
    axes.plot(peaks, np.full(len(peaks), 0.98), transform=axes.get_xaxis_transform(), **how)
    return [Line2D([], [], label=f"higher, up to {size(highest, 3)}/s", **how)]
