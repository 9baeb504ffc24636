"""The first lines of a report, of a plan or of a comparison: a title and rows of a name and a text, in 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from dliosim.measure.results.machine import FileSystem
from dliosim.readable import count
from dliosim.report.text_table import SCREEN, shorten_name

#: Greatest number of first lines; one more where rows that are `large` need it.
_MOST = 8

#: Characters of a name in a title that has no room for all of it.
_LONGEST_NAME = 24

#: The space between a number and its unit, or a goal and its number, at which no line ends.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGTPE]?B(?:/s)?|[mun]?s|min|h)(?![\w/]))|(?<=goal) (?=\d)")

#: Name and text of a row. Lines of a text after the first are commands.
Row: TypeAlias = tuple[str, str]

#: Title of the first lines, and rows.
FirstRows: TypeAlias = tuple[str, list[Row]]

#: Rows that make room for others, in this order: STORAGE names the epochs that count, tables below have the rest.
_LEAST_NEEDED = ("RESTORES", "SAVES", "MEMORY", "LOOP", "ALSO")

#: The same where somebody asked how often to save.
_LEAST_NEEDED_OF_SAVES = ("RESTORES", "RESTORE", "MEMORY", "LOOP", "DATA", "ALSO", "SAVES")


#: Characters of a row's name with the space after it, and of its text in one line.
_NAME = 9
ROW = SCREEN - _NAME


def name_forms(name: str) -> list[str]:
    """Return the forms of a name for `fit_title`."""
    return [name, shorten_name(name, _LONGEST_NAME)]


def directory_forms(directory: str) -> list[str]:
    """Return the forms of a directory for `fit_title`."""
    return [directory, *name_forms(Path(directory).name), ""]


def fit_title(*parts: Sequence[str]) -> str:
    """Return as many parts of a title as fit into one line.

    Each part has its forms, the longest first, '' to leave it out. Parts at the left have the first choice.
    """
    chosen = [forms[-1] for forms in parts]
    for place, forms in enumerate(parts):
        tried = [[*chosen[:place], form, *chosen[place + 1 :]] for form in forms]
        chosen = next((one for one in tried if len(_join(one)) <= SCREEN), chosen)
    return _join(chosen)


def title_results(names: Sequence[str], ranks: int, nodes: int, place: FileSystem | None, apis: Sequence[str]) -> str:
    """Return the title of results on a file system: forms of a name, the job, where the data are, forms of the apis.

    One node is named with the warning not to extrapolate.
    """
    kind, directory = (place.kind, place.directory) if place else ("", "")
    on = "1 node: do not extrapolate" if nodes == 1 else count(nodes, "node")
    return fit_title(names, [f"{count(ranks, 'rank')} on {on}"], [kind], apis, directory_forms(directory))


def fit_rows(title: str, rows: Sequence[Row], advice: Sequence[Row] = (), large: Collection[str] = ()) -> FirstRows:
    """Return the title, the rows for which there is room, and rows of advice, which stay.

    If there are too many, those go first that somebody needs least, but never those of the names in `large`: there
    is one line more for them.
    """
    names = {name for name, _ in rows}
    kept, most = list(rows), _MOST

    def is_full() -> bool:
        return len(first_lines(title, [*kept, *advice]).splitlines()) > most

    asks_for_saves = "INTERVAL" in names
    for name in _LEAST_NEEDED_OF_SAVES if asks_for_saves else _LEAST_NEEDED:
        if is_full() and name in large:
            most = _MOST + 1
        elif is_full() and (name != "MEMORY" or "STORAGE" in names or asks_for_saves):
            kept = [row for row in kept if row[0] != name]
    while is_full() and any(droppable := [row for row in kept[1:] if row[0] not in large]):
        kept.remove(droppable[-1])
    return title, [*kept, *advice]


def first_lines(title: str, rows: Sequence[Row]) -> str:
    """Return a title and rows as lines of 80 columns; a command line stays whole, so that it can be pasted."""
    return "\n".join(filter(None, [_wrap(title, "", " " * 4), first_rows(rows)]))


def first_rows(rows: Sequence[Row]) -> str:
    """Return rows as lines of 80 columns."""
    return "\n".join(map(_format_row, rows))


def _format_row(row: Row) -> str:
    name, (text, *commands) = row[0], row[1].split("\n")
    return "\n".join([_wrap(text, f"{name:<{_NAME}}", " " * _NAME), *commands])


def _join(parts: Sequence[str]) -> str:
    return "  ".join(filter(None, parts))


def _wrap(text: str, first: str, later: str) -> str:
    joined = _UNIT.sub("\0", text)
    made = textwrap.fill(joined, SCREEN, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)
    return made.replace("\0", " ")
