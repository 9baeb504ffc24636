"""Types of options: texts of the command line to values, with messages for argparse. Nothing large is imported."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dliosim.trace.cut import TraceCut, TracePart

#: Seconds, and bytes a second: larger values of options are mistakes.
_GREATEST = 1e18


def parse_time_or_off(text: str) -> float | None:
    """Return a time in seconds, or None for `off`."""
    return None if text == "off" else parse_time(text)


def parse_time(text: str) -> float:
    """Return a time in seconds."""
    from dliosim.units import parse_seconds

    return _parse_quantity(parse_seconds, text)


def parse_bandwidth(text: str) -> float:
    """Return bytes a second."""
    from dliosim.units import parse_rate

    return _parse_quantity(parse_rate, text)


def parse_opens(text: str) -> float:
    """Return opens a second."""
    from dliosim import units

    return _parse_quantity(units.parse_opens, text)


def parse_share(text: str) -> float:
    """Return a share, between 0 and 1."""
    from dliosim.units import parse_ratio

    share = _parse_quantity(parse_ratio, text)
    if share >= 1:
        raise ArgumentTypeError(f"{text!r} is out of range: above 0 %, below 100 %")
    return share


def parse_size(text: str) -> float:
    """Return bytes."""
    from dliosim import units

    return _parse_quantity(units.parse_size, text)


def parse_trace(text: str) -> TraceCut:
    """Return the part of a run that is recorded."""
    from dliosim.trace.cut import parse_cut

    try:
        return parse_cut(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def parse_trace_part(text: str) -> TracePart:
    """Return the part of a trace that is exported."""
    from dliosim.trace.cut import parse_part

    try:
        return parse_part(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def parse_natural(text: str, least: int = 0) -> int:
    """Return a whole number, 0 or more."""
    if not re.fullmatch("-?[0-9]{1,12}", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    if int(text) < least:
        raise ArgumentTypeError(f"must be at least {least}")
    return int(text)


def parse_positive(text: str) -> int:
    """Return a whole number, 1 or more."""
    return parse_natural(text, 1)


def parse_ranks(text: str) -> int:
    """Return a number of ranks."""
    from dliosim.model.job import MAX_RANKS

    value = parse_positive(text)
    if value > MAX_RANKS:
        raise ArgumentTypeError(f"must be at most {MAX_RANKS:_}")
    return value


def parse_rank_list(text: str) -> tuple[int, ...]:
    """Return numbers of ranks, as `64,256,1024`."""
    return tuple(parse_ranks(part.strip()) for part in text.split(","))


def _parse_quantity(parse: Callable[[str], float], text: str) -> float:
    try:
        value = parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if not 0 < value < _GREATEST:
        raise ArgumentTypeError(f"{text!r} is out of range: above 0, below {_GREATEST:g}")
    return value
