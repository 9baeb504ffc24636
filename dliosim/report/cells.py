"""Figures as text, with the digits that the cell of a table has room for."""

from __future__ import annotations

from dliosim.readable import ABSENT, percent, seconds, size


def time_cell(value: float | None) -> str:
    """Return seconds."""
    return seconds(value, 3)


def percent_cell(ratio: float | None) -> str:
    """Return a ratio in per cent."""
    return percent(ratio, 3)


def size_cell(value: float | None) -> str:
    """Return bytes."""
    return size(value, 3)


def rate_cell(value: float | None) -> str:
    """Return bytes/s."""
    return ABSENT if value is None else f"{size(value, 3)}/s"


def count_cell(value: float | None) -> str:
    """Return a whole number; 0 if there is none."""
    return f"{value or 0:.0f}"


def text_cell(value: str | None) -> str:
    """Return a text, or the mark of a missing figure."""
    return value or ABSENT
