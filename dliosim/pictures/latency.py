"""Latencies of batches and read calls: their distribution, and the times of the long ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dliosim.pictures.epochs import EpochSpan, align_epochs, mark_epochs, rank_text, save_handles
from dliosim.pictures.style import FAINT, SERIES, figure, log_axis, log_time_axis, single_axes, trim_zeros
from dliosim.readable import seconds
from dliosim.report.reader.arrays import Floats, Ints, RecordedEpoch

DISTRIBUTION_CAPTION = (
    "How to read it: the height of a curve is the share of latencies that are longer than what stands below; far to "
    "the right is late. Dots are p50 and p99 of an epoch; p99 of fewer than 100 latencies is the longest. A long flat "
    "stretch divides two kinds of latency, such as a cache and the storage behind it. "
    "Formula: share of latencies above the upper edge of each bucket, which are 1.6 % wide at most. A batch's "
    "latency is a step's data wait; a call's is one read call."
)

OVER_TIME_CAPTION = (
    "How to read it: of each stretch of about two steps the longest data wait; the line is the median rank's, the "
    "band spans the least and the greatest rank's. A high band over a low line is a rank that is late, a high line "
    "all of them. "
    "Formula: greatest (batch in memory - begin of waiting) of the steps that ended in the stretch."
)

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
    drawn = figure(height=3.6)
    for i, (name, key) in enumerate(kinds):
        axes = drawn.add_subplot(1, len(kinds), i + 1)
        found = {j: one for j, epoch in enumerate(epochs) if (one := getattr(epoch, key))[:, 1].any()}
        for j, one in found.items():
            _draw_curve(axes, one, f"epoch {epochs[j].epoch}", SERIES[j % len(SERIES)], _STYLES[j % len(_STYLES)])
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


def _draw_curve(axes: Axes, latencies: Ints, name: str, colour: str, style: object) -> None:
    edges, above = tail_shares(latencies)
    # A logarithmic axis has no 0: the last step of the curve goes down beyond the lower end of the axis.
    x, y = np.maximum(edges, 1e-9), np.maximum(above, _NOTHING)
    x, y = np.concatenate([x[:1], x]), np.concatenate([[1.0], y])
    axes.plot(x, y, drawstyle="steps-post", color=colour, linestyle=style, linewidth=1.4, label=name)
    for share in _QUANTILES:
        # The first edge with no more than that share above it, as quantiles of tables.
        at = int(np.argmax(above <= share + 1e-12))
        axes.plot(x[at + 1], share, marker="o", markersize=5, color=colour, zorder=3)


def _finish_axes(axes: Axes, name: str, found: Sequence[Ints]) -> None:
    most = max(int(one[:, 1].sum()) for one in found)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(max(min(0.5 / most, _LOWEST), 1e-9), 1.3)
    log_time_axis(axes.xaxis)
    log_axis(axes.yaxis, lambda value: trim_zeros(f"{100 * value:.10f} %"))
    axes.set_xlabel(name)
    axes.grid(True, axis="both")
    for share, quantile in _QUANTILES.items():
        axes.axhline(share, color=FAINT, linewidth=0.8)
        # Outside of the axes, if there are no curves.
        axes.text(1.01, share, quantile, transform=axes.get_yaxis_transform(), va="center", color=FAINT, fontsize=8.5)


def latency_over_time(epochs: Sequence[RecordedEpoch], longest: float = 0.0) -> Figure:
    """Draw the longest batch latency in each bin of time: of the median rank, and from the least to the greatest."""
    places = align_epochs(epochs)
    drawn, axes = single_axes(height=2.9)
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
            axes.fill_between(middles, low, high, color=SERIES[0], alpha=0.25, linewidth=0, label=band)
            axes.plot(middles, high, color=SERIES[0], alpha=0.5, linewidth=0.7)
        dots, median = "." if len(middles) < _FEW_COLUMNS else "", np.nanmedian(some, axis=0)
        axes.plot(middles, median, color=SERIES[1], linewidth=1.0, marker=dots, label=line)
    axes.set_yscale("log")
    log_time_axis(axes.yaxis)
    axes.set_ylabel("longest data wait of a step")
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
