"""The place in the data that each step read, which shows the quality of a shuffle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from dliosim.pictures.style import HEAT, SERIES, figure, size_axis, whole_axis
from dliosim.report.reader.arrays import Floats, Ints, RecordedEpoch

CAPTION = (
    "How to read it: a dot is a read call, its height the place in the data, its colour the rank; within a step "
    "ranks stand from left to right. A cloud without any form is a global shuffle; slanted lines are reading in "
    "order; bands of one colour are shards that stay with a rank; a band that moves up with the steps is a shuffle "
    "within a buffer only. The same picture in two epochs means that they were not shuffled again. Of each rank the "
    "first 512 calls are recorded and then evenly chosen ones: a denser beginning means nothing. "
    "Formula: step, and offset in the file (with several files: the file's number, and how far within it)."
)

# More dots than this show no more of a form, so some are chosen at random.
_MOST_DOTS = 500

# With more ranks than this, colours are a scale.
_FEW_RANKS = 8


def offsets_over_steps(epochs: Sequence[RecordedEpoch]) -> Figure:
    """Draw the place in the data over the steps, for the first and the last recorded epoch next to each other."""
    some = select_epochs(epochs)
    files = max(int(epoch.offsets[:, 2].max()) for epoch in some) + 1
    furthest = max(int(epoch.offsets[:, 3].max()) for epoch in some)
    ranks = np.unique(np.concatenate([np.unique(epoch.offsets[:, 0]) for epoch in some]))
    drawn = figure(height=4.2)
    panels = drawn.subplots(1, len(some), sharey=True, squeeze=False)[0]
    scale = Normalize(float(ranks.min()), float(max(ranks.max(), ranks.min() + 1)))
    for axes, epoch in zip(panels, some, strict=True):
        dots = _thin_dots(epoch.offsets)
        place = _dot_heights(dots, files, furthest)
        across = dots[:, 1] + 0.8 * (np.searchsorted(ranks, dots[:, 0]) + 0.5) / len(ranks) - 0.4
        size = 2.4 if len(dots) < _MOST_DOTS else 1.6
        if len(ranks) <= _FEW_RANKS:
            for i, rank in enumerate(ranks):
                of_rank = dots[:, 0] == rank
                _draw_dots(axes, across[of_rank], place[of_rank], size, SERIES[i], str(rank))
        else:
            axes.scatter(across, place, size**2, dots[:, 0], cmap=HEAT, norm=scale, linewidths=0, rasterized=True)
        axes.set_title(f"epoch {epoch.epoch}")
        axes.set_xlabel("step")
        whole_axis(axes.xaxis)
    for axes in panels:
        axes.autoscale_view()
    panels[0].set_ylim(bottom=0)
    if files > 1:
        panels[0].set_ylabel("file" if furthest == 0 else "file, and place in it")
        whole_axis(panels[0].yaxis)
    else:
        panels[0].set_ylabel("offset in the file")
        size_axis(panels[0].yaxis)
    if len(ranks) > _FEW_RANKS:
        bar = drawn.colorbar(ScalarMappable(scale, HEAT), ax=list(panels), pad=0.01, aspect=25, label="rank")
        whole_axis(bar.ax.yaxis)
    elif len(ranks) > 1:
        handles = [
            Line2D([], [], linestyle="", marker="o", color=SERIES[i], label=str(rank)) for i, rank in enumerate(ranks)
        ]
        drawn.legend(handles=handles, title="rank", loc="outside right upper")
    return drawn


def _draw_dots(axes: Axes, x: Floats, y: Floats, size: float, colour: str, name: str) -> None:
    """Draw dots of `size` points as one shape, lines without length: an SVG of as many marks is five times as large."""
    points = np.stack([x, y], axis=1).repeat(2, axis=0)
    path = Path(points, np.tile([Path.MOVETO, Path.LINETO], len(x)))
    path.should_simplify = False
    axes.add_patch(PathPatch(path, edgecolor=colour, facecolor="none", linewidth=size, capstyle="round", label=name))


def select_epochs(epochs: Sequence[RecordedEpoch]) -> list[RecordedEpoch]:
    """Return the first and the last epoch with recorded reads."""
    some = [epoch for epoch in epochs if len(epoch.offsets)]
    return some[:1] + some[1:][-1:]


def offset_text(epochs: Sequence[RecordedEpoch]) -> str:
    """Return a sentence with the ranks of the reads."""
    ranks = np.unique(np.concatenate([epoch.offsets[:, 0] for epoch in select_epochs(epochs)]))
    if len(ranks) > _FEW_RANKS:
        return f"Reads of {len(ranks)} ranks."
    names = ", ".join(map(str, ranks))
    return f"Reads of rank {names}." if len(ranks) == 1 else f"Reads of ranks {names}."


def _thin_dots(dots: Ints) -> Ints:
    if len(dots) <= _MOST_DOTS:
        return dots
    # A random order: a constant stride could always choose the same ranks or steps.
    chosen: Ints = dots[np.random.default_rng(0).permutation(len(dots))[:_MOST_DOTS]]
    return chosen


def _dot_heights(dots: Ints, files: int, furthest: int) -> Floats:
    """Return offsets in the only file, or file numbers plus a fraction by the place in the longest file."""
    if files == 1:
        return dots[:, 3].astype(np.float64)
    return dots[:, 2] + dots[:, 3] / (furthest * 1.05 + 1)
