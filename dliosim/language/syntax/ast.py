"""A document: the blocks and parameters of a pattern with their settings, nothing evaluated yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dliosim.language.source import SourceText, Span
from dliosim.language.syntax import vocabulary
from dliosim.language.syntax.parser import SyntaxNode

MAX_CHAIN: Final = 32  # parameters that refer to parameters


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of a block. `sub` tells repeated ones apart (`layers.settle` finds it); an override replaces those of
    the same first member."""

    head: str
    place: Span
    phrase: Span
    sub: tuple[str, ...] = ()


@dataclass(slots=True)
class PatternBlock:
    """A noun or a verb with its settings; `header` has what stands on its first line, by kind of node.

    `layers` has the lines of each file that says something of it, those of the file that extends the others last, and
    `overrides` those of -D. `settings` are the lines that count, once `layers.settle` has laid them over each other.
    """

    kind: str
    name: str
    place: Span
    header: dict[str, SyntaxNode]
    layers: list[list[Setting]] = field(default_factory=lambda: [[]])
    overrides: list[Setting] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    body: list[PatternBlock] = field(default_factory=list)
    own: bool = True
    broken: bool = False
    """Whether a line was left out for a mistake, so that what seems to be missing may be there."""

    @property
    def title(self) -> str:
        """How messages call it: `dataset universe`, `train`."""
        return self.kind if self.name in ("", self.kind) else f"{self.kind} {self.name}"


@dataclass(slots=True)
class Param:
    """A parameter: its default, the text that counts, and the domain; `own` where the main file defines it."""

    name: str
    place: Span
    default: Span
    value: Span
    domain: SyntaxNode | None
    own: bool = True


@dataclass(slots=True)
class Document:
    """All that a file says, with what it includes and extends merged in; nothing is evaluated yet."""

    source: SourceText
    workload: SyntaxNode | None = None
    seed: Setting | None = None
    params: dict[str, Param] = field(default_factory=dict)
    nouns: dict[str, PatternBlock] = field(default_factory=dict)
    verbs: list[PatternBlock] = field(default_factory=list)
    expects: list[PatternBlock] = field(default_factory=list)
    sets: list[tuple[Span, Span]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Parameters whose definition has a mistake: to miss them later is no second one."""
    incomplete: bool = False
    """Whether a file could not be read to its end, so that names may be missing without fault."""

    def walk_verbs(self) -> Iterator[PatternBlock]:
        """Every verb, those inside others too."""
        yield from _walk(self.verbs)

    def loops(self) -> Iterator[PatternBlock]:
        """Every loop, evaluations too."""
        return (block for block in self.walk_verbs() if block.kind in vocabulary.LOOPS)


def _walk(blocks: Iterable[PatternBlock]) -> Iterator[PatternBlock]:
    for block in blocks:
        yield block
        yield from _walk(block.body)


def follow_reference(params: Mapping[str, Param], span: Span) -> Span:
    """The text that `$name` alone stands for in the end; the place itself where it is anything else."""
    for _ in range(MAX_CHAIN):
        param = params.get(span.text[1:]) if span.text.startswith("$") else None
        if param is None:
            break
        span = param.value
    return span


def split_head(span: Span, heads: Iterable[str]) -> tuple[str, Span, Span] | None:
    """The head that a statement begins with, its place, and the place of the rest; None where it is no known one."""
    for head in sorted(heads, key=len, reverse=True):
        found = re.match(r"\s+".join(head.split()) + r"(?![\w-])", span.text)
        if found:
            cut = span.start + found.end()
            return head, Span(span.source, span.start, cut), Span(span.source, cut, span.end).trim()
    return None


def first_word(span: Span) -> Span:
    """The place of the first word of a statement."""
    found = re.match(r"[\w.-]+|\S", span.text)
    return Span(span.source, span.start, span.start + (found.end() if found else 0))
