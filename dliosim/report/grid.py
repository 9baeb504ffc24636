"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

#: A row of a table that is drawn as a line.
LINE: tuple[str, ...] = ()


def grid(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title, then a table whose first column is text and whose others are numbers; headings may have two lines."""
    from tabulate import SEPARATING_LINE, tabulate  # 20 ms that only a rank that prints should pay

    # Headings go in as rows, because tabulate makes columns two wider than their headings. They end on one line.
    reversed_lines = zip_longest(*(heading.split("\n")[::-1] for heading in headings), fillvalue="")
    above = list(reversed_lines)[::-1]
    lines = [row or SEPARATING_LINE for row in [*above, LINE, *rows]]
    align = ["left", *["right"] * (len(headings) - 1)]
    text = tabulate(lines, tablefmt="simple", disable_numparse=True, colalign=align)
    # Without headings tabulate draws a line above and one below.
    return "\n".join([title, *(line.rstrip() for line in text.splitlines()[1:-1])])
