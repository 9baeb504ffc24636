"""Bytes and seconds: the units of the language, and exact text for values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final


@dataclass(frozen=True, slots=True)
class Dimension:
    """The quantity that a value measures: powers of bytes and of seconds."""

    bytes: int = 0  #: power of bytes
    seconds: int = 0  #: power of seconds
    ratio: bool = False  #: true of a share (70 %), false of a count

    def __str__(self) -> str:
        known = _NAMES.get(self)
        return known if known is not None else f"a product of bytes^{self.bytes} and seconds^{self.seconds}"


COUNT: Final = Dimension()
RATIO: Final = Dimension(ratio=True)
SIZE: Final = Dimension(bytes=1)
TIME: Final = Dimension(seconds=1)
RATE: Final = Dimension(bytes=1, seconds=-1)
FREQUENCY: Final = Dimension(seconds=-1)

_NAMES: Final = {
    COUNT: "a count",
    RATIO: "a ratio",
    SIZE: "a size",
    TIME: "a time",
    RATE: "a rate",
    FREQUENCY: "a number per second",
}

SIZES: Final[dict[str, int]] = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGTP", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", 1)},
}
TIMES: Final[dict[str, Fraction]] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
UNITS: Final[dict[str, tuple[Fraction, Dimension]]] = {
    **{name: (Fraction(factor), SIZE) for name, factor in SIZES.items()},
    **{name: (factor, TIME) for name, factor in TIMES.items()},
    **{f"{name}/s": (Fraction(factor), RATE) for name, factor in SIZES.items()},
    **dict.fromkeys(("samples/s", "opens/s"), (Fraction(1), FREQUENCY)),
    "%": (Fraction(1, 100), RATIO),
}

_EXAMPLES: Final = {SIZE: "4 KiB", TIME: "10 ms", RATE: "10 GB/s", RATIO: "2 %"}

MAX_DIGITS: Final = 60
_OPENS = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9][0-9_]*)?)\s*(?:opens)?/s\s*", re.ASCII)
_QUANTITY = re.compile(r"\s*(-?[0-9][0-9_]*(?:\.[0-9][0-9_]*)?)\s*(\S+)\s*", re.ASCII)


def parse_number(text: str) -> Fraction:
    """Return the value of digits with an optional fraction, grouped by `_`; ValueError for more than 60 digits."""
    digits = text.replace("_", "")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits; at most {MAX_DIGITS} are read")
    return Fraction(digits)


def parse_quantity(text: str, dimension: Dimension) -> Fraction:
    """Return the value of `4 KiB`, `1.5 MB`, `10 ms`; ValueError for a missing or unknown unit."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in UNITS or UNITS[found[2]][1] != dimension:
        raise ValueError(f"{text!r} is not {dimension} such as {_EXAMPLES[dimension]}")
    return parse_number(found[1]) * UNITS[found[2]][0]


def parse_seconds(text: str) -> float:
    """Return the seconds of `10 ms`, `5 min`; ValueError for a missing or unknown unit."""
    return float(parse_quantity(text, TIME))


def parse_rate(text: str) -> float:
    """Return the bytes per second of `10 GB/s`; ValueError for a missing or unknown unit."""
    return float(parse_quantity(text, RATE))


def parse_opens(text: str) -> float:
    """Return the opens per second of `1_000_000/s`, `80_000 opens/s`; ValueError for other texts."""
    if not (found := _OPENS.fullmatch(text)):
        raise ValueError(f"{text!r} is not a number of opens per second such as 1_000_000/s")
    return float(parse_number(found[1]))


def parse_size(text: str) -> float:
    """Return the bytes of `512 GB`; ValueError for a missing or unknown unit."""
    return float(parse_quantity(text, SIZE))


def format_bytes(size: int) -> str:
    """Return the shortest exact text, which `parse_quantity` reads back: 4096 is `4 KiB`, 2828486 is `2_828_486 B`."""
    exact = (f"{size // factor:_} {name}" for name, factor in SIZES.items() if size % factor == 0)
    return min(exact, key=len) if size else "0 B"


def format_seconds(seconds: float) -> str:
    """Return the exact text of a time, which `parse_seconds` reads back: 0.01 is `10 ms`."""
    exact = Decimal(repr(float(seconds)))
    name = next((name for name in ("s", "ms", "us") if abs(Fraction(exact)) >= TIMES[name] or not exact), "ns")
    text = f"{exact * int(1 / TIMES[name]):f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {name}"
