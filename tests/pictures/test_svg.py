"""Small SVG files: they show the same, and no text of theirs becomes anything else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from dliosim.pictures.style import shrink_svg

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'


def shrunk(inside: str) -> str:
    """Return the content of a picture after it was shrunk."""
    return shrink_svg(f"{HEAD}{inside}</svg>").partition(">")[2].removesuffix("</svg>\n")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("M 1.23456 2 \nL 3 2 \nL 3 4.5 \nz\n", "M1.2 2H3V4.5z"),
        ("M 1 2 L 3 4 M 5 6 L 5 6", "M1 2L3 4M5 6h0"),
        ("M 0 3.123456 C 0.7956 3.1 1 2 3 4", "M0 3.12C0.8 3.1 1 2 3 4"),
        ("M -0.04 0.000012 L 1 1", "M0 0L1 1"),
    ],
)
def test_paths_keep_their_points_to_a_tenth_of_a_unit(path: str, wanted: str) -> None:
    assert wanted in shrunk(f'<path d="{path}"/>')


def test_names_that_are_used_stay_and_others_go() -> None:
    inside = '<g id="axes_1"><defs><path id="mark" d="M0 0"/></defs><use id="u" xlink:href="#mark" x="1.26"/></g>'
    assert re.findall(r'id="(\w+)"|x="([\d.]+)"', shrunk(inside)) == [("mark", ""), ("", "1.3")]


def test_texts_stay_as_they_are_and_have_fonts_that_most_machines_have() -> None:
    hostile = ' d="1.23456" id="x" <script>alert(1)</script> #mark --> &amp;'
    escaped = hostile.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    found = shrink_svg(f"{HEAD}<style>*{{}}</style><text style=\"font-family: 'A'; fill: red\">{escaped}</text></svg>")
    text = ElementTree.fromstring(found).find("{http://www.w3.org/2000/svg}text")
    assert text is not None and text.text == hostile and text.attrib == {"style": "fill:red"}
    assert "sans-serif" in found


def test_scales_keep_their_digits() -> None:
    assert 'transform="scale(0.015625)"' in shrunk('<g transform="scale(0.015625)"/>')
