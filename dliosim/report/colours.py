"""Colours of a report on a terminal: of verdicts, warnings, and the names of first lines."""

from __future__ import annotations

import re
from typing import Final

from dliosim.compare.answer import EITHER, FEW, NO_DIFFERENCE, USE
from dliosim.measure.results.verdicts import CANNOT_SAY, FEEDS, NO_STORAGE, NOT_ASKED, STARVES, TOO_CLOSE

_RED, _GREEN, _YELLOW, _DIM = "1;31", "1;32", "1;33", "2"

_UNCLEAR: Final = (TOO_CLOSE, CANNOT_SAY, NOT_ASKED, NO_STORAGE, FEW, NO_DIFFERENCE)
_VERDICTS: Final = {FEEDS: _GREEN, EITHER: _GREEN, USE: _GREEN, STARVES: _RED, **dict.fromkeys(_UNCLEAR, _YELLOW)}

#: Expressions, and the colour of what each finds; names of first lines take nine columns.
_COLOURS: Final = (
    *((rf"(?m)(?<=^ANSWER   ){verdict}\b", colour) for verdict, colour in _VERDICTS.items()),
    (r"(?m)^MISSED\b", _RED),
    (r"(?m)^warning(?=:)", _YELLOW),
    (r"(?m)^(?=.{8} \S)[A-Z]{3,8}(?= )", _DIM),
)


def add_colours(text: str) -> str:
    """Return a text with escapes: verdicts are green, red or yellow, and names of first lines dim."""
    for expression, colour in _COLOURS:
        text = re.sub(expression, f"\x1b[{colour}m\\g<0>\x1b[0m", text)
    return text
