"""Tables for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import accumulate, pairwise, zip_longest

#: Columns of a terminal; no printed line is wider.
WIDTH = 120

#: A row that is drawn as a line.
LINE: tuple[str, ...] = ()


def grid(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], groups: Sequence[int] = ()) -> str:
    """Return a title and a table: text in the first column, numbers in the others; headings may have two lines.

    `groups` are the numbers of other columns that belong together, in order. Where the table is too wide, it is broken
    between two groups, and each part begins with the first column.
    """
    tables = [_draw_table(headings, rows, columns) for columns in split_columns(headings, rows, groups)]
    return textwrap.fill(title, WIDTH) + "\n" + "\n\n".join(tables)


def split_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], groups: Sequence[int] = ()
) -> list[list[int]]:
    """Return the columns, from 1, of each part into which `grid` breaks such a table."""
    ends = [0, *accumulate(groups or (len(headings) - 1,))]
    parts: list[list[int]] = [[]]
    for begin, end in pairwise(ends):
        block = list(range(1 + begin, 1 + end))
        if parts[-1] and _text_width(_draw_table(headings, rows, parts[-1] + block)) > WIDTH:
            parts.append([])
        parts[-1] += block
    return parts


def _text_width(text: str) -> int:
    return max(map(len, text.splitlines()))


def _draw_table(headings: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> str:
    from tabulate import SEPARATING_LINE, tabulate  # takes 20 ms: only a rank that prints imports it

    chosen = [0, *columns]
    # Headings are given as rows: tabulate makes a column two wider than its heading. They all end on one line.
    reversed_lines = zip_longest(*(headings[column].split("\n")[::-1] for column in chosen), fillvalue="")
    above = list(reversed_lines)[::-1]
    body = [[row[column] for column in chosen] if row else SEPARATING_LINE for row in rows]
    lines = [*above, SEPARATING_LINE, *body]
    align = ["left", *["right"] * len(columns)]
    text = tabulate(lines, tablefmt="simple", disable_numparse=True, colalign=align)
    # Without headings tabulate draws a line above and one below.
    return "\n".join(line.rstrip() for line in text.splitlines()[1:-1])
