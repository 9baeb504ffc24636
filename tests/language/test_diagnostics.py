"""Layout of findings on the terminal; the golden texts check their words."""

from __future__ import annotations

import re

from dliosim.language.diagnostics import Diagnostic, Label, PatternError, render, suggest_word
from dliosim.language.source import SourceText

SOURCE = SourceText("a.dlio", "dlio 1\nseed\tx\n")
FOUND = Diagnostic("E003", "wrong", (Label(SOURCE.span(12, 13), "here"),), ("write it right",))


def test_colours_change_nothing_but_the_colour() -> None:
    coloured = render([FOUND], colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render([FOUND], colour=False)


def test_a_tab_counts_as_one_column_so_that_the_caret_stands_below_its_word() -> None:
    assert render([FOUND], colour=False) == (
        "error[E003]: wrong\n --> a.dlio:2:6\n  |\n2 | seed x\n  |      ^ here\n  |\n  = help: write it right"
    )


def test_warnings_are_called_warnings_and_do_not_name_the_error() -> None:
    warning = Diagnostic("W302", "unused")
    error = PatternError([warning, FOUND])
    assert error.code == "E003"
    assert str(error).startswith("warning[W302]: unused\n\nerror[E003]")


def test_only_near_words_are_suggested() -> None:
    assert suggest_word("bacth", ["batch", "path"]) == "did you mean `batch`?"
    assert suggest_word("universe", ["batch", "path"]) == ""
