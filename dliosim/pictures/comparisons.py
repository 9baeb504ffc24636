"""Variants against a reference: ratios with their intervals, and all pairs of two varied names."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dliosim.compare.statistics import EQUAL, FASTER, SLOWER, UNJUDGED
from dliosim.pictures.style import FAINT, INK, log_axis, single_axes, wrap_text
from dliosim.readable import number, seconds, size, trim_zeros
from dliosim.report.reader.results import REFERENCE, ComparisonResult, SavedVariant

_OF_RATES = {
    "dot": "a variant's rate by the reference's",
    "right": "is faster",
    "name": "",
    "figure": "rate",
    "colours": "blue is faster, red slower, white equal",
    "ratio": "rate of the variant / rate of the reference",
}

_OF_STALLS = {
    "dot": "the reference's stall by a variant's",
    "right": "the job stalls less",
    "name": " At each name stands its stall: the median over passes of the rank that was held longest.",
    "figure": "stall",
    "colours": "blue stalls less, red more, white the same",
    "ratio": "stall of the reference / stall of the variant",
}


def caption_words(found: ComparisonResult) -> dict[str, str]:
    """Return the words of the captions of a comparison's pictures."""
    return _OF_STALLS if found.is_stall_comparison else _OF_RATES


_COLOURS = {FASTER: "#0072B2", SLOWER: "#D55E00", EQUAL: "#7F7F7F", UNJUDGED: "#7F7F7F", REFERENCE: "#7F7F7F"}
_MARKERS = {FASTER: "o", SLOWER: "s", EQUAL: "D", UNJUDGED: "D", REFERENCE: "D"}

# Ticks at common factors; below 1 at their inverses.
_TICKS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)


def forest_plot(found: ComparisonResult) -> Figure:
    """Draw a row for each variant that has a ratio: the ratio, its interval, and the verdict."""
    shown = variants_with_ratio(found)
    stalls = {one.label: f"\n{_stall(one)}" if found.is_stall_comparison else "" for one in found.variants}
    named = {label: wrap_text(label, 46) + stall for label, stall in stalls.items()}
    lines = max(name.count("\n") + 1 for name in named.values())
    drawn, axes = single_axes(height=1.5 + (0.18 + 0.16 * lines) * len(shown))
    axes.axvline(1.0, color=INK, linewidth=1.0)
    for row, one in enumerate(shown):
        ratio = one.ratio or 1.0
        low, high = one.ratio_low or ratio, one.ratio_high or ratio
        is_reference = one.label == found.reference
        if one.smallest_difference and not is_reference:
            reach = 1.0 + one.smallest_difference
            axes.add_patch(Rectangle((1 / reach, row - 0.4), reach - 1 / reach, 0.8, color="#EBEBEB", zorder=0))
        colour = INK if is_reference else _COLOURS[one.verdict]
        axes.plot([low, high], [row, row], color=colour, linewidth=1.8, solid_capstyle="butt")
        axes.plot([ratio], [row], color=colour, marker="|" if is_reference else _MARKERS[one.verdict], markersize=7)
        caption = "reference" if is_reference else f"{number(ratio, 3)} ({_interval(one)}), {one.verdict}"
        axes.text(1.01, row, caption, transform=axes.get_yaxis_transform(), va="center", color=colour, fontsize=8.5)
    edges = [edge for one in shown for edge in (one.ratio, one.ratio_low, one.ratio_high) if edge]
    reach = max(1.25, *edges, *(1 / edge for edge in edges))
    ratio_text = "stall of {} / stall" if found.is_stall_comparison else "rate / rate of {}"
    label, limits = wrap_text(ratio_text.format(found.reference), 100), (1 / (reach * 1.08), reach * 1.08)
    axes.set(xscale="log", xlim=limits, xlabel=label, ylim=(len(shown) - 0.4, -0.6))
    _ratio_axis(axes.xaxis, reach * 1.08)
    axes.set_yticks(range(len(shown)), [named[one.label] for one in shown])
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    return drawn


def variants_with_ratio(found: ComparisonResult) -> list[SavedVariant]:
    """Return the variants that have a ratio."""
    return [one for one in found.variants if one.ratio is not None]


