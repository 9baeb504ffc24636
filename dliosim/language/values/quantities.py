"""Exact values with a dimension: their text, their dimensions in products, and rounding."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dliosim.language.diagnostics import Label, Mistake, mistake
from dliosim.language.source import Span
from dliosim.units import RATIO, SIZE, TIME, Dimension, format_bytes

MAX_SIZE: Final = 2**60
MAX_SECONDS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Value:
    """An exact value and its place in the source."""

    #: in bytes, in seconds, or a plain number
    amount: Fraction
    #: count, size, time, rate, ratio or another
    dimension: Dimension
    #: where it comes from
    span: Span

    def __str__(self) -> str:
        return format_value(self.amount, self.dimension)


def format_value(amount: Fraction, dimension: Dimension) -> str:
    """Return the text of a value in a usual unit."""
    if dimension == SIZE and amount.denominator == 1 and amount >= 0:
        return format_bytes(int(amount))
    if dimension == RATIO:
        return f"{nearest_float(amount * 100):g} %"
    text = f"{int(amount):_}" if amount.denominator == 1 and abs(amount) < 10**18 else f"{nearest_float(amount):g}"
    return text + {SIZE: " B", TIME: " s"}.get(dimension, "")


def combine_dimensions(left: Dimension, right: Dimension, power: int) -> Dimension:
    """Return the dimension of a product (`power` 1) or a quotient (-1)."""
    size, time = left.bytes + power * right.bytes, left.seconds + power * right.seconds
    # A ratio times a ratio is a ratio; a ratio times any other quantity has the dimension of that quantity.
    ratio = left.ratio and right.ratio == (power == 1)
    return Dimension(size, time, ratio and size == 0 and time == 0)


def whole_number(value: Value, low: int, high: int) -> int:
    """Return a value that is a whole number in [low, high]; raise Mistake (E112, E113) otherwise."""
    if value.amount.denominator != 1:
        below, above = format_value(Fraction(math.floor(value.amount)), value.dimension), math.ceil(value.amount)
        what = "a fraction of a byte" if value.dimension == SIZE else "not a whole number"
        values = f"{below} and {format_value(Fraction(above), value.dimension)}"
        nearest = f"the nearest values are {values}; write floor(…) or ceil(…)"
        raise mistake("E112", f"{what}: {nearest_float(value.amount):.10g}", value.span, what, hint=nearest)
    if not low <= value.amount <= high:
        limit = ("at least", low) if value.amount < low else ("at most", high)
        raise range_mistake(value, f"{limit[0]} {format_value(Fraction(limit[1]), value.dimension)}")
    return int(value.amount)


def original_text(value: Value) -> str:
    """Return a value in the user's own unit if the source is a single number; else in bytes, seconds or plain."""
    return literal_text(value) or str(value)


def literal_text(value: Value) -> str:
    """Return the source text of a value that is one number with its unit; empty for any other expression."""
    text = " ".join(value.span.text.split())
    return text if re.fullmatch(r"-? ?[0-9][0-9_.]*( ?[A-Za-z%/]+)?", text) and len(text) < 40 else ""


def dimension_mistake(message: str, here: Value, other: Value) -> Mistake:
    """Return the E111 for two values whose dimensions differ."""
    more = [Label(other.span, f"this is {other.dimension}")]
    return mistake("E111", message, here.span, f"this is {here.dimension}", more=more)


def range_mistake(value: Value, bounds: str) -> Mistake:
    """Return the E113 for a value outside of its bounds."""
    return mistake("E113", f"{original_text(value)} is out of range", value.span, bounds)


def join_spans(left: Span, right: Span) -> Span:
    """Return the span from the first of two spans to the last; the left one if they are in two files."""
    return (
        Span(left.source, min(left.start, right.start), max(left.end, right.end))
        if left.source is right.source
        else left
    )


def log2(amount: Fraction) -> Fraction:
    """Return the logarithm to base 2; exact for powers of 2."""
    above, below = amount.numerator.bit_length() - 1, amount.denominator.bit_length() - 1
    if amount == Fraction(1 << above, 1 << below):
        return Fraction(above - below)
    return Fraction(math.log2(amount.numerator) - math.log2(amount.denominator))


def nearest_float(amount: Fraction) -> float:
    """Return the nearest float; infinite if the amount is too large."""
    try:
        return float(amount)
    except OverflowError:
        return math.inf if amount > 0 else -math.inf
