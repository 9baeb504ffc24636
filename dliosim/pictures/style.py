"""The common style of all pictures: colours, fonts, axes with units, and SVG files that are the same each time."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dliosim.measure.figures.declaration import name_part, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.readable import number, seconds, size, trim_zeros

#: Digits behind the point of coordinates, and of those of curves, such as small round dots; a unit is 1/72 inch.
_DIGITS, _DIGITS_OF_CURVES = 1, 2

#: Fonts by preference, for all texts: the layout has the widths of the first one, and Verdana has these as well.
_FONTS: Final = "text{font-family:'DejaVu Sans',Verdana,sans-serif}"

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"

#: Attributes of coordinates. A scale within a `transform` needs all of its digits.
_COORDINATES: Final = ("d", "points", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "transform")

_NUMBER: Final = re.compile(r"-?\d+\.\d{2,}")
_STEP: Final = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_REFERENCE: Final = re.compile(r"#([\w.-]+)")


def shrink_svg(text: str) -> str:
    """Return a picture of matplotlib without comments, names that nothing refers to and groups of nothing."""
    root = ElementTree.fromstring(text)
    attributes = [value for element in root.iter() for value in element.attrib.values() if len(value) < 100]
    used = {name for value in attributes for name in _REFERENCE.findall(value)}
    _shrink(root, used)
    _leave_out_repeated_styles(root)
    for style in root.iter(f"{{{_SVG}}}style"):
        style.text = f"{style.text}{_FONTS}"
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _shrink(element: ElementTree.Element, used: set[str]) -> None:
    """Shorten all that is in an element."""
    children: list[ElementTree.Element] = []
    for child in element:
        _shrink(child, used)
        child.tail = None
        kind = child.tag.rpartition("}")[2]
        if kind == "g" and not child.attrib:
            children += child
        elif kind != "metadata":
            children.append(child)
    if children:
        element.text = None
    element[:] = children
    for name, value in list(element.attrib.items()):
        short = _shorten(name, value, used)
        if short:
            element.set(name, short)
        else:
            del element.attrib[name]


def _leave_out_repeated_styles(root: ElementTree.Element) -> None:
    """Leave out what marks say again of the shape that they refer to, which has it already."""
    styles = {f"#{one.get('id')}": set(one.get("style", "").split(";")) for one in root.iter() if one.get("id")}
    for mark in root.iter(f"{{{_SVG}}}use"):
        of_shape = styles.get(mark.get(f"{{{_XLINK}}}href", ""), set())
        mark.set("style", ";".join(one for one in mark.get("style", "").split(";") if one not in of_shape))


def _shorten(name: str, value: str, used: set[str]) -> str:
    """Return the value of an attribute; an empty text if it is not needed."""
    if name == "id":
        return value if value in used else ""
    if name == "style":
        kept = [one.strip() for one in value.split(";") if not one.strip().startswith("font-family")]
        return ";".join(one.replace(": ", ":", 1) for one in kept if one)
    if name == "transform" and value.startswith("rotate(-0 "):
        return ""
    if name in _COORDINATES and "scale" not in value and "matrix" not in value:
        digits = _DIGITS_OF_CURVES if name == "d" and "C" in value else _DIGITS
        value = _NUMBER.sub(lambda found: _round(found[0], digits), value)
        return _shorten_path(value) if name == "d" else value
    return value


def _shorten_path(path: str) -> str:
    """Return a path whose level and upright lines have one coordinate."""
    steps: list[str] = []
    last: list[str] = []
    for kind, numbers in _STEP.findall(path):
        point = numbers.split()
        if kind == "L" and last and point[1] == last[1]:
            steps.append(f"H{point[0]}" if point[0] != last[0] else "h0")  # a dot, if lines have round ends
        elif kind == "L" and last and point[0] == last[0]:
            steps.append(f"V{point[1]}")
        else:
            steps.append(kind + " ".join(point))
        last = point[-2:]
    return "".join(steps)


def _round(number: str, digits: int) -> str:
    rounded = trim_zeros(f"{float(number):.{digits}f}")
    return "0" if rounded == "-0" else rounded


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

_SETTINGS = mpl.rc_params_from_file(Path(__file__).with_name("pictures.mplstyle"), use_default_template=False)
_SETTINGS |= {"image.cmap": HEAT, **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), INK)}


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


def single_axes(height: float, width: float = WIDE) -> tuple[Figure, Axes]:
    """Return an empty figure, in inches, and its only axes."""
    drawn = figure(height, width)
    return drawn, drawn.add_subplot()


def render_figure(drawn: Figure, kind: Literal["svg", "png"]) -> bytes:
    """Return a figure as the bytes of a file: the same for the same figure, without date and version."""
    content = io.BytesIO()
    nothing = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    drawn.savefig(content, format=kind, dpi=_DPI, metadata=nothing)
    return shrink_svg(content.getvalue().decode()).encode() if kind == "svg" else content.getvalue()


def time_axis(axis: Axis, longest: float, label: str) -> float:
    """Label an axis with `label` and a unit of time; return the factor from seconds to that unit."""
    units = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))
    unit, name = next((one for one in units if longest * one[0] >= 2), (1e9, "ns"))
    axis.set_label_text(f"{label} ({name})")
    axis.set_major_formatter(FuncFormatter(_format_number))
    return unit


def size_axis(axis: Axis, per: str = "") -> None:
    """Label an axis in bytes `per` something, each tick in the unit that fits it: 10 MB."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: trim_zeros(size(value)) + per if value else "0"))


def rate_axis(axis: Axis) -> None:
    """Label an axis in bytes per second."""
    size_axis(axis, "/s")


def log_axis(axis: Axis, show: Callable[[float], str], ticks: Sequence[float] = ()) -> None:
    """Label a logarithmic axis at some numbers, by default at each power of ten."""
    axis.set_major_locator(FixedLocator(ticks) if ticks else LogLocator(10.0, numticks=10))
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axis.set_minor_locator(NullLocator())


def log_time_axis(axis: Axis) -> None:
    """Label a logarithmic axis of seconds, which spans a factor of ten or more: 10 us, 1 ms, 1 s."""
    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_view_interval(low / 3, high * 3, ignore=True)
    log_axis(axis, lambda value: trim_zeros(seconds(value)))


def whole_axis(axis: Axis) -> None:
    """Label an axis at whole numbers only: ranks, steps and epochs."""
    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(_format_number))


def percent_axis(axis: Axis) -> None:
    """Label an axis of ratios in per cent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{_format_number(100 * value)} %"))


def wrap_text(text: str, width: int) -> str:
    """Return a text in lines of at most `width` characters, cut after six lines."""
    return textwrap.fill(text, width, max_lines=6, placeholder=" ...")


def _format_number(value: float, _: object = None) -> str:
    """Return a number without exponent and without zeros at its end."""
    return trim_zeros(number(value, 6)) if math.isfinite(value) else ""
