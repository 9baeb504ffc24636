"""Lines of a pattern, each with the keys that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: Columns from which a comment begins, if the line is shorter.
_COMMENT = 44


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a pattern."""

    #: what it says
    text: str
    #: the keys that it came from, or why it is there; empty for none
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a pattern: its head, and lines and blocks inside."""

    #: head, without the brace
    head: str
    #: lines and blocks inside
    lines: tuple[Statement, ...]


Statement: TypeAlias = "Line | Block"


def setting(keyword: str, phrase: str, comment: str = "") -> Line:
    """Return the line of a setting, its phrase aligned with those of others."""
    return Line(f"{keyword:<11} {phrase}", comment)


def block(head: str, lines: Iterable[Statement | None]) -> Block:
    """Return a block of the lines that are there."""
    return Block(head, tuple(line for line in lines if line is not None))


def write_lines(statements: Sequence[Statement], indent: str = "") -> str:
    """Return the text of statements; comments stand in one column where lines are short."""
    parts: list[str] = []
    for one in statements:
        if isinstance(one, Block):
            parts.append(f"{indent}{one.head} {{\n{write_lines(one.lines, f'{indent}    ')}{indent}}}\n")
        elif one.comment:
            parts.append(f"{indent + one.text:<{_COMMENT}}  # {one.comment}\n")
        else:
            parts.append(f"{indent}{one.text}\n")
    return "".join(parts)
