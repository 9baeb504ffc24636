"""Values of settings, read from the phrases that the model declares, and written as phrases again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import partial
from types import NoneType
from typing import Any, Final

from dliosim.language.diagnostics import mistake
from dliosim.language.syntax.declarations import TOKEN, Declaration, flag_symbol
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.language.values.quantities import MAX_SIZE, range_mistake
from dliosim.model import Distribution, Pace
from dliosim.units import COUNT, FREQUENCY, RATE, SIZE, TIME, Dimension, format_bytes, format_seconds


def read_phrase(setting: Declaration, scope: Scope, node: SyntaxNode) -> Any:
    """Return the value that a phrase gives to the field of a setting."""
    several = len(setting.alternatives) > 1
    found = next(one for one in setting.alternatives if not several or one.name == node.kind)
    if not found.values:
        if bool in setting.types:
            return found is setting.alternatives[0]
        return None if NoneType in setting.types else found.text
    operands = iter([node] if node.kind == "quantity" else node.children)
    values = [_read_value(scope, token, node, operands) for token in found.values]
    if len(values) == 1:
        return values[0]
    make: Any = next(one for one in setting.types if is_dataclass(one))
    return make(*values)


def _read_value(scope: Scope, token: re.Match[str], node: SyntaxNode, operands: Iterator[SyntaxNode]) -> Any:
    if token["flag"]:
        return node.find(flag_symbol(token["flag"])) is not None
    bounds = {name: int(token[name]) for name in ("low", "high") if token[name]}
    return _READ[token["value"]](scope, next(operands), **bounds)


def read_pace(scope: Scope, node: SyntaxNode) -> Pace:
    """Return a pace from a time or a rate; E111 for another dimension, E113 for a rate out of range."""
    value = scope.value(node)
    if value.dimension == TIME:
        return Pace(seconds=scope.seconds(node))
    if value.dimension != RATE:
        hint = "write a time, as 300 ms, or a rate, as 2 GB/s"
        label = f"this is {value.dimension}"
        raise mistake("E111", f"a time or a rate is needed, not {value.dimension}", value.span, label, hint=hint)
    return Pace(bytes_per_second=_read_above(scope, node, RATE))


#: Each number of a dimension is above the first, at most the second; the third says so.
_BOUNDS: Final = {
    RATE: (0, MAX_SIZE, f"above 0 B/s, at most {MAX_SIZE:.3g} B/s"),
    FREQUENCY: (0, MAX_SIZE, f"above 0 opens/s, at most {MAX_SIZE:.3g} opens/s"),
    COUNT: (1, 1000, "above 1, at most 1000"),
}


def _read_above(scope: Scope, node: SyntaxNode, dimension: Dimension) -> float:
    """Return a number of a dimension; E111 for another dimension, E113 if it is out of range."""
    value = scope.require_dimension(node, dimension)
    low, high, text = _BOUNDS[dimension]
    if not low < value.amount <= high:
        raise range_mistake(value, text)
    return float(value.amount)


def path_below_root(scope: Scope, node: SyntaxNode, keyword: str = "path") -> str:
    """Return a path in quotes that stays below its root; E208 otherwise."""
    text = node.text[1:-1]
    parts = text.split("/")
    reason = ""
    if not text.strip() or any(letter in "\t\\" for letter in text):
        reason = "not a path"
    elif text.startswith(("/", "~")) or re.match(r"[A-Za-z]:", text):
        reason = "an absolute path"
    elif ".." in parts:
        reason = "`..` leaves the root"
    elif "$" in text:
        reason = "nothing replaces a variable here"
    elif any(len(part.encode()) > 255 for part in parts) or len(text) > 1024:
        reason = "too long"
    if reason:
        folder, name = text.rsplit("/", 1) if text.startswith(("/", "~", "$")) and "/" in text else ("", text)
        name = "/".join(part for part in name.split("/") if part not in ("", "..")) or "data"
        given = f", and give `--dir {folder}`" if folder else ""
        hint = f'write `{keyword} "{name}"`{given}; ' if re.fullmatch(r"[^\t\\$]{1,80}", name) else ""
        hint += "paths are below `--dir`, or `--root NAME=DIR`"
        raise mistake("E208", f"a path that leaves its root: {node.text}", node.span, reason, hint=hint)
    try:
        os.fsencode(text if scope.writes_paths else "")
    except UnicodeEncodeError as error:
        locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or "POSIX"
        hint = "give the locale one of UTF-8, as `export LC_ALL=C.UTF-8`, on all nodes"
        label = f"`{text[error.start : error.end]}` is not in {error.encoding}, the encoding of the locale `{locale}`"
        raise mistake(
            "E208", f"a path that this locale cannot write: {node.text}", node.span, label, hint=hint
        ) from error
    return "/".join(part for part in parts if part not in ("", ".")) or "."


_READ: Final[dict[str, Callable[..., Any]]] = {
    "COUNT": Scope.count,
    "SIZE": Scope.size,
    "TIME": Scope.seconds,
    "PACE": read_pace,
    "RATE": partial(_read_above, dimension=RATE),
    "OPENS": partial(_read_above, dimension=FREQUENCY),
    "NUMBER": partial(_read_above, dimension=COUNT),
    "SIZES": lambda scope, node: scope.quantity(node, SIZE),
    "TIMES": lambda scope, node: scope.quantity(node, TIME),
    "NAME": lambda _, node: node.text,
    "PATH": path_below_root,
}


def write_phrase(setting: Declaration, value: Any) -> str | None:
    """Return the phrase that gives a value to the field of a setting; None if no line does."""
    if not setting.phrase.text:
        return str(value)
    alternatives = setting.alternatives
    alone = [one.text for one in alternatives if not one.values]
    if isinstance(value, bool):
        return alternatives[not value].text
    if value is None or value == "" or value in alone:
        return value or next(iter(alone), None)
    pattern = next(one for one in alternatives if one.values)
    several = len(pattern.values) > 1
    values = iter([getattr(value, field.name) for field in fields(value)] if several else [value])
    number: Any = None

    def fill(token: re.Match[str]) -> str:
        nonlocal number
        if token["flag"]:
            return token["flag"] if next(values) else ""
        if token["word"]:
            return token["word"] + (token["plural"] if number != 1 and token["plural"] else "")
        number = next(values)
        return _WRITE[token["value"]](number)

    return TOKEN.sub(fill, pattern.text).strip()


def write_size(size: float) -> str:
    """Return the text of a size that may be a fraction of a byte."""
    return format_bytes(int(size)) if size == int(size) else f"{Decimal(repr(size)):f} B"


def write_pace(pace: Pace) -> str:
    """Return the text of a time or a rate."""
    return format_seconds(pace.seconds) if pace.seconds is not None else f"{write_size(pace.bytes_per_second or 0.0)}/s"


def write_distribution(drawn: Distribution, write: Callable[[float], str]) -> str:
    """Return the text of a distribution; `write` formats its parameters."""
    values = [write(value) for value in drawn.parameters]
    if drawn.is_constant:
        return values[0]
    clip = ""
    if drawn.low is not None and drawn.high is not None:
        clip = f" clipped to {write(drawn.low)} and {write(drawn.high)}"
    return f"{drawn.kind}({', '.join(values)}){clip}"


_WRITE: Final[dict[str, Callable[[Any], str]]] = {
    "COUNT": str,
    "SIZE": format_bytes,
    "TIME": format_seconds,
    "PACE": write_pace,
    "RATE": lambda rate: f"{write_size(rate)}/s",
    "OPENS": lambda rate: f"{rate:_.12g} opens/s",
    "NUMBER": lambda number: f"{number:g}",
    "SIZES": lambda drawn: write_distribution(drawn, write_size),
    "TIMES": lambda drawn: write_distribution(drawn, format_seconds),
    "NAME": lambda named: str(getattr(named, "name", named)),
    "PATH": lambda path: f'"{path}"',
}
