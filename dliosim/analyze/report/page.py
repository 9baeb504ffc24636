"""The page of an analysis: insights on top, pictures over time, then all tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dliosim.analyze.arrays import Floats, Ints
from dliosim.analyze.figures.access import BIN_NAMES
from dliosim.analyze.figures.job import Figures
from dliosim.analyze.figures.time_split import ACTIVITIES, FINE_BINS, IO_ACTIVITIES, measure_activity, spread_bytes
from dliosim.analyze.figures.view import View
from dliosim.analyze.insights.rules import Finding, is_costly
from dliosim.analyze.report.first_screen import core_warnings, cure_lines, describe_job, split_note
from dliosim.analyze.report.tables import list_tables
from dliosim.pictures import html, style
from dliosim.pictures.captions import describe_picture
from dliosim.readable import count, printable, seconds

_HOW = (
    "Times of insights are those of a mean rank that each concerns: at most this can be gained, and several may "
    "concern the same time. docs/analyze.md of dliosim has every definition and threshold."
)


def page(view: View, figures: Figures, findings: Sequence[Finding]) -> str:
    """Return the page as HTML, complete in itself; the same for the same trace."""
    time, *others = list_tables(figures, findings)
    split = [html.table(time), html.paragraph(split_note(figures))]
    lines = [" ".join(describe_job(figures.job, figures)), *core_warnings(figures.job)]
    job = html.items(list(map(printable, lines)), "where")
    return html.page(
        printable(f"What {figures.job.path} says"),
        [job, *_insight_pieces(figures, findings)],
        [
            html.Section("Pictures", _format_pictures(view, figures)),
            html.Section("Time", [*split, html.items([printable(note) for note in figures.job.notes])]),
            html.Section("All tables", list(map(html.table, others))),
        ],
    )


def _format_pictures(view: View, figures: Figures) -> list[str]:
    with style.apply_style():
        drawn = list_pictures(view, figures)
        return [html.picture(name, caption, style.render_figure(figure, "svg")) for name, caption, figure in drawn]


def _insight_pieces(figures: Figures, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield each costly insight with what to try, then the others in a line."""
    met = [one for one in findings if one.is_met]
    costly = [one for one in met if is_costly(one, figures)]
    for one in costly:
        assert one.found is not None
        cost = "all figures are in doubt" if one.found.cost is None else f"up to {seconds(one.found.cost, 3)} a rank"
        text = printable(f"{one.found.words} (threshold {one.insight.threshold})", lines=True)
        words, *lines = cure_lines(one, figures)
        tried = printable("\n".join([words, *lines]), lines=True)
        yield html.answer(f"{one.insight.name}  {cost}", [("FOUND", text), ("TRY", tried)], "", "bad")
    rest = [one for one in met if one not in costly]
    if rest:
        yield html.paragraph(f"Little to gain: {', '.join(one.insight.name for one in rest)}.", "faint")
    if not met:
        looked = count(sum(one.found is not None for one in findings), "insight")
        text = f"{looked} were looked at, and none is beyond its threshold."
        yield html.answer("No insight", [("FOUND", text)], "", "good")
    yield html.paragraph(_HOW, "faint")


#: Rows of pictures by rank; of more ranks some are left out.
MOST_ROWS: Final = 48

#: What a rank did less than this share of a column leaves it white.
_LEAST_SHARE = 0.02

_COLOURS: Final = {**style.PARTS, "read": style.READS, "write": "#0B4F7D", "metadata": "#B0B0B0"}


def list_pictures(view: View, figures: Figures) -> Iterator[tuple[str, str, Figure]]:
    """Yield title, caption and figure of each picture that a trace has something for."""
    rows, note = choose_rows(figures), ""
    if len(rows) < len(figures.ranks):
        note = f" Of {len(figures.ranks)} ranks {len(rows)} are shown, evenly chosen by their I/O time."
    if len(view.events) and view.trace.duration:
        width = seconds(figures.job.seconds / FINE_BINS, 3)
        title, caption = describe_picture("trace-activity", columns=FINE_BINS, width=width, rows=note)
        yield title, caption, activity_map(view, figures, rows)
        if any(figures.bandwidth.read) or any(figures.bandwidth.written):
            yield *describe_picture("trace-bandwidth"), bandwidth_curve(figures)
            yield *describe_picture("trace-bandwidth-by-rank", rows=note), bytes_map(view, figures, rows)
    if any(figures.access.read.bins) or any(figures.access.write.bins):
        yield *describe_picture("trace-sizes"), sizes_chart(figures)


def choose_rows(figures: Figures) -> Ints:
    """Return the ranks that pictures show, at most `MOST_ROWS`: in order, evenly chosen by their I/O time."""
    ranks = len(figures.ranks)
    if ranks <= MOST_ROWS:
        return np.arange(ranks)
    order = np.argsort([one.io for one in figures.ranks], kind="stable")
    return np.sort(order[np.linspace(0, ranks - 1, MOST_ROWS).astype(np.int64)])


