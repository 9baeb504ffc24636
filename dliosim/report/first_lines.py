"""The first lines of a report, of a plan or of a comparison: a title and rows of a name and a text, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from dliosim.report.text_table import SCREEN

if TYPE_CHECKING:
    from dliosim.measure.run_summary import Advice

#: Greatest number of first lines, and columns next to the name of a row.
_MOST, ROOM = 8, SCREEN - 9

#: Rows that make room for others, in this order.
_LEAST_NEEDED = ("RESTORES", "SAVES", "LOOP")

#: Title of the first lines, and name and text of each row.
FirstRows: TypeAlias = tuple[str, list[tuple[str, str]]]


def add_advice(rows: Sequence[tuple[str, str]], advice: Sequence[Advice]) -> list[tuple[str, str]]:
    """Return the rows for which there is room and the first advice; a command has a line of its own.

    Where there are too many, those go first that the tables below have, too.
    """
    room = _MOST - 1 - sum(1 + bool(one.command) for one in advice[:1])
    rows = list(rows)
    for name in _LEAST_NEEDED:
        if len(rows) > room:
            rows = [row for row in rows if row[0] != name]
    tried = [("TRY", f"{one.text}:\n{one.command}" if one.command else one.text) for one in advice[:1]]
    return [*rows[:room], *tried]


def first_lines(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a title and rows of a name and a text as lines, cut to 80 columns."""
    return "\n".join([_cut(title), *(_cut(f"{name:<8} {text}", name) for name, text in rows)])


def _cut(line: str, name: str = "") -> str:
    """Return a line, cut to the width; a command line stays whole, so that it can be pasted."""
    return line if len(line) <= SCREEN or name == "TRY" else f"{line[: SCREEN - 3]}..."
