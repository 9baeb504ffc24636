"""Bandwidth over time: of each rank as a map, and of all ranks together as a curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from dliosim.pictures.epochs import align_epochs, mark_epochs, name_rows, rank_text
from dliosim.pictures.style import INK, NEEDED, SERIES, figure, grid_lines, rate_axis, whole_axis
from dliosim.readable import size
from dliosim.report.reader.loops import RecordedEpoch

# Share of the axis that an epoch needs for the text of its rate.
_ROOM_FOR_RATE = 0.14

# A needed rate that is more times the greatest one is named, but not drawn: the curve would be flat.
_MOST_ABOVE = 5

MAP_CAPTION = (
    "How to read it: a row is a rank, and light is much. A dark row is a rank that gets less than the others, a "
    "dark column a time in which no rank gets anything: a checkpoint, steps that have all they need, or storage that "
    "stalls. The line across the scale on the right is what each rank needs on average for the loop's goal. "
    "Formula: bytes of a rank in a bin / the bin's length, the bytes of a step spread evenly over the time in which "
    "it was read."
)

SUM_CAPTION = (
    "How to read it: the curve is what all ranks get together; the broken line is each epoch's rate, without "
    "the time of checkpoints. A first epoch below the later ones is a cold cache; gaps are checkpoints, or "
    "steps that have all they need. The line `needs` is the rate that the loop needs for its goal: "
    "an epoch whose broken line is above it has enough; one below it may have waited for something else. "
    "Formula: bytes of all ranks in a bin / the bin's length, the bytes of a step spread evenly over the time in "
    "which it was read."
)


def bandwidth_map(epochs: Sequence[RecordedEpoch], needs: float | None = None, longest: float = 0.0) -> Figure:
    """Draw bandwidth by rank and time; `needs` is what a rank needs, in bytes/s."""
    places = align_epochs(epochs)
    rows = max(len(place.epoch.ranks) for place in places)
    drawn = figure(height=min(5.6, 2.2 + 0.1 * rows))
    axes = drawn.add_subplot()
    unit = mark_epochs(axes, places, longest)
    rates = [place.epoch.bytes[:, : place.epoch.bin_count] / (place.epoch.bin_ns * 1e-9) for place in places]
    greatest = max(float(one.max()) for one in rates) or 1.0
    mesh = None
    for place, rate in zip(places, rates, strict=True):
        across = np.arange(len(place.epoch.ranks) + 1) - 0.5
        mesh = axes.pcolormesh(place.edges * unit, across, rate, vmin=0, vmax=greatest, rasterized=True)
    axes.set_ylim(rows - 0.5, -0.5)
    whole_axis(axes.yaxis)
    name_rows(axes.yaxis, places[0].epoch)
    axes.set_ylabel("rank")
    if mesh is not None:
        bar = drawn.colorbar(mesh, ax=axes, pad=0.01, aspect=25)
        bar.outline.set_visible(False)
        rate_axis(bar.ax.yaxis)
        bar.set_label("of a rank")
        if needs and needs <= greatest:
            bar.ax.axhline(needs, color=NEEDED, linewidth=2.5)
    return drawn


def bandwidth_over_time(
    epochs: Sequence[RecordedEpoch],
    ranks: int,
    rates: Mapping[int, float | None],
    needs: float | None = None,
    longest: float = 0.0,
) -> Figure:
    """Draw the bandwidth of all ranks together over time, with the rate of each epoch, and the rate that they need.

    `rates` and `needs` are in bytes/s, rates by the number of the epoch.
    """
    places = align_epochs(epochs)
    drawn = figure(height=2.9)
    axes = drawn.add_subplot()
    unit = mark_epochs(axes, places, longest)
    greatest = 0.0
    for place in places:
        epoch = place.epoch
        curve = epoch.bytes[:, : epoch.bin_count].sum(axis=0, dtype=np.float64) / (epoch.bin_ns * 1e-9)
        greatest = max(greatest, float(curve.max()))
        axes.stairs(curve, place.edges * unit, fill=True, color=SERIES[0], alpha=0.25, linewidth=0)
        axes.stairs(curve, place.edges * unit, color=SERIES[0], linewidth=1.0)
        rate = rates[epoch.epoch]
        if rate is None:
            continue
        axes.hlines(rate, place.begin * unit, place.end * unit, color=INK, linewidth=1.2, linestyle=(0, (5, 2)))
        if place.end - place.begin > _ROOM_FOR_RATE * max(places[-1].end, longest):
            axes.text(
                (place.begin + place.end) / 2 * unit,
                0.98,
                f"{size(rate, 3)}/s",
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
            )
    if needs and needs > _MOST_ABOVE * greatest:
        axes.text(1.0, 1.1, f"needs {size(needs, 3)}/s, far above", transform=axes.transAxes, ha="right", color=NEEDED)
    elif needs:
        greatest = max(greatest, needs)
        axes.axhline(needs, color=NEEDED, linewidth=1.6)
        note = f"needs\n{size(needs, 3)}/s"
        axes.text(1.005, needs, note, transform=axes.get_yaxis_transform(), va="center", color=NEEDED)
    # Room above the curves for the means.
    axes.set_ylim(0, 1.2 * greatest or 1.0)
    rate_axis(axes.yaxis)
    axes.set_ylabel(f"bytes per second, {rank_text(places[0].epoch, ranks)}")
    grid_lines(axes, "y")
    return drawn
