"""Numbers as text for users, with four significant digits and a suitable unit; foreign texts made printable."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))

#: Text for a figure that is missing.
ABSENT = "-"


def printable(text: str, lines: bool = False) -> str:
    """Return the text with U+FFFD for each character that is not printable.

    A terminal or an SVG may take such a character for a command. Every name or text that dliosim did not write itself
    goes through this before it is shown. With `lines` newlines and tabs are kept.
    """
    kept = "\n\t" if lines else ""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in kept else "\ufffd" for c in text)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number without exponent, with `digits` significant digits (whole numbers in full)."""
    if value is None or math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return f"{value:.{max(digits - 1 - magnitude, 0)}f}"


def trim_zeros(text: str) -> str:
    """Return a number, or one with its unit, without zeros at its end: `1 ms` for `1.000 ms`."""
    digits, blank, unit = text.partition(" ")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + blank + unit


def seconds(value: float | None, digits: int = 4) -> str:
    """Return a time in s, ms, us or ns."""
    return _format_unit(value, _TIMES, "s", digits)


def long_time(value: float, digits: int = 4) -> str:
    """Return a time in h or min without zeros at its end, as `6 h`; below two minutes as `seconds`."""
    for least, unit, name in (3600, 3600, "h"), (120, 60, "min"):
        if value >= least:
            return trim_zeros(f"{number(value / unit, digits)} {name}")
    return seconds(value, digits)


def size(value: float | None, digits: int = 4) -> str:
    """Return a number of bytes in powers of 1000."""
    if value is not None and 0 < value < 1000 and value == int(value):
        return f"{int(value)} B"
    return _format_unit(value, _SIZES, "B", digits)


def percent(ratio: float | None, digits: int = 4) -> str:
    """Return a ratio in per cent."""
    return ABSENT if ratio is None else f"{number(100 * ratio, digits)} %"


def hash_text(value: int) -> str:
    """Return a 64-bit hash in hexadecimal digits; `-` for 0, the hash of no reads."""
    return f"{value:016x}" if value else ABSENT


def count(value: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 rank`, `4 ranks`."""
    return f"{value} {noun if value == 1 else plural or noun + 's'}"


def _format_unit(value: float | None, units: Sequence[tuple[float, str]], base: str, digits: int) -> str:
    if value is None or not math.isfinite(value):
        return number(value)
    if value == 0:
        return f"0 {base}"
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    unit, name = next(((unit, name) for unit, name in units if rounded >= unit), units[-1])
    return f"{number(value / unit, digits)} {name}"
