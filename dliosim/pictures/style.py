"""The common style of all pictures: colours, fonts, axes with units, and files that are the same each time."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dliosim.measure.figures.declaration import name_part, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.pictures.svg import shrink_svg
from dliosim.readable import number, seconds, size

# Near the colours of Okabe and Ito, which differ with any kind of colour blindness; data wait, compute and sync wait,
# which most of the time is, differ in grey, too.
_COLOURS = {
    "data wait": "#D55E00",
    "processing": "#6F4FB3",
    "compute": "#9ADFC3",
    "sync wait": "#FCEFA6",
    "checkpoint": "#E08FBC",
    "arrival wait": "#2F8FCB",
    "tool": "#8C8C8C",
}

#: The parts of the wall time in the order of stacking, each with its colour in all pictures; one for those not above.
PARTS = _COLOURS | {part: "#E69F00" for part in map(name_part, time_parts(EpochSummary)) if part not in _COLOURS}

#: Colour of the read calls of a reader.
READS = "#56B4E9"

#: Colours of series: epochs, results or ranks.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")

#: Colour map of dots, from dark (least) to light (most); also even in grey, and for the colour-blind.
HEAT = "cividis"

#: Colour map of areas, from light (little) to dark (much), as for print; even as the other.
LIGHT_HEAT = "YlGnBu"

#: Colour of the rate that a loop needs, and of its goal.
NEEDED = "#A33B00"

INK, FAINT = "#222222", "#6B6B6B"

#: The width of a picture, inches; a page shows it as wide as its text.
WIDE = 9.6

#: More marks than this are drawn as an image within an SVG.
MOST_SHAPES = 4000

#: Dots per inch of images.
_DPI = 160

_SETTINGS = {
    "text.parse_math": False,
    "text.usetex": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 100.0,
    "svg.fonttype": "none",  # Text stays text, which is a tenth of its outlines.
    "svg.hashsalt": "dliosim",
    "image.cmap": HEAT,
}


@contextmanager
def apply_style() -> Iterator[None]:
    """Set the style for all that is drawn and saved in a block, independent of the user's matplotlib settings."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        # Names in patterns may be in any script; a character that the font does not have becomes a box.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


def figure(height: float, width: float = WIDE) -> Figure:
    """Return an empty figure, in inches, with a layout in which nothing overlaps."""
    return Figure(figsize=(width, height), layout="constrained")


def render_figure(drawn: Figure, kind: Literal["svg", "png"]) -> bytes:
    """Return a figure as the bytes of a file: the same for the same figure, without date and version."""
    content = io.BytesIO()
    nothing = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    drawn.savefig(content, format=kind, dpi=_DPI, metadata=nothing)
    return shrink_svg(content.getvalue().decode()).encode() if kind == "svg" else content.getvalue()


def time_axis(axis: Axis, longest: float, label: str) -> float:
    """Label an axis with `label` and a unit of time; return the factor from seconds to that unit."""
    unit, name = next(
        ((unit, name) for unit, name in ((1.0, "s"), (1e3, "ms"), (1e6, "us")) if longest * unit >= 2), (1e9, "ns")
    )
    axis.set_label_text(f"{label} ({name})")
    axis.set_major_formatter(FuncFormatter(_format_number))
    return unit


def rate_axis(axis: Axis) -> None:
    """Label an axis in bytes per second, each tick in the unit that fits it."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{_trim_zeros(size, value)}/s" if value else "0"))


def log_axis(axis: Axis, show: Callable[[float], str]) -> None:
    """Label a logarithmic axis at each power of ten."""
    axis.set_major_locator(LogLocator(10.0, numticks=10))
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axis.set_minor_locator(NullLocator())


def log_time_axis(axis: Axis) -> None:
    """Label a logarithmic axis of seconds: 10 us, 1 ms, 1 s."""
    log_axis(axis, lambda value: _trim_zeros(seconds, value))


def whole_axis(axis: Axis) -> None:
    """Label an axis at whole numbers only: ranks, steps and epochs."""
    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(_format_number))


def percent_axis(axis: Axis) -> None:
    """Label an axis of ratios in per cent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{_format_number(100 * value)} %"))


def grid_lines(axes: Axes, axis: Literal["x", "y", "both"]) -> None:
    """Draw faint lines across, behind everything."""
    axes.grid(True, axis=axis)


def faint_text(axes: Axes, x: float, y: float, text: str, across: Literal["x", "y"], ha: str) -> None:
    """Write a remark above (x, y): one of them in units of the axis `across`, the other a share of the axes."""
    transform = axes.get_xaxis_transform() if across == "x" else axes.get_yaxis_transform()
    axes.text(x, y, text, transform=transform, ha=ha, va="bottom", color=FAINT, fontsize=8.5)


def brief_size(value: float) -> str:
    """Return bytes for a tick: `10 MB`."""
    return _trim_zeros(size, value) if value else "0"


def wrap_text(text: str, width: int) -> str:
    """Return a text in lines of at most `width` characters, cut after six lines."""
    return textwrap.fill(text, width, max_lines=6, placeholder=" ...")


def _format_number(value: float, _: object = None) -> str:
    """Return a number without exponent and without zeros at its end."""
    if not math.isfinite(value):
        return ""
    text = number(value, 6) if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _trim_zeros(show: Callable[[float], str], value: float) -> str:
    """Return `1.000 ms` as `1 ms`."""
    text, _, unit = show(value).partition(" ")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
