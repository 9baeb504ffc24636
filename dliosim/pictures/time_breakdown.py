"""Parts of the time of each rank, and the utilization or rate of each epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.figures import column_of, name_part, time_parts
from dliosim.pictures.style import (
    INK,
    MOST_SHAPES,
    PARTS,
    SERIES,
    figure,
    grid_lines,
    percent_axis,
    rate_axis,
    time_axis,
    whole_axis,
)
from dliosim.readable import number
from dliosim.report.reader.arrays import Ints

TIME_CAPTION = (
    "How to read it: a column is a rank, all of it the wall time of the epochs after the first (of the only one). "
    "Columns of one height with more yellow are ranks that wait for the others; the one with the least yellow is "
    "the one waited for, and what it has more of is the cause. "
    "Processing is decoding and preprocessing in the steps themselves. "
    "Formula: the sums of ranks.h5, which add up to the wall time; tool is what remains of it."
)

BUSY_CAPTION = (
    "How to read it: a dot is the mean over ranks, the bar spans the least and the greatest rank; 100 % is an "
    "accelerator that never waits. The first epoch holds what a cold cache costs. "
    "Formula: nominal compute / wall time of the steps after the first, blocking checkpoints taken out."
)

RATE_CAPTION = (
    "How to read it: a dot is an epoch. There is no utilization here, because it needs compute, steps after the "
    "first and no requests that arrive by themselves. "
    "Formula: samples (or bytes) of all ranks / the time of the slowest, checkpoints taken out."
)


def time_by_rank(times: dict[str, Ints]) -> Figure:
    """Draw the parts of the wall time of each rank, stacked, over the epochs after the first (or the only one)."""
    sums = {
        name_part(part): _later_rows(times[column_of(part)]).sum(axis=0, dtype=np.float64) * 1e-9
        for part in time_parts(EpochSummary)
    }
    ranks = len(sums["tool"])
    drawn = figure(height=3.4)
    axes = drawn.add_subplot()
    longest = float(sum(sums.values()).max())
    unit = time_axis(axes.yaxis, longest, "wall time of a rank")
    below = np.zeros(ranks)
    for part, colour in PARTS.items():
        # Tool time is a remainder, and may be slightly below 0.
        height = np.maximum(sums[part], 0.0)
        if not height.any():
            continue
        axes.bar(
            np.arange(ranks),
            height * unit,
            width=0.8 if ranks <= 64 else 1.0,
            bottom=below * unit,
            color=colour,
            linewidth=0,
            label=part,
            rasterized=ranks * len(PARTS) > MOST_SHAPES // 2,
            antialiased=ranks <= 64,
        )
        below += height
    axes.set_xlim(-0.6 - max(0, 4 - ranks), ranks - 0.4 + max(0, 4 - ranks))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rank")
    whole_axis(axes.xaxis)
    if ranks <= 16:
        axes.set_xticks(np.arange(ranks))
    grid_lines(axes, "y")
    drawn.legend(loc="outside upper left", ncols=len(PARTS), handlelength=1.2, columnspacing=1.4)
    return drawn


def _later_rows(rows: Ints) -> Ints:
    return rows[1:] if len(rows) > 1 else rows


def has_utilization(epochs: Sequence[EpochSummary]) -> bool:
    """Return True if every epoch has a utilization."""
    return all(epoch.utilization is not None for epoch in epochs)


def utilization_by_epoch(epochs: Sequence[EpochSummary], doubtful: bool) -> Figure:
    """Draw mean, least and greatest utilization of each epoch, from 0 to 100 %."""
    drawn = figure(height=2.8)
    axes = drawn.add_subplot()
    x = np.array([epoch.epoch for epoch in epochs])
    mean = np.array([epoch.utilization or 0.0 for epoch in epochs])
    low = np.array([_first_known(epoch.utilization_min, epoch.utilization) for epoch in epochs])
    high = np.array([_first_known(epoch.utilization_max, epoch.utilization) for epoch in epochs])
    reach = np.abs(np.stack([np.minimum(low - mean, 0), np.maximum(high - mean, 0)]))
    few = len(epochs) <= 50
    axes.errorbar(
        x, mean, reach, color=PARTS["compute"], marker="o" if few else ".", capsize=4 if few else 0, linewidth=1.0
    )
    if len(epochs) <= 12:
        for i, value in enumerate(mean):
            # The label is below the bar, if there is room: so it is never on the line of 100 %.
            is_below = low[i] > 0.2
            # A line that rises to this dot would cross a label in the middle below it.
            is_rising = is_below and i > 0 and mean[i - 1] < 0.9 * value
            axes.annotate(
                f"{number(100 * value, 3)}{'?' if doubtful else ''}",
                (x[i], min(low[i], 0.99) if is_below else high[i]),
                xytext=(0, -6 if is_below else 6),
                textcoords="offset points",
                ha="left" if is_rising else "center",
                va="top" if is_below else "bottom",
                color=INK,
                fontsize=8.5,
            )
    axes.axhline(1.0, color=INK, linewidth=0.8)
    axes.set_ylim(0, max(1.05, 1.05 * float(high.max())))
    percent_axis(axes.yaxis)
    axes.set_ylabel("utilization" + (" (not to be trusted)" if doubtful else ""))
    _epoch_axis(axes, len(epochs))
    return drawn


def rate_by_epoch(epochs: Sequence[EpochSummary]) -> Figure:
    """Draw the bytes per second of each epoch, or the samples per second where nothing was read."""
    bytes_known = all(epoch.bytes_per_second is not None for epoch in epochs)
    rates = [(epoch.bytes_per_second if bytes_known else epoch.samples_per_second) or 0.0 for epoch in epochs]
    drawn = figure(height=2.8)
    axes = drawn.add_subplot()
    axes.plot([epoch.epoch for epoch in epochs], rates, color=SERIES[0], marker="o" if len(epochs) <= 50 else ".")
    axes.set_ylim(0, 1.1 * max(rates) or 1.0)
    if bytes_known:
        rate_axis(axes.yaxis)
    axes.set_ylabel("bytes per second" if bytes_known else "samples per second")
    _epoch_axis(axes, len(epochs))
    return drawn


def _epoch_axis(axes: Axes, epochs: int) -> None:
    axes.set_xlim(0.5, epochs + 0.5)
    whole_axis(axes.xaxis)
    axes.set_xlabel("epoch")
    grid_lines(axes, "y")


def _first_known(value: float | None, other: float | None) -> float:
    return value if value is not None else other or 0.0
