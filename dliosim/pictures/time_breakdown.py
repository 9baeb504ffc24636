"""The time of ranks: their steps one by one, where it went, and the utilization or the rate of each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MultipleLocator

from dliosim.measure.figures.declaration import column_of, name_part, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.run_summary import Answer
from dliosim.measure.results.verdicts import CANNOT_SAY, NO_STORAGE
from dliosim.pictures import style
from dliosim.pictures.style import INK, MOST_SHAPES, NEEDED, PARTS, READS, SERIES, single_axes, time_axis
from dliosim.readable import percent
from dliosim.report.reader.arrays import Floats, Ints, RecordedEpoch
from dliosim.report.run.loops import storage_alone

# Up to this many epochs have large dots; up to the other number they have their figures.
_FEW_EPOCHS, _MOST_LABELS = 50, 12

# Few ranks have columns as wide as with this many, with more room between them.
_LEAST_COLUMNS = 8

# Squares stand this far to the right of dots, in epochs, so that neither hides the other.
_ASIDE = 0.12


def time_by_rank(times: Mapping[str, Ints], longest: float = 0.0) -> Figure:
    """Draw the parts of the wall time of each rank, stacked, summed over epochs; `times` are (epochs, ranks), in ns.

    The axis is `longest` seconds long if the ranks take less.
    """
    sums = {
        name_part(part): times[column_of(part)].sum(axis=0, dtype=np.float64) * 1e-9
        for part in time_parts(EpochSummary)
    }
    ranks = len(sums["tool"])
    few = ranks <= 64
    drawn, axes = style.single_axes(height=3.4)
    longest = max(longest, float(sum(sums.values()).max()))
    unit = style.time_axis(axes.yaxis, longest, "wall time of a rank")
    width, below = 0.8 * min(ranks / _LEAST_COLUMNS, 1.0) if few else 1.0, np.zeros(ranks)
    edge: Any = {"edgecolor": "white", "linewidth": 0.5} if few else {"linewidth": 0.0, "antialiased": False}
    is_image = ranks * len(PARTS) > MOST_SHAPES // 2
    for part, colour in PARTS.items():
        # Tool time is a remainder, and may be slightly below 0.
        height = np.maximum(sums[part], 0.0) * unit
        if height.any():
            axes.bar(np.arange(ranks), height, width, below, color=colour, label=part, rasterized=is_image, **edge)
            below += height
    axes.set(xlim=(-0.6, ranks - 0.4), ylim=(0, 1.05 * longest * unit or 1.0), xlabel="rank")
    style.whole_axis(axes.xaxis)
    if ranks <= 16:
        axes.set_xticks(np.arange(ranks))
    axes.grid(True, axis="y")
    drawn.legend(loc="outside upper left", ncols=len(PARTS), handlelength=1.2, columnspacing=1.4)
    return drawn


def utilization_by_epoch(epochs: Sequence[EpochSummary], answer: Answer | None, doubtful: bool) -> Figure:
    """Draw the storage-limited utilization of each epoch, with the goal, and below it that with all waits.

    Every epoch has a utilization.
    Epochs that do not count for the answer have no dot; `doubtful` marks the utilization with all waits.
    """
    drawn, axes = style.single_axes(height=3.0)
    x = np.array([epoch.epoch for epoch in epochs])
    few = len(epochs) <= _FEW_EPOCHS
    mean, low, high = (
        np.array([getattr(epoch, name) for epoch in epochs], np.float64)
        for name in ("utilization", "utilization_min", "utilization_max")
    )
    squares: Any = {"marker": "s", "capsize": 4} if few else {"marker": "."}
    label, reach = "with all waits" + " (not to be trusted)" * doubtful, np.maximum([mean - low, high - mean], 0.0)
    right = x + (_ASIDE if len(epochs) <= _MOST_LABELS else 0.0)
    axes.errorbar(right, mean, reach, color=SERIES[2], markersize=4, linewidth=1.0, label=label, **squares)
    figures = [storage_alone(epoch, answer) for epoch in epochs]
    alone = np.array([one if isinstance(one, float) else np.nan for one in figures])
    is_judged = answer is not None and answer.verdict not in (NO_STORAGE, CANNOT_SAY)
    axes.plot(x, alone, color=SERIES[0], linewidth=1.4)
    if not np.isnan(alone).all():
        label, face = ("storage-limited", SERIES[0]) if is_judged else ("storage-limited, decides nothing", "white")
        axes.plot(x, alone, "o", markersize=6.5 if few else 3.5, color=SERIES[0], markerfacecolor=face, label=label)
    axes.axhline(1.0, color=INK, linewidth=0.8)
    if answer:
        axes.axhline(answer.goal, color=NEEDED, linewidth=1.2, linestyle=(0, (6, 2)))
        goal = f"goal\n{percent(answer.goal, 2)}"
        axes.text(1.005, answer.goal, goal, transform=axes.get_yaxis_transform(), va="center", color=NEEDED)
    axes.set(ylim=(0, 1.05 * np.nanmax([1.0, *high])), ylabel="utilization")
    axes.yaxis.set_major_locator(MultipleLocator(0.2))
    style.percent_axis(axes.yaxis)
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
    drawn, axes = style.single_axes(height=2.8)
    axes.plot([epoch.epoch for epoch in epochs], rates, color=SERIES[0], marker="o" if len(epochs) <= 50 else ".")
    axes.set(ylim=(0, 1.1 * max(rates) or 1.0), ylabel="bytes per second" if bytes_known else "samples per second")
    if bytes_known:
        style.rate_axis(axes.yaxis)
    _epoch_axis(axes, len(epochs))
    return drawn


def _epoch_axis(axes: Axes, epochs: int) -> None:
    axes.set(xlim=(0.5, epochs + 0.5), xlabel="epoch")
    style.whole_axis(axes.xaxis)
    axes.grid(True, axis="y")


#: The most ranks with a row, and the most steps of each.
MOST_ROWS, MOST_STEPS = 32, 24


def rank_timeline(epoch: RecordedEpoch, gap: str = "tool", longest: float = 0.0) -> Figure:
    """Draw the first steps of an epoch, a row a rank; `gap` is the larger part of the time between data and compute.

    `gap` is `tool` or `processing`.
    The axis is `longest` seconds long if the steps take less.
    """
    # Parts of a step, each between two of its marks in `window_ns`.
    spans = (("data wait", 0, 1), (gap, 1, 2), ("compute", 2, 3), ("sync wait", 3, 4), ("checkpoint", 4, 5))
    rows = select_rows(epoch)
    window = epoch.window_ns[list(rows), :MOST_STEPS]
    begin, end = window_span(epoch)
    end = max(end, begin + longest, begin * (1 + 1e-9) + 1e-9)
    drawn, axes = single_axes(height=max(2.2, 1.3 + len(rows) * (0.22 if len(rows) > 12 else 0.34)))
    unit = time_axis(axes.xaxis, end - begin, "time since the epoch's start")
    for part, first, last in spans:
        row, step = np.nonzero(window[:, :, last] > window[:, :, first])
        times = window[row, step][:, [first, last]] * (1e-9 * unit)
        _draw_boxes(axes, times, row + 0.1, row + 0.55, PARTS[part], part)
    for place, index in enumerate(rows):
        _draw_reads(axes, epoch, int(epoch.ranks[index]), place, int(window[place].max()), unit)
    # A box has five corners: its first one is its last one, too.
    if sum(np.asarray(shape.get_path().codes).size for shape in axes.patches) > 5 * MOST_SHAPES:
        for shape in axes.patches:
            shape.set_rasterized(True)
    axes.set(xlim=(begin * unit, end * unit), ylim=(len(rows), 0), ylabel="rank")
    axes.set_yticks(np.arange(len(rows)) + 0.5, [f"{kind}{epoch.ranks[index]}" for index, kind in rows.items()])
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    seen = {shape.get_label(): shape.get_facecolor() for shape in axes.patches}
    legend = [Patch(color=colour, label=label) for label, colour in seen.items()]
    drawn.legend(handles=legend, loc="outside upper left", ncols=len(legend), handlelength=1.2, columnspacing=1.4)
    return drawn


def window_span(epoch: RecordedEpoch) -> tuple[float, float]:
    """Return begin and end of the axis of the first steps of the ranks that are shown; s."""
    window = epoch.window_ns[list(select_rows(epoch)), :MOST_STEPS]
    done = window[window >= 0]
    begin, end = int(done.min()) * 1e-9, int(done.max()) * 1e-9
    return (0.0 if begin < 0.2 * end else begin), end


def step_text(epoch: RecordedEpoch) -> str:
    """Return which ranks and steps of an epoch `rank_timeline` shows."""
    rows, steps = len(epoch.ranks), min(MOST_STEPS, epoch.steps, epoch.window_ns.shape[1])
    caption = f"Epoch {epoch.epoch}, its first {steps} of {epoch.steps} steps."
    if rows <= MOST_ROWS:
        return caption
    known = len(np.unique(epoch.reads_ns[:, 0]))
    some = f" Read calls are known of {known} ranks only." if 0 < known < rows else ""
    return (
        f"{caption}{some} Of {rows} ranks {MOST_ROWS} are shown: the 8 that took longest from the start of these steps "
        "to the end of their compute (slow), the 8 that took least (fast), and 16 chosen evenly from between them."
    )


def select_rows(epoch: RecordedEpoch) -> dict[int, str]:
    """Return rows of at most `MOST_ROWS` ranks, in order, each with its kind.

    Of more ranks they are the slowest, the fastest, and evenly chosen ones between, by the time of their own steps,
    without waits for other ranks.
    """
    rows, quarter = len(epoch.ranks), MOST_ROWS // 4
    if rows <= MOST_ROWS:
        return dict.fromkeys(range(rows), "")
    window = epoch.window_ns[:, :MOST_STEPS]
    order = np.argsort((window[:, :, 3] - window[:, :, 0]).sum(axis=1), kind="stable").tolist()
    even = np.linspace(quarter, rows - quarter - 1, MOST_ROWS - 2 * quarter).astype(np.int64).tolist()
    kinds = dict.fromkeys(order[:quarter], "fast ") | dict.fromkeys(order[-quarter:], "slow ")
    return {row: kinds.get(row, "") for row in sorted([*kinds, *(order[place] for place in even)])}


def _draw_boxes(axes: Axes, times: Floats, low: Floats, high: Floats, colour: str, label: str) -> None:
    """Draw boxes of one colour as one shape, which is a quarter of the file of as many shapes."""
    if not len(times):
        return
    corners = np.stack([times[:, [0, 1, 1, 0, 0]], np.stack([low, low, high, high, low], axis=1)], axis=2)
    codes = np.tile([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], len(times))
    axes.add_patch(PathPatch(Path(corners.reshape(-1, 2), codes), facecolor=colour, linewidth=0, label=label))


def _draw_reads(axes: Axes, epoch: RecordedEpoch, rank: int, row: int, until: int, unit: float) -> None:
    """Draw the read calls of a rank that begin before `until`, a line for each of its readers."""
    reads = epoch.reads_ns[(epoch.reads_ns[:, 0] == rank) & (epoch.reads_ns[:, 2] < until)]
    readers, lines = np.unique(reads[:, 1], return_inverse=True)
    height = 0.33 / max(len(readers), 1)
    low = row + 0.57 + lines * height
    _draw_boxes(axes, reads[:, 2:4] * (1e-9 * unit), low, low + height * 0.86, READS, "read calls")
