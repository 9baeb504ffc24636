"""Parts of the time of each rank, and the utilization or rate of each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from dliosim.measure.figures.declaration import column_of, name_part, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.run_summary import CANNOT_SAY, NO_STORAGE, Answer
from dliosim.pictures.style import (
    INK,
    MOST_SHAPES,
    NEEDED,
    PARTS,
    SERIES,
    figure,
    grid_lines,
    percent_axis,
    rate_axis,
    time_axis,
    whole_axis,
)
from dliosim.readable import percent
from dliosim.report.reader.arrays import Ints
from dliosim.report.run.loops import storage_alone

# Up to this many epochs have large dots; up to the other number they have their figures.
_FEW_EPOCHS, _MOST_LABELS = 50, 12

# Few ranks have columns as wide as with this many, with more room between them.
_LEAST_COLUMNS = 8

# Squares stand this far to the right of dots, in epochs, so that neither hides the other.
_ASIDE = 0.12

TIME_CAPTION = (
    "How to read it: a column is a rank, all of it the wall time of the epochs that count for the answer. "
    "Columns of one height with more yellow are ranks that wait for the others; the one with the least yellow is "
    "the one waited for, and what it has more of is the cause. "
    "Processing is decoding and preprocessing in the steps themselves. "
    "Formula: the sums of ranks.h5, which add up to the wall time; tool is what remains of it."
)

BUSY_CAPTION = (
    "How to read it: round dots are the utilization if storage alone held the steps; 100 % is storage that never makes "
    "a step wait. Full dots are the answer: they reach the goal or do not. Hollow ones decide nothing. "
    "Epochs whose bytes came from memory, all or in part, have no dot, but a word below the axis. Squares are the "
    "utilization with all waits, mean over ranks, with the least and the greatest rank. What is between a dot and its "
    "square is no fault of storage. "
    "Formula: docs/metrics.md, Storage-limited utilization; squares: nominal compute / wall time of the steps after "
    "the first, blocking checkpoints taken out."
)

RATE_CAPTION = (
    "How to read it: a dot is an epoch. There is no utilization here, because it needs compute, steps after the "
    "first and no requests that arrive by themselves. "
    "Formula: samples (or bytes) of all ranks / the time of the slowest, checkpoints taken out."
)


def time_by_rank(times: Mapping[str, Ints], longest: float = 0.0) -> Figure:
    """Draw the parts of the wall time of each rank, stacked, summed over epochs; `times` are (epochs, ranks), in ns.

    The axis is `longest` seconds long if the ranks take less.
    """
    sums = {
        name_part(part): times[column_of(part)].sum(axis=0, dtype=np.float64) * 1e-9
        for part in time_parts(EpochSummary)
    }
    ranks = len(sums["tool"])
    drawn = figure(height=3.4)
    axes = drawn.add_subplot()
    longest = max(longest, float(sum(sums.values()).max()))
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
            width=0.8 * min(ranks / _LEAST_COLUMNS, 1.0) if ranks <= 64 else 1.0,
            bottom=below * unit,
            color=colour,
            edgecolor="white",
            linewidth=0.5 if ranks <= 64 else 0.0,
            label=part,
            rasterized=ranks * len(PARTS) > MOST_SHAPES // 2,
            antialiased=ranks <= 64,
        )
        below += height
    axes.set_xlim(-0.6, ranks - 0.4)
    axes.set_ylim(0, 1.05 * longest * unit or 1.0)
    axes.set_xlabel("rank")
    whole_axis(axes.xaxis)
    if ranks <= 16:
        axes.set_xticks(np.arange(ranks))
    grid_lines(axes, "y")
    drawn.legend(loc="outside upper left", ncols=len(PARTS), handlelength=1.2, columnspacing=1.4)
    return drawn


def has_utilization(epochs: Sequence[EpochSummary]) -> bool:
    """Return True if every epoch has a utilization."""
    return all(epoch.utilization is not None for epoch in epochs)


def utilization_by_epoch(epochs: Sequence[EpochSummary], answer: Answer | None, doubtful: bool) -> Figure:
    """Draw the storage-limited utilization of each epoch, with the goal, and below it that with all waits.

    Epochs that do not count for the answer have no dot; `doubtful` marks the utilization with all waits.
    """
    drawn = figure(height=3.0)
    axes = drawn.add_subplot()
    x = np.array([epoch.epoch for epoch in epochs])
    few = len(epochs) <= _FEW_EPOCHS
    mean, low, high = (
        np.array([_first_known(getattr(epoch, name), epoch.utilization) for epoch in epochs])
        for name in ("utilization", "utilization_min", "utilization_max")
    )
    axes.errorbar(
        x + (_ASIDE if len(epochs) <= _MOST_LABELS else 0.0),
        mean,
        np.stack([np.maximum(mean - low, 0), np.maximum(high - mean, 0)]),
        color=SERIES[2],
        marker="s" if few else ".",
        markersize=4,
        capsize=4 if few else 0,
        linewidth=1.0,
        label="with all waits" + (" (not to be trusted)" if doubtful else ""),
    )
    figures = [storage_alone(epoch, answer) for epoch in epochs]
    alone = np.array([one if isinstance(one, float) else np.nan for one in figures])
    is_judged = answer is not None and answer.verdict not in (NO_STORAGE, CANNOT_SAY)
    axes.plot(x, alone, color=SERIES[0], linewidth=1.4)
    size = 6.5 if few else 3.5
    if not np.isnan(alone).all():
        axes.plot(
            x,
            alone,
            linestyle="",
            marker="o",
            markersize=size,
            color=SERIES[0],
            markerfacecolor=SERIES[0] if is_judged else "white",
            label="storage-limited" if is_judged else "storage-limited, decides nothing",
        )
    axes.axhline(1.0, color=INK, linewidth=0.8)
    if answer:
        axes.axhline(answer.goal, color=NEEDED, linewidth=1.2, linestyle=(0, (6, 2)))
        goal = f"goal\n{percent(answer.goal, 2)}"
        axes.text(1.005, answer.goal, goal, transform=axes.get_yaxis_transform(), va="center", color=NEEDED)
    axes.set_ylim(0, max(1.05, 1.05 * float(high.max())))
    axes.yaxis.set_major_locator(MultipleLocator(0.2))
    percent_axis(axes.yaxis)
    axes.set_ylabel("utilization")
    _epoch_axis(axes, len(epochs))
    if len(epochs) <= _MOST_LABELS:
        # Figures stand below the axis, if no line crosses them.
        words = [one if isinstance(one, str) else percent(one, 3) for one in figures]
        axes.set_xticks(x, [f"{one}\n{word}" for one, word in zip(x, words, strict=True)])
        sources = ", or what gave its bytes" if any(isinstance(one, str) for one in figures) else ""
        axes.set_xlabel(f"epoch, and its storage-limited utilization{sources}")
    drawn.legend(loc="outside upper left", ncols=3)
    return drawn


def rate_by_epoch(epochs: Sequence[EpochSummary]) -> Figure:
    """Draw the bytes per second of each epoch, or the samples per second if nothing was read."""
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
    """Return the value, or the other one if it is not known, or 0."""
    return value if value is not None else other or 0.0
