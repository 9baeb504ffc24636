"""Facts about a job as lines of a pattern: each value with where it comes from, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable
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
    indent: int = 4  #: spaces before it

    @property
    def text(self) -> str:
        """The line; a comment in its place if its value is unknown."""
        indent, fact = " " * self.indent, self.fact
        if not fact.value:
            return f"{indent}# {self.head}: unknown: {fact.why}"
        line = f"{indent}{self.head:<12} {fact.value}"
        return f"{line:<{_WIDTH}} # {'' if fact.is_sure else '? '}{fact.why}" if fact.why else line


#: A line of a pattern: a setting, or its text.
Line: TypeAlias = "Setting | str"


def write_lines(lines: Iterable[Line]) -> str:
    """Return the text of a pattern of some lines."""
    return "".join(f"{line if isinstance(line, str) else line.text}\n" for line in lines)
