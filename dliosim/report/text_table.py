"""Tables for a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, zip_longest
from typing import Any, Generic, TypeVar

from dliosim.readable import number

T = TypeVar("T")

#: Columns of a wide terminal; no printed line is wider.
WIDTH = 120

#: Columns of a terminal; what a run prints is no wider.
SCREEN = 80

#: Figures that differ by less than this share are the same to a reader.
_SAME = 0.005

# Longer names are cut in tables; the conditions above the tables have them in full.
_LONGEST = 32

#: A row that is drawn as a line.
LINE: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A figure of each row of a table; T is the type of a row."""

    heading: str  #: heading of the column
    figure: Callable[[T], Any]  #: the figure of a row
    show: Callable[[Any], str] = number  #: the figure as text
    optional: bool = False  #: True to leave the column out if every row has the `usual` figure or None
    usual: float = 0.0  #: figure that says nothing

    def cell(self, row: T) -> str:
        """Return the figure of a row as text."""
        return self.show(self.figure(row))

    def is_usual(self, row: T) -> bool:
        """Return True if the figure of a row is uninformative."""
        value = self.figure(row)
        return value is None or (not isinstance(value, str) and math.isclose(value, self.usual, rel_tol=_SAME))


def select_columns(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[Column[T]]:
    """Return the columns without the optional ones that are uninformative."""
    return [one for one in columns if not (one.optional and all(map(one.is_usual, rows)))]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text for a terminal or a page; it may be broken before each column."""

    title: str  #: text above the table
    headings: tuple[str, ...]  #: headings of the columns, the first one of the rows' names
    rows: tuple[tuple[str, ...], ...]  #: cells of each row; `LINE` is drawn as a line

    @property
    def groups(self) -> list[int]:
        """Columns that belong together, as in `grid`."""
        return [1] * (len(self.headings) - 1)


def grid(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], groups: Sequence[int] = (), width: int = WIDTH
) -> str:
    """Return a title and a table: text in the first column, numbers in the others; headings may have two lines.

    `groups` are the numbers of other columns that belong together, in order. If the table is too wide, it is broken
    between two groups, and each part begins with the first column.
    """
    tables = [_draw_table(headings, rows, columns) for columns in split_columns(headings, rows, groups, width)]
    return textwrap.fill(title, width) + "\n" + "\n\n".join(tables)


def format_table(table: Table, width: int = WIDTH) -> str:
    """Return a table as text."""
    return grid(table.title, table.headings, table.rows, table.groups, width)


def format_columns(
    title: str, first: str, named: Sequence[tuple[str, T]], groups: Sequence[Sequence[Column[T]]], width: int = WIDTH
) -> str:
    """Return a table with a row for each of `named`, without the optional columns that are empty.

    `first` is the heading of the names. If the table is too wide, it is broken between groups of columns.
    """
    rows = [row for _, row in named]
    shown = [some for group in groups if (some := select_columns(group, rows))]
    columns = [one for group in shown for one in group]
    cells = [[name, *(one.cell(row) for one in columns)] for name, row in named]
    return grid(title, [first, *(one.heading for one in columns)], cells, [len(group) for group in shown], width)


def split_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], groups: Sequence[int] = (), width: int = WIDTH
) -> list[list[int]]:
    """Return the columns, from 1, of each part into which `grid` breaks such a table."""
    ends = [0, *accumulate(groups or (len(headings) - 1,))]
    parts: list[list[list[int]]] = [[]]
    for begin, end in pairwise(ends):
        block = list(range(1 + begin, 1 + end))
        if parts[-1] and max(map(len, _draw_table(headings, rows, [*chain(*parts[-1]), *block]).splitlines())) > width:
            parts.append([])
        parts[-1].append(block)
    if len(parts) > 1 and len([*chain(*parts[-1])]) == 1 < len(parts[-2]):
        parts[-1].insert(0, parts[-2].pop())  # a column alone is no table
    return [[*chain(*part)] for part in parts]


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


def align_rows(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and values, a pair a line; values are aligned and wrapped."""
    indent = max(len(name) for name, _ in rows) + 2
    return "\n".join(wrap_text(value, f"{name:<{indent}}", " " * indent) for name, value in rows)


def wrap_text(text: str, first: str, later: str, width: int = WIDTH) -> str:
    """Wrap a text, but break no long word: a path must stay whole so that it can be copied."""
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def shorten_name(name: str, longest: int = _LONGEST) -> str:
    """Return the beginning and the end of a long name, so that there is room for figures."""
    end = min(12, (longest - 3) // 2)
    return name if len(name) <= longest else f"{name[: longest - 3 - end]}...{name[-end:]}"


def wrap_name(name: str) -> str:
    """Return a name on as many lines of a cell as it takes; one of more than four lines is cut."""
    return textwrap.fill(name, _LONGEST, subsequent_indent="  ", max_lines=4, placeholder="...")
