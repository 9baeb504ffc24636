"""Types of options: texts of the command line to values, with messages for argparse."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from dliosim import units
from dliosim.trace import cut

T = TypeVar("T")

#: Seconds, and bytes a second: larger values of options are mistakes.
_GREATEST = 1e18


def _show_errors(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a type whose ValueError is a message of argparse."""

    def parse_option(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return parse_option


def _check_range(parse: Callable[[str], float]) -> Callable[[str], float]:
    """Return the type of a quantity above 0."""

    def parse_option(text: str) -> float:
        value = parse(text)
        if not 0 < value < _GREATEST:
            raise ValueError(f"{text!r} is out of range: above 0, below {_GREATEST:g}")
        return value

    return _show_errors(parse_option)


#: The part of a run that is recorded, and the part of a trace that is exported.
parse_trace, parse_trace_part = _show_errors(cut.parse_cut), _show_errors(cut.parse_part)

#: A time in seconds, bytes a second, opens a second, and bytes.
parse_time, parse_bandwidth = _check_range(units.parse_seconds), _check_range(units.parse_rate)
parse_opens, parse_size = _check_range(units.parse_opens), _check_range(units.parse_size)


def parse_time_or_off(text: str) -> float | None:
    """Return a time in seconds, or None for `off`."""
    return None if text == "off" else parse_time(text)


def parse_share(text: str) -> float:
    """Return a share, between 0 and 1."""
    share = _check_range(lambda given: float(units.parse_quantity(given, units.RATIO)))(text)
    if share >= 1:
        raise ArgumentTypeError(f"{text!r} is out of range: above 0 %, below 100 %")
    return share


def parse_goal(text: str) -> float:
    """Return the share of `utilization 90 %`, or of `90 %`."""
    return parse_share(text.removeprefix("utilization").strip())


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
    if found := re.search(r"(\d+),(0\d\d)\b", text):
        raise ArgumentTypeError(f"write {found[1]}_{found[2]} for one number; `,` is between two")
    return tuple(parse_ranks(part.strip()) for part in text.split(","))