def _stall(one: SavedVariant) -> str:
    return seconds(one.figures["stall_seconds"], 3)


def _interval(one: SavedVariant) -> str:
    if one.ratio_low is None or one.ratio_high is None:
        return "no interval"
    return f"{number(one.ratio_low, 3)} to {number(one.ratio_high, 3)}"


def _ratio_axis(axis: Axis, reach: float) -> None:
    """Draw ticks at the same factors on both sides of 1, as many as there is room for."""
    above: list[float] = []
    for tick in _TICKS:
        # A label needs a fifth of the half axis.
        if tick <= reach and tick >= (above[-1] if above else 1.0) * reach**0.2:
            above.append(tick)
    ticks = [*(1 / tick for tick in reversed(above)), 1.0, *above]
    log_axis(axis, lambda value: trim_zeros(number(value, 2 if value < 1 else 3)), ticks)


def ratio_matrix(found: ComparisonResult) -> Figure:
    """Draw the ratios of all pairs of the values of two varied names."""
    (first, rows), (second, columns) = ((one.name, one.values) for one in found.varied)
    cells = {one.settings: one for one in found.variants}
    drawn, axes = single_axes(height=1.4 + 0.55 * len(rows), width=min(9.6, 3.6 + 1.5 * len(columns)))
    reach = max(1.25, *(max(one.ratio, 1 / one.ratio) for one in found.variants if one.ratio))
    ratios = np.full((len(rows), len(columns)), np.nan)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            one = cells.get(((first, row), (second, column))) or cells.get(((second, column), (first, row)))
            text, colour = "not run", FAINT
            if one is not None and one.ratio is not None:
                ratios[i, j] = one.ratio
                is_strong = abs(math.log(one.ratio)) > 0.6 * math.log(reach)
                text, colour = _cell(one, found), "white" if is_strong else INK
            axes.text(j, i, text, ha="center", va="center", color=colour)
    image = axes.imshow(ratios, cmap="RdBu", norm=LogNorm(1 / reach, reach), aspect="auto")
    axes.set_xticks(range(len(columns)), [wrap_text(name, 24) for name in columns])
    axes.set_yticks(range(len(rows)), [wrap_text(name, 30) for name in rows])
    axes.tick_params(length=0)
    axes.set(xlabel=second, ylabel=wrap_text(first, 40))
    axes.spines[:].set_visible(False)
    label = "reference's stall / stall" if found.is_stall_comparison else "rate / reference's"
    bar = drawn.colorbar(image, ax=axes, pad=0.02, aspect=18, label=label)
    bar.outline.set_visible(False)
    _ratio_axis(bar.ax.yaxis, reach * 1.001)
    return drawn


def has_ratio_matrix(found: ComparisonResult) -> bool:
    """Return True if two names were varied, with few enough values to be read, and a variant has a ratio."""
    few = all(1 < len(one.values) <= 24 for one in found.varied)
    return len(found.varied) == 2 and few and bool(variants_with_ratio(found))


def _cell(one: SavedVariant, found: ComparisonResult) -> str:
    ratio = number(one.ratio, 3)
    if one.label == found.reference:
        ratio = "1 (reference)"
    elif one.verdict not in (FASTER, SLOWER):
        ratio = f"({ratio})"
    if found.is_stall_comparison:
        return f"{ratio}\n{_stall(one)}"
    rate = one.figures["rate_bytes_per_second"]
    if rate and _has_one_sample_size(found):
        return f"{ratio}\n{size(rate, 3)}/s"
    return f"{ratio}\n{number(one.figures['rate_samples_per_second'], 4)} samples/s"


def _has_one_sample_size(found: ComparisonResult) -> bool:
    """Return True if samples have the same size in all variants; else (compression) bytes do not compare."""
    rates = [(one.figures["rate_bytes_per_second"], one.figures["rate_samples_per_second"]) for one in found.variants]
    sizes = [of_bytes / of_samples for of_bytes, of_samples in rates if of_bytes and of_samples]
    return bool(sizes) and max(sizes) <= 1.01 * min(sizes)
