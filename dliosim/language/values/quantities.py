"""Exact values with a dimension, and distributions of them: their text, dimensions in products, rounding and limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dliosim.language.diagnostics import Label, Mistake, mistake
from dliosim.language.source import Span
from dliosim.language.syntax.parser import DISTRIBUTIONS, SyntaxNode
from dliosim.model import Distribution, constant
from dliosim.model.distributions import POISSON_MEAN_LIMIT
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
    return mistake("E113", f"{literal_text(value) or value} is out of range", value.span, bounds)


def join_spans(left: Span, right: Span) -> Span:
    """Return the span from the first of two spans to the last; the left one if they are in two files."""
    if left.source is not right.source:
        return left
    return Span(left.source, min(left.start, right.start), max(left.end, right.end))


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


LEAST: Final = Fraction(1, 10**12)  # of times, and of parameters of distributions; floats lose smaller ones
MAX_SPREAD: Final = 10**6  # largest stdev / mean of `lognormal` and `gamma`
_PARAMETERS: Final = {
    "normal": ("mean", "stdev"),
    "lognormal": ("mean", "stdev"),
    "uniform": ("low", "high"),
    "exponential": ("mean",),
    "gamma": ("mean", "stdev"),
    "poisson": ("mean",),
}


def read_distribution(
    require: Callable[[SyntaxNode, Dimension], Value], node: SyntaxNode, clip: SyntaxNode | None, dimension: Dimension
) -> Distribution:
    """Return the value or distribution of a node, with or without clipping; E003, E111, E112, E113.

    `require` evaluates a node, and refuses another dimension.
    """
    low: float | None = None
    high: float | None = None
    if clip is not None:
        bounds = [_check_parameter(require(child, dimension), dimension) for child in clip.children]
        if bounds[0].amount > bounds[1].amount:
            raise mistake("E113", f"clipped to {bounds[0]} and {bounds[1]}", clip.span, "the first is larger")
        low, high = float(bounds[0].amount), float(bounds[1].amount)
    if node.kind != "distribution":
        value = require(node, dimension)
        if dimension == SIZE:
            whole_number(value, 1, MAX_SIZE)
        elif not 0 <= value.amount <= MAX_SECONDS:
            raise range_mistake(value, f"0 s to {MAX_SECONDS:_} s")
        refuse_tiny(value)
        amount = float(value.amount)
        if low is not None and high is not None:
            amount = max(low, min(high, amount))
        return constant(float(math.ceil(amount)) if dimension == SIZE else amount)
    operands = [_check_parameter(require(child, dimension), dimension) for child in node.children[1:]]
    kind = next(kind for kind in DISTRIBUTIONS if kind == node.children[0].text)
    names = _PARAMETERS[kind]
    if len(operands) != len(names):
        takes, hint = f"{kind}({', '.join(names)})", ""
        if operands and operands[0].amount > 0:
            second = float(operands[0].amount) * (2.0 if names[-1] == "high" else 0.4)
            filled = operands[0].span.text, format_value(Fraction(f"{second:.0e}"), dimension)
            hint = f"write `{kind}({', '.join(filled[: len(names)])})`"
        text = f"`{kind}` takes {len(names)} values, not {len(operands)}"
        raise mistake("E003", text, node.span, f"expected {takes}", hint=hint)
    for what, operand in zip(names, operands, strict=True):
        positive = what == "mean" and kind != "normal"
        if operand.amount < 0 or (positive and operand.amount == 0):
            rule = "must be above 0" if positive else "must not be negative"
            raise mistake("E113", f"the {what} of `{kind}` {rule}", operand.span, f"this is {operand}")
    if kind in ("lognormal", "gamma") and operands[1].amount > MAX_SPREAD * operands[0].amount:
        text = f"the stdev of `{kind}` is more than {MAX_SPREAD:_} times its mean"
        more = [Label(operands[0].span, f"the mean is {operands[0]}")]
        raise mistake("E113", text, operands[1].span, f"this is {operands[1]}", more=more)
    if kind == "uniform" and operands[0].amount > operands[1].amount:
        raise mistake("E113", "`uniform` from high to low", node.span, f"{operands[0]} is above {operands[1]}")
    if kind == "poisson" and operands[0].amount > POISSON_MEAN_LIMIT:
        limit = format_value(Fraction(POISSON_MEAN_LIMIT), dimension)
        hint = "so far from 0 it is `normal(mean, stdev)`"
        raise mistake("E113", f"`poisson` of {operands[0]}", operands[0].span, f"at most {limit}", hint=hint)
    return Distribution(kind, tuple(float(operand.amount) for operand in operands), low, high)


def _check_parameter(found: Value, dimension: Dimension) -> Value:
    if abs(found.amount) > (MAX_SIZE if dimension == SIZE else MAX_SECONDS):
        raise mistake("E113", f"{found} is out of range", found.span, "too large")
    refuse_tiny(found)
    return found


def refuse_tiny(value: Value) -> None:
    """Raise E113 for a value so close to 0 that a float would lose it."""
    if 0 < abs(value.amount) < LEAST:
        least = format_value(LEAST, value.dimension)
        raise mistake("E113", f"{value.dimension} that is next to nothing", value.span, f"0, or at least {least}")
