"""Document: the blocks and parameters of a pattern with their settings; one is merged over that which it extends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dliosim.language.diagnostics import Diagnostic, Label, Mistake, collect, mistake, suggest_word
from dliosim.language.source import SourceText, Span
from dliosim.language.syntax import declarations
from dliosim.language.syntax.parser import SyntaxNode

MAX_CHAIN: Final = 32  # parameters that refer to parameters


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of a block."""

    #: name of the setting
    head: str
    #: where the name is
    place: Span
    #: where the value is
    phrase: Span
    #: identifies a line of a repeated setting (see `sub_names`); an override replaces lines with the same first member
    sub: tuple[str, ...] = ()

    @property
    def is_off(self) -> bool:
        """True if `off` stands in place of the lines of a repeated setting."""
        return self.head in ("shuffle", "checkpoint") and self.sub == ("off",)


@dataclass(slots=True)
class PatternBlock:
    """A noun or a verb with its settings."""

    #: keyword: `dataset`, `train`
    kind: str
    #: name in the pattern; may be empty
    name: str
    #: where messages point for the whole block
    place: Span
    #: the nodes of its first line, by kind
    header: dict[str, SyntaxNode]
    #: lines from each file that has this block; those of the file that extends the others come last
    layers: list[list[Setting]] = field(default_factory=lambda: [[]])
    #: lines of `-D`
    overrides: list[Setting] = field(default_factory=list)
    #: lines that count, once `merge_layers` has merged layers and overrides
    settings: list[Setting] = field(default_factory=list)
    #: blocks inside it: evaluations of a loop, verbs of a `repeat`
    body: list[PatternBlock] = field(default_factory=list)
    #: False if an included or extended file defines it; unused ones of these get no warning
    own: bool = True
    #: True if a line was left out for a mistake; a setting that seems to be missing may be that line
    broken: bool = False

    @property
    def title(self) -> str:
        """Return the title for messages: `dataset universe`, `train`."""
        return self.kind if self.name in ("", self.kind) else f"{self.kind} {self.name}"


@dataclass(slots=True)
class Param:
    """A parameter of a pattern."""

    #: name without `$`
    name: str
    #: where it is defined
    place: Span
    #: the value in its definition
    default: Span
    #: the value that counts, after `set` and `-D`
    value: Span
    #: values that it may have; None for any
    domain: SyntaxNode | None
    #: True if the main file defines it
    own: bool = True


@dataclass(slots=True)
class Document:
    """The content of a file, merged with the files that it includes and extends; nothing is evaluated yet."""

    #: text of the main file
    source: SourceText
    #: the `workload` line
    workload: SyntaxNode | None = None
    #: the `seed` line
    seed: Setting | None = None
    #: by name
    params: dict[str, Param] = field(default_factory=dict)
    #: data sets, models, checkpoints and access methods, by name
    nouns: dict[str, PatternBlock] = field(default_factory=dict)
    #: in order
    verbs: list[PatternBlock] = field(default_factory=list)
    #: `expect` lines
    expects: list[PatternBlock] = field(default_factory=list)
    #: name and value of each `set` line that is not applied yet
    sets: list[tuple[Span, Span]] = field(default_factory=list)
    #: parameters whose definition has a mistake; using them is not a second mistake
    broken: set[str] = field(default_factory=set)
    #: True if a file could not be read to its end; a missing name may be defined there
    incomplete: bool = False

    def walk_verbs(self) -> Iterator[PatternBlock]:
        """Yield every verb, those inside other verbs included."""
        yield from _walk(self.verbs)

    def loops(self) -> Iterator[PatternBlock]:
        """Return every loop, evaluations included."""
        return (block for block in self.walk_verbs() if block.kind in declarations.LOOPS)


def _walk(blocks: Iterable[PatternBlock]) -> Iterator[PatternBlock]:
    for block in blocks:
        yield block
        yield from _walk(block.body)


def follow_reference(params: Mapping[str, Param], span: Span) -> Span:
    """Return the text that `$name` stands for, through all references; return any other span unchanged."""
    for _ in range(MAX_CHAIN):
        param = params.get(span.text[1:]) if span.text.startswith("$") else None
        if param is None:
            break
        span = param.value
    return span


