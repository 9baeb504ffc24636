"""Reads: the bandwidth of ranks over time, the latencies of batches and calls, and the places in the data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from dliosim.pictures import style
from dliosim.pictures.epochs import EpochSpan, align_epochs, mark_epochs, name_rows, rank_text, save_handles
from dliosim.readable import seconds, size, trim_zeros
from dliosim.report.reader.arrays import Floats, Ints, RecordedEpoch

# A needed rate that is more times the greatest one is named, but not drawn: the curve would be flat.
_MOST_ABOVE = 5

# Of the columns in which something was read this share sets the scale, in per cent: a single peak would hide the rest.
_ON_SCALE = 98


def bandwidth_map(
    epochs: Sequence[RecordedEpoch], needs: float | None = None, longest: float = 0.0, counted: Collection[int] = ()
) -> Figure:
    """Draw bandwidth by rank and time; `needs` is what a rank needs, in bytes/s.

    The scale is that of the epochs that are `counted`, or of all if none is recorded.
    """
    places = align_epochs(epochs)
    rows = max(len(place.epoch.ranks) for place in places)
    drawn, axes = style.single_axes(height=min(5.6, 2.4 + 0.1 * rows))
    unit = mark_epochs(axes, places, longest)
    rates = [_rates(place) for place in places]
    greatest = max(_scale_end(places, rates, counted), needs or 0.0) or 1.0
    is_above = max(float(one.max()) for one in rates) > greatest
    for place, rate in zip(places, rates, strict=True):
        across = np.arange(len(place.epoch.ranks) + 1) - 0.5
        some = np.ma.masked_equal(rate, 0.0)
        colours = colormaps[style.LIGHT_HEAT]
        mesh = axes.pcolormesh(place.edges * unit, across, some, vmin=0, vmax=greatest, cmap=colours, rasterized=True)
    axes.set(ylim=(rows - 0.5, -0.5), ylabel="rank")
    style.whole_axis(axes.yaxis)
    name_rows(axes.yaxis, places[0].epoch)
    bar = drawn.colorbar(mesh, ax=axes, pad=0.01, aspect=25, extend="max" if is_above else "neither")
    style.rate_axis(bar.ax.yaxis)
    bar.set_label("what a rank gets")
    handles = [Patch(facecolor="white", edgecolor=style.FAINT, label="nothing read"), *save_handles(places)]
    if needs:
        bar.ax.axhline(needs, color=style.NEEDED, linewidth=2.5)
        handles.append(Line2D([], [], color=style.NEEDED, linewidth=2.5, label=f"a rank needs {size(needs, 3)}/s"))
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
    drawn, axes = style.single_axes(height=3.1)
    known = {number: rate for number, rate in rates.items() if rate is not None}
    unit = mark_epochs(axes, places, longest, {number: f"{size(rate, 3)}/s" for number, rate in known.items()})
    curves = [_rates(place).sum(axis=0, keepdims=True) for place in places]
    shown = [known[place.epoch.epoch] for place in places if place.epoch.epoch in known]
    greatest = max([_scale_end(places, curves, counted), *shown])
    is_drawn = needs is not None and needs <= _MOST_ABOVE * greatest
    top = 1.1 * max(greatest, needs if needs and is_drawn else 0.0) or 1.0
    for place, (curve,) in zip(places, curves, strict=True):
        axes.stairs(curve, place.edges * unit, fill=True, color=style.SERIES[0], alpha=0.25, linewidth=0)
        axes.stairs(curve, place.edges * unit, color=style.SERIES[0], linewidth=1.0)
        rate = known.get(place.epoch.epoch)
        if rate is not None:
            axes.hlines(
                rate, place.begin * unit, place.end * unit, color=style.INK, linewidth=1.4, linestyle=(0, (5, 2))
            )
    axes.set_ylim(0, top)
    handles = [
        Patch(facecolor=style.SERIES[0], alpha=0.4, label="all ranks get"),
        Line2D([], [], color=style.INK, linewidth=1.4, linestyle=(0, (5, 2)), label="an epoch was given"),
    ]
    handles += [*_mark_peaks(axes, places, curves, top, unit), *save_handles(places)]
    if needs and not is_drawn:
        handles.append(Line2D([], [], linestyle="", label=f"needs {size(needs, 3)}/s, far above"))
    elif needs:
        axes.axhline(needs, color=style.NEEDED, linewidth=1.6)
        note = f"needs\n{size(needs, 3)}/s"
        axes.text(1.005, needs, note, transform=axes.get_yaxis_transform(), va="center", color=style.NEEDED)
    drawn.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    style.rate_axis(axes.yaxis)
    axes.set_ylabel(f"bytes per second, {rank_text(places[0].epoch, ranks)}")
    axes.grid(True, axis="y")
    return drawn


def _rates(place: EpochSpan) -> Floats:
    """Return what each rank got in each column, in bytes/s."""
    return place.reduce(np.add, place.epoch.bytes) / (place.epoch.bin_ns * 1e-9)


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
    how: Any = {"linestyle": "", "marker": "^", "markersize": 3.5, "color": style.SERIES[0]}
    axes.plot(peaks, np.full(len(peaks), 0.98), transform=axes.get_xaxis_transform(), **how)
    return [Line2D([], [], label=f"higher, up to {size(highest, 3)}/s", **how)]


# Quantiles that have a dot, by the share of latencies above them.
_QUANTILES = {0.5: "p50", 0.01: "p99"}

# The axis reaches below p99, and a curve that has come to 0 below any axis.
_LOWEST, _NOTHING = 0.006, 1e-12

# A line over as many columns has no dots.
_FEW_COLUMNS = 30

_STYLES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (1, 1)))

_KINDS = (("batch latency (data wait of a step)", "batch_latency"), ("latency of a read call", "call_latency"))


def latency_distribution(epochs: Sequence[RecordedEpoch]) -> Figure:
    """Draw the share of batch and of call latencies above each time, a curve an epoch."""
    kinds = [(name, key) for name, key in _KINDS if any(getattr(epoch, key)[:, 1].any() for epoch in epochs)]
    drawn = style.figure(height=3.6)
    for i, (name, key) in enumerate(kinds):
        axes = drawn.add_subplot(1, len(kinds), i + 1)
        found = {j: one for j, epoch in enumerate(epochs) if (one := getattr(epoch, key))[:, 1].any()}
        for j, one in found.items():
            _draw_curve(axes, one, f"epoch {epochs[j].epoch}", j)
        _finish_axes(axes, name, list(found.values()))
        if i == 0:
            axes.set_ylabel("share that took longer")
    # The legend is above the axes, as curves may be anywhere in them. Epochs without calls have no curve on the right.
    lines = {str(line.get_label()): line for axes in drawn.axes for line in axes.lines}
    names = [f"epoch {epoch.epoch}" for epoch in epochs if f"epoch {epoch.epoch}" in lines]
    drawn.legend([lines[name] for name in names], names, loc="outside upper left", ncols=len(names))
    return drawn


def tail_shares(latencies: Ints) -> tuple[Floats, Floats]:
    """Return upper edges of buckets in seconds, in order, and the share of latencies above each."""
    order = np.argsort(latencies[:, 0], kind="stable")
    edges, counts = latencies[order, 0] * 1e-9, latencies[order, 1].astype(np.float64)
    return edges, 1.0 - np.cumsum(counts) / counts.sum()


def _draw_curve(axes: Axes, latencies: Ints, name: str, number: int) -> None:
    colour, dashes = style.SERIES[number % len(style.SERIES)], _STYLES[number % len(_STYLES)]
    edges, above = tail_shares(latencies)
    # A logarithmic axis has no 0: the last step of the curve goes down beyond the lower end of the axis.
    x, y = np.maximum(edges, 1e-9), np.maximum(above, _NOTHING)
    x, y = np.concatenate([x[:1], x]), np.concatenate([[1.0], y])
    axes.plot(x, y, drawstyle="steps-post", color=colour, linestyle=dashes, linewidth=1.4, label=name)
    for share in _QUANTILES:
        # The first edge with no more than that share above it, as quantiles of tables.
        at = int(np.argmax(above <= share + 1e-12))
        axes.plot(x[at + 1], share, marker="o", markersize=5, color=colour, zorder=3)


def _finish_axes(axes: Axes, name: str, found: Sequence[Ints]) -> None:
    most = max(int(one[:, 1].sum()) for one in found)
    axes.set(xscale="log", yscale="log", ylim=(max(min(0.5 / most, _LOWEST), 1e-9), 1.3), xlabel=name)
    style.log_time_axis(axes.xaxis)
    style.log_axis(axes.yaxis, lambda value: trim_zeros(f"{100 * value:.10f} %"))
    axes.grid(True, axis="both")
    for share, quantile in _QUANTILES.items():
        axes.axhline(share, color=style.FAINT, linewidth=0.8)
        # Outside of the axes, if there are no curves.
        axes.text(
            1.01, share, quantile, transform=axes.get_yaxis_transform(), va="center", color=style.FAINT, fontsize=8.5
        )


def latency_over_time(epochs: Sequence[RecordedEpoch], longest: float = 0.0) -> Figure:
    """Draw the longest batch latency in each bin of time: of the median rank, and from the least to the greatest."""
    places = align_epochs(epochs)
    drawn, axes = style.single_axes(height=2.9)
    unit = mark_epochs(axes, places, longest)
    several = any(len(place.epoch.ranks) > 1 for place in places)
    for i, place in enumerate(places):
        middles, some = _longest_waits(place)
        if not len(middles):
            continue
        middles = middles * unit
        band, line = (None, None) if i else ("least to greatest rank", "median rank")
        if several:
            low, high = np.nanmin(some, axis=0), np.nanmax(some, axis=0)
            axes.fill_between(middles, low, high, color=style.SERIES[0], alpha=0.25, linewidth=0, label=band)
            axes.plot(middles, high, color=style.SERIES[0], alpha=0.5, linewidth=0.7)
        dots, median = "." if len(middles) < _FEW_COLUMNS else "", np.nanmedian(some, axis=0)
        axes.plot(middles, median, color=style.SERIES[1], linewidth=1.0, marker=dots, label=line)
    axes.set(yscale="log", ylabel="longest data wait of a step")
    style.log_time_axis(axes.yaxis)
    axes.grid(True, axis="y")
    handles = [*(axes.get_legend_handles_labels()[0] if several else ()), *save_handles(places)]
    if handles:
        drawn.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return drawn


def _longest_waits(place: EpochSpan) -> tuple[Floats, Floats]:
    """Return middles of columns, and the longest latency of each rank in each, nan for none; s; (ranks, columns).

    A column is as many bins as two steps take: in shorter ones hardly any rank would have the end of a step.
    """
    bins = len(place.bins)
    together = max(min(-(-2 * bins // max(place.epoch.steps, 1)), bins // 8), 1)
    firsts = np.arange(0, bins, together)
    columns = place.reduce(np.maximum, place.epoch.batch_latency_max_ns)
    waits = np.maximum.reduceat(columns, firsts, axis=1).astype(np.float64)
    # If no step ended there is no latency; 0 would be wrong.
    waits[waits == 0] = np.nan
    known = np.flatnonzero(~np.isnan(waits).all(axis=0))
    ends = np.append(firsts[1:], bins)
    return (place.edges[firsts] + place.edges[ends])[known] / 2, waits[:, known] * 1e-9


def longest_wait_text(epochs: Sequence[RecordedEpoch], ranks: int) -> str:
    """Return a sentence with the epoch and rank of the longest data wait."""
    places = align_epochs(epochs)
    epoch = max((place.epoch for place in places), key=lambda one: int(one.batch_latency_max_ns.max()))
    row = int(np.argmax(epoch.batch_latency_max_ns.max(axis=1)))
    longest = seconds(int(epoch.batch_latency_max_ns.max()) * 1e-9, 3)
    where = f"rank {epoch.ranks[row]}'s in epoch {epoch.epoch}"
    return f"The longest of {rank_text(epoch, ranks)}, {longest}, was {where}."


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
    drawn = style.figure(height=4.2)
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
                _draw_dots(axes, across[of_rank], place[of_rank], size, style.SERIES[i], str(rank))
        else:
            axes.scatter(across, place, size**2, dots[:, 0], cmap=style.HEAT, norm=scale, linewidths=0, rasterized=True)
        axes.set(title=f"epoch {epoch.epoch}", xlabel="step")
        style.whole_axis(axes.xaxis)
        axes.autoscale_view()
    panels[0].set_ylim(bottom=0)
    if files > 1:
        panels[0].set_ylabel("file" if furthest == 0 else "file, and place in it")
        style.whole_axis(panels[0].yaxis)
    else:
        panels[0].set_ylabel("offset in the file")
        style.size_axis(panels[0].yaxis)
    if len(ranks) > _FEW_RANKS:
        bar = drawn.colorbar(ScalarMappable(scale, style.HEAT), ax=list(panels), pad=0.01, aspect=25, label="rank")
        style.whole_axis(bar.ax.yaxis)
    elif len(ranks) > 1:
        handles = [
            Line2D([], [], linestyle="", marker="o", color=style.SERIES[i], label=str(rank))
            for i, rank in enumerate(ranks)
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
    return dots[np.random.default_rng(0).permutation(len(dots))[:_MOST_DOTS]]


def _dot_heights(dots: Ints, files: int, furthest: int) -> Floats:
    """Return offsets in the only file, or file numbers plus a fraction by the place in the longest file."""
    if files == 1:
        return dots[:, 3].astype(np.float64)
    return dots[:, 2] + dots[:, 3] / (furthest * 1.05 + 1)
