"""SVG files of a third of their size: without what a browser does not need."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Final

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
    """Return the value of an attribute; an empty text where it is not needed."""
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
            steps.append(f"H{point[0]}" if point[0] != last[0] else "h0")  # a dot, where lines have round ends
        elif kind == "L" and last and point[0] == last[0]:
            steps.append(f"V{point[1]}")
        else:
            steps.append(kind + " ".join(point))
        last = point[-2:]
    return "".join(steps)


def _round(number: str, digits: int) -> str:
    rounded = f"{float(number):.{digits}f}".rstrip("0").rstrip(".")
    return "0" if rounded == "-0" else rounded