def split_head(span: Span, heads: Iterable[str]) -> tuple[str, Span, Span] | None:
    """Return the known head at the beginning of a statement, its place, and the place of the rest.

    None if the statement begins with no known head.
    """
    for head in sorted(heads, key=len, reverse=True):
        found = re.match(r"\s+".join(head.split()) + r"(?![\w-])", span.text)
        if found:
            cut = span.start + found.end()
            return head, Span(span.source, span.start, cut), Span(span.source, cut, span.end).trim()
    return None


def first_word(span: Span) -> Span:
    """Return the place of the first word of a statement."""
    found = re.match(r"[\w.-]+|\S", span.text)
    return Span(span.source, span.start, span.start + (found.end() if found else 0))


def merge_documents(base: Document | None, own: Document, found: list[Diagnostic]) -> Document:
    """Return a document merged over the one that it extends, its `set` lines applied; mistakes are collected."""
    if base is not None:
        _merge_into(base, own, found)
        base.source, base.sets = own.source, own.sets
        base.incomplete |= own.incomplete
        base.broken |= own.broken
        own = base
    placed: dict[str, Span] = {}
    for name, value in own.sets:
        param = own.params.get(name.text)
        if param is None and (own.incomplete or name.text in own.broken):
            continue
        if param is None:
            hint = suggest_word(name.text, own.params)
            collect(found, mistake("E101", f"unknown parameter `{name.text}`", name, hint=hint).diagnostic)
        elif name.text in placed:
            collect(found, duplicate_mistake("set", name.text, name, placed[name.text]).diagnostic)
        elif param.own and param.place.source is own.source:
            error = mistake(
                "E102",
                f"`{name.text}` is a parameter of this file",
                name,
                "set again",
                more=[Label(param.place, "defined here")],
                hint=f"write `param {name.text} = {value.text}` there, and leave this line out",
            )
            collect(found, error.diagnostic)
        else:
            param.value = value
            placed[name.text] = name
    own.sets = []
    return own


def _merge_into(base: Document, own: Document, found: list[Diagnostic]) -> None:
    base.workload, base.seed = own.workload or base.workload, own.seed or base.seed
    for name, param in own.params.items():
        if name in base.params:
            hint = f"`set {name} = …` gives it another value"
            collect(found, duplicate_mistake("parameter", name, param.place, base.params[name].place, hint).diagnostic)
        base.params.setdefault(name, param)
    for name, noun in own.nouns.items():
        below = base.nouns.setdefault(name, noun)
        if below is not noun and below.kind != noun.kind:
            collect(found, duplicate_mistake(noun.kind, name, noun.place, below.place).diagnostic)
        elif below is not noun:
            _merge_block(below, noun)
    _name_expected_loops(base.expects, base)
    for verb in own.verbs:
        same = (block for block in base.walk_verbs() if (block.kind, block.name) == (verb.kind, verb.name))
        match = next(same, None) if verb.name else None
        if match is None or verb.kind in ("save", "restore"):
            base.verbs.append(verb)
        else:
            _merge_block(match, verb)
    _name_expected_loops(own.expects, base)
    replaced = {expect.name for expect in own.expects}
    base.expects = [expect for expect in base.expects if expect.name not in replaced] + own.expects


def _name_expected_loops(expects: Iterable[PatternBlock], document: Document) -> None:
    """Name the loop of `expect` lines without one, if there is only one loop.

    So they are the same as those that name that loop.
    """
    loops = [loop.name for loop in document.loops()]
    for expect in expects:
        if expect.name.endswith(" ") and len(loops) == 1:
            expect.name += loops[0]


def _merge_block(below: PatternBlock, above: PatternBlock) -> None:
    if above.kind == "evaluate":
        # `every epoch` has no number, but it replaces the number of the block below.
        below.header.pop("value", None)
    below.header.update(above.header)
    below.layers += above.layers
    below.broken |= above.broken
    for block in above.body:
        match = next((inner for inner in below.body if (inner.kind, inner.name) == (block.kind, block.name)), None)
        if match is None or not block.name:
            below.body.append(block)
        else:
            _merge_block(match, block)


def duplicate_mistake(what: str, name: str, here: Span, first: Span, hint: str = "") -> Mistake:
    """Return the E102 for a name that is given twice."""
    more, alone = [Label(first, "first here")], what in ("setting", "statement", "set")
    hint = hint or ("leave one of the two lines out" if alone else "give one of the two another name, or leave it out")
    return mistake("E102", f"{what} `{name}` is given twice", here, "again here", more=more, hint=hint)
