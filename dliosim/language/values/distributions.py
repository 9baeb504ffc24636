"""Distributions of sizes and times: their parameters, their limits, and values that may not be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from dliosim.language.diagnostics import Label, mistake
from dliosim.language.syntax.parser import DISTRIBUTIONS, SyntaxNode
from dliosim.language.values.quantities import MAX_SECONDS, MAX_SIZE, Value, format_value, range_mistake, whole_number
from dliosim.model import Distribution, constant
from dliosim.model.distributions import POISSON_MEAN_LIMIT
from dliosim.units import SIZE, Dimension

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
    require: Callable[[SyntaxNode, Dimension], Value],
    node: SyntaxNode,
    clip: SyntaxNode | None,
    dimension: Dimension,
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
