"""The graphs and the road of a run in docs/dev/architecture.md."""

from __future__ import annotations

import re

import pytest

from tests.scripts.fidelity import script
from tests.scripts.stubs import ROOT

draw_house = script("draw_house")


def test_the_page_shows_the_imports_as_they_are() -> None:
    page = draw_house.PAGE.read_text(encoding="utf-8")
    assert draw_house.fill_page(page) == page, "type: scripts/dev/draw_house.py"


def test_an_import_that_a_longer_way_implies_is_left_out() -> None:
    assert draw_house.drop_implied({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="is there 0 times, and must be once"):
        draw_house.fill_page("# A page\n")


def test_each_function_of_the_road_is_in_its_module() -> None:
    page = draw_house.PAGE.read_text(encoding="utf-8")
    steps = re.findall(r"^\| `([\w.]+)` \| `([\w/]+\.py)` \|", page[: page.index("## Packages")], re.MULTILINE)
    assert len(steps) > 20
    for step, module in steps:
        text = (ROOT / "dliosim" / module).read_text(encoding="utf-8")
        for name in step.split("."):
            assert re.search(rf"^ *(def|class) {name}\b", text, re.MULTILINE), f"{module} has no {step}"
