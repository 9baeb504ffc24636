"""Facts about a job as lines of a pattern: each value with where it comes from, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

#: Columns before a comment.
_WIDTH: Final = 46


@dataclass(frozen=True, slots=True)
class Fact:
    """The value of a setting, and where it comes from."""

    value: str  #: as the language has it; empty if it is unknown
    why: str  #: what was counted, or what it would need
    is_sure: bool = True  #: False if it is a guess


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of a pattern that sets a value."""

    head: str  #: its first words
    fact: Fact  #: its value


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a pattern."""

    head: str  #: its first line, without the brace
    lines: Sequence[Line]  #: the lines in it


#: A line of a pattern: a setting, a block, or its text.
Line: TypeAlias = "Setting | Block | str"


def list_settings(lines: Iterable[Line]) -> Iterator[Setting]:
    """Yield the settings of a pattern, those in blocks too."""
    for line in lines:
        if isinstance(line, Setting):
            yield line
        elif isinstance(line, Block):
            yield from list_settings(line.lines)


def write_lines(lines: Iterable[Line], indent: str = "") -> str:
    """Return the text of some lines, each behind `indent`."""
    return "".join(f"{indent}{_write_line(line, indent)}\n" for line in lines)


def _write_line(line: Line, indent: str) -> str:
    """Return the text of a line; a comment in place of a setting whose value is unknown."""
    if isinstance(line, str):
        return line
    if isinstance(line, Block):
        return f"{line.head} {{\n{write_lines(line.lines, indent + '    ')}{indent}}}"
    fact = line.fact
    if not fact.value:
        return f"# {line.head}: unknown: {fact.why}"
    text = f"{line.head:<12} {fact.value}"
    return f"{text:<{_WIDTH - len(indent)}} # {'' if fact.is_sure else '? '}{fact.why}" if fact.why else text
