"""Bandwidth over time: of each rank as a map, and of all ranks together as a curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from dliosim.pictures.epochs import align_epochs, mark_epochs, name_rows, rank_text
from dliosim.pictures.style import INK, SERIES, figure, grid_lines, rate_axis, whole_axis
from dliosim.readable import size
from dliosim.report.reader.loops import RecordedEpoch

MAP_CAPTION = (
    "How to read it: a row is a rank, and light is much. A dark row is a rank that gets less than the others, a "
    "dark column a time in which no rank gets anything: a checkpoint, steps that have all they need, or storage that "
    "stalls. "
    "Formula: bytes of a rank in a bin / the bin's length, the bytes of a step spread evenly over the time in which "
    "it was read."
)

SUM_CAPTION = (
    "How to read it: the curve is what all ranks get together; the broken line is each epoch's mean over the time "
    "shown, checkpoints included. A first epoch below the later ones is a cold cache; gaps are checkpoints, or "
    "steps that have all they need. "
    "Formula: bytes of all ranks in a bin / the bin's length, the bytes of a step spread evenly over the time in "
    "which it was read."
)


def bandwidth_map(epochs: Sequence[RecordedEpoch]) -> Figure:
    """Draw bandwidth by rank and time."""
    places = align_epochs(epochs)
    rows = max(len(place.epoch.ranks) for place in places)
    drawn = figure(height=min(5.6, 2.2 + 0.1 * rows))
    axes = drawn.add_subplot()
    unit = mark_epochs(axes, places)
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
    return drawn


def bandwidth_over_time(epochs: Sequence[RecordedEpoch], ranks: int) -> Figure:
    """Draw the bandwidth of all ranks together over time, with each epoch's mean."""
    places = align_epochs(epochs)
    drawn = figure(height=2.9)
    axes = drawn.add_subplot()
    unit = mark_epochs(axes, places)
    greatest = 0.0
    for place in places:
        epoch = place.epoch
        rate = epoch.bytes[:, : epoch.bin_count].sum(axis=0, dtype=np.float64) / (epoch.bin_ns * 1e-9)
        greatest = max(greatest, float(rate.max()))
        axes.stairs(rate, place.edges * unit, fill=True, color=SERIES[0], alpha=0.25, linewidth=0)
        axes.stairs(rate, place.edges * unit, color=SERIES[0], linewidth=1.0)
        mean = float(epoch.bytes.sum(dtype=np.float64)) / epoch.seconds
        axes.hlines(mean, place.begin * unit, place.end * unit, color=INK, linewidth=1.2, linestyle=(0, (5, 2)))
        if place.end - place.begin > 0.12 * places[-1].end:
            axes.text(
                (place.begin + place.end) / 2 * unit,
                0.98,
                f"mean {size(mean, 3)}/s",
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
            )
    # Room above the curves for the means.
    axes.set_ylim(0, 1.2 * greatest or 1.0)
    rate_axis(axes.yaxis)
    axes.set_ylabel(f"bytes per second, {rank_text(places[0].epoch, ranks)}")
    grid_lines(axes, "y")
    return drawn
