"""Merge documents: a file over the one that it extends, and its `set` lines."""

from __future__ import annotations

from collections.abc import Iterable

from dliosim.language.diagnostics import Diagnostic, Label, Mistake, collect, mistake, suggest_word
from dliosim.language.source import Span
from dliosim.language.syntax.ast import Document, PatternBlock


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
            collect(
                found,
                duplicate_mistake("parameter", name, param.place, base.params[name].place, hint).diagnostic,
            )
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
