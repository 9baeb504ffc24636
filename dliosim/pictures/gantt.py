"""The steps of each rank over time, with the read calls during them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from dliosim.pictures.style import MOST_SHAPES, PARTS, READS, single_axes, time_axis
from dliosim.report.reader.arrays import Floats, Ints, RecordedEpoch

#: The most ranks with a row, and the most steps of each.
MOST_ROWS, MOST_STEPS = 32, 24

CAPTION = (
    "How to read it: a row is a rank; in it are its steps, and below them the read calls of its readers, a line a "
    "reader. Where green is interrupted by orange, storage is late. Yellow is waiting for the others: the rank with "
    "hardly any is the one that all wait for. Grey is the tool's own time before compute, violet what the steps decode "
    "and preprocess there; white between steps is the tool's time after them, or waiting for a request. "
    "Formula: data wait is batch in memory - begin of waiting, compute its end - its begin, sync wait end of the "
    "sync - end of compute, checkpoint from there until it is saved. Times count from the epoch's start on each "
    "rank's own clock; no clocks of two ranks are compared."
)


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
        _draw_bars(axes, window[:, :, first], window[:, :, last], 0.1, 0.55, part, unit)
    for row, index in enumerate(rows):
        _draw_reads(axes, epoch, int(epoch.ranks[index]), row, int(window[row].max()), unit)
    # A box has five corners: its first one is its last one, too.
    if sum(np.asarray(shape.get_path().codes).size for shape in axes.patches) > 5 * MOST_SHAPES:
        for shape in axes.patches:
            shape.set_rasterized(True)
    axes.set_xlim(begin * unit, end * unit)
    axes.set_ylim(len(rows), 0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [f"{kind}{epoch.ranks[row]}" for row, kind in rows.items()])
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("rank")
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
        f"{caption}{some} Of {rows} ranks {MOST_ROWS} are shown: the 8 that took longest from the begin of these steps "
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


def _draw_bars(axes: Axes, begin: Ints, end: Ints, low: float, high: float, part: str, unit: float) -> None:
    """Draw a bar for each (row, step) longer than 0, from `low` to `high` of its row."""
    row, step = np.nonzero(end > begin)
    times = np.stack([begin[row, step], end[row, step]], axis=1) * (1e-9 * unit)
    _draw_boxes(axes, times, row + low, row + high, PARTS[part], part)


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