def activity_map(view: View, figures: Figures, rows: Ints) -> Figure:
    """Draw the longest activity of each of some ranks in each column of time: I/O above, everything else below."""
    names = list(ACTIVITIES)
    shares = np.stack([measure_activity(view, name)[rows] for name in names])
    is_io = np.array([name in IO_ACTIVITIES for name in names])
    lanes = [np.where(is_lane[:, None, None], shares, 0.0) for is_lane in (is_io, ~is_io)]
    longest = [np.where(lane.max(axis=0) >= _LEAST_SHARE, lane.argmax(axis=0), -1) for lane in lanes]
    both = np.stack(longest, axis=1).reshape(2 * len(rows), -1)
    colours = ListedColormap([_COLOURS[name] for name in names])
    drawn = _draw_map(figures, rows, both + 0.5, colours, (0, len(names)))
    drawn.axes[0].hlines(np.arange(1, len(rows)) - 0.5, *drawn.axes[0].get_xlim(), color="white", linewidth=1.5)
    seen = [name for index, name in enumerate(names) if (both == index).any()]
    handles = [Patch(color=_COLOURS[name], label=name) for name in seen]
    drawn.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.2, columnspacing=1.4)
    return drawn


def bytes_map(view: View, figures: Figures, rows: Ints) -> Figure:
    """Draw the bandwidth of each of some ranks over time."""
    rates = spread_bytes(view, "read", "write")[rows] / figures.bandwidth.bin_seconds
    some = np.where(rates > 0, rates, -1.0)
    drawn = _draw_map(figures, rows, some, colormaps[style.LIGHT_HEAT], (0.0, float(rates.max())))
    bar = drawn.colorbar(drawn.axes[0].collections[0], ax=drawn.axes[0], pad=0.01, aspect=25)
    style.rate_axis(bar.ax.yaxis)
    return drawn


def _draw_map(figures: Figures, rows: Ints, values: Floats, colours: Colormap, limits: tuple[float, float]) -> Figure:
    """Draw values by rank and time; those below the limits are white."""
    drawn, axes = style.single_axes(height=min(8.0, 1.6 + 0.2 * len(rows)))
    unit = style.time_axis(axes.xaxis, figures.job.seconds, "time since the job's start")
    edges = np.linspace(0, figures.job.seconds * unit, values.shape[1] + 1)
    shown = np.ma.masked_less(values, 0.0)
    across = np.linspace(-0.5, len(rows) - 0.5, values.shape[0] + 1)
    axes.pcolormesh(edges, across, shown, cmap=colours, vmin=limits[0], vmax=limits[1], rasterized=True)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    step = max(1, len(rows) // 16)
    axes.set_yticks(np.arange(len(rows))[::step], [printable(figures.ranks[row].name) for row in rows[::step]])
    axes.tick_params(axis="y", length=0)
    return drawn


def bandwidth_curve(figures: Figures) -> Figure:
    """Draw the reads and writes of all ranks together over time."""
    drawn, axes = style.single_axes(height=2.8)
    unit = style.time_axis(axes.xaxis, figures.job.seconds, "time since the job's start")
    edges = np.linspace(0, figures.job.seconds * unit, len(figures.bandwidth.read) + 1)
    handles = []
    sides = ("read", figures.bandwidth.read), ("written", figures.bandwidth.written)
    for (name, moved), colour in zip(sides, style.SERIES, strict=False):
        if any(moved):
            rate = np.array(moved) / figures.bandwidth.bin_seconds
            axes.stairs(rate, edges, fill=True, color=colour, alpha=0.25, linewidth=0)
            axes.stairs(rate, edges, color=colour, linewidth=1.0)
            handles.append(Patch(color=colour, alpha=0.5, label=name))
    axes.set(xlim=(0, edges[-1]), ylabel="bytes per second, all ranks")
    axes.set_ylim(bottom=0)
    style.rate_axis(axes.yaxis)
    axes.grid(True, axis="y")
    drawn.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return drawn


def sizes_chart(figures: Figures) -> Figure:
    """Draw the calls in each of Darshan's bins of sizes."""
    drawn, axes = style.single_axes(height=2.8)
    both = ("reads", figures.access.read, style.SERIES[0]), ("writes", figures.access.write, style.SERIES[1])
    sides = [one for one in both if any(one[1].bins)]
    width = 0.8 / len(sides)
    for index, (name, side, colour) in enumerate(sides):
        places = np.arange(len(BIN_NAMES)) + (index - (len(sides) - 1) / 2) * width
        bars = axes.bar(places, side.bins, width, color=colour, label=name)
        axes.bar_label(bars, [str(value) if value else "" for value in side.bins], fontsize=7.5)
    axes.set(yscale="log", ylabel="calls")
    style.log_axis(axes.yaxis, lambda value: f"{value:.0f}")
    axes.set_ylim(bottom=0.5)
    axes.margins(y=0.15)
    axes.set_xticks(np.arange(len(BIN_NAMES)), [name.replace("-", "-\n", 1) for name in BIN_NAMES])
    drawn.legend(loc="outside upper left", ncols=2)
    return drawn
