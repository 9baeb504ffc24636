"""The lines of a block from several files and from -D, laid over each other once the parameters are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dliosim.language.diagnostics import Label, Mistake, mistake
from dliosim.language.settings.block_settings import Context, Settings, called
from dliosim.language.source import Span
from dliosim.language.syntax import vocabulary
from dliosim.language.syntax.ast import Block, Param, Setting, followed

MAX_CHAIN: Final = 32  # nouns made from each other


def inherited(context: Context, block: Block, chain: tuple[str, ...] = ()) -> Settings:
    """The lines of a noun over those of the one of its kind that it is made `from`."""
    lines = list(block.settings)
    if "from" in block.header:
        name, what = block.header["from"].only, called(block.kind)
        if name.text == block.name or name.text in chain:
            raise mistake("E105", f"{what} `{name.text}` is made from itself", name.span, "goes round in a circle")
        if len(chain) >= MAX_CHAIN:
            raise mistake("E105", f"more than {MAX_CHAIN} {what}s made from each other", name.span, "too long a chain")
        below = inherited(context, context.noun(name, block.kind), (*chain, block.name))
        block.broken |= below.block.broken
        lines = overlay(below.lines, lines)
    return Settings(context, block, lines)


def settle(context: Context) -> None:
    """Give every block of the document its settings; one given twice in a file, or by -D, is reported (E102).

    This comes after all overrides: what tells repeated settings apart may be the text of a parameter.
    """
    document = context.document
    for block in (*document.nouns.values(), *document.walk()):
        for layer in block.layers:
            block.settings = overlay(block.settings, _of_file(context, block, _named(layer, document.params)))
        block.settings = overlay(block.settings, _of_overrides(context, _named(block.overrides, document.params)))


def overlay(below: Iterable[Setting], above: Iterable[Setting]) -> list[Setting]:
    """The settings of two blocks merged: those above replace those below of the same head and first sub-name."""
    above = list(above)
    replaced = {(setting.head, setting.sub[:1]) for setting in above}
    if any((setting.head, setting.sub) == ("shuffle", ("off",)) for setting in above):
        replaced |= {("shuffle", ("samples",)), ("shuffle", ("files",))}
    elif any(setting.head == "shuffle" for setting in above):
        replaced.add(("shuffle", ("off",)))
    for one, other in (("size", "shape"), ("shape", "size")):  # each says all that the other does
        if (one, ()) in replaced:
            replaced.add((other, ()))
    return [setting for setting in below if (setting.head, setting.sub[:1]) not in replaced] + above


def twice_overridden(place: Span, first: Span) -> Mistake:
    """E102 for two -D of one thing."""
    name = " ".join(place.text.split())
    return mistake("E102", f"`-D {name}` is given twice", place, "again here", more=[Label(first, "first here")])


def _of_file(context: Context, block: Block, lines: Sequence[Setting]) -> list[Setting]:
    first: dict[tuple[str, ...], Setting] = {}
    for line in lines:
        other = first.setdefault((line.head, *line.sub), line)
        if other is not line:
            block.broken = True
            labels = [Label(other.place, "first here"), *_values(context, line, other)]
            name = " ".join((line.head, *line.sub))
            context.report(mistake("E102", f"setting `{name}` is given twice", line.place, "again here", more=labels))
    return list(first.values())


def _values(context: Context, *lines: Setting) -> Iterable[Label]:
    for line in lines:
        value = followed(context.document.params, line.phrase)
        if value is not line.phrase:
            yield Label(value, f"the value of `{line.phrase.text}`")


def _of_overrides(context: Context, lines: Sequence[Setting]) -> list[Setting]:
    first: dict[tuple[str, ...], Setting] = {}
    for line in lines:
        # What would replace the other if it stood above it.
        other = first.setdefault((line.head, *line.sub[:1]), line)
        if other is not line:
            context.report(twice_overridden(line.place, other.place))
    return list(first.values())


def _named(lines: Iterable[Setting], params: Mapping[str, Param]) -> list[Setting]:
    return [replace(line, sub=names_of(line.head, followed(params, line.phrase).text)) for line in lines]


def names_of(head: str, phrase: str) -> tuple[str, ...]:
    """What tells a line of a repeated setting from the others of its block; empty for one that stands alone."""
    words = re.findall(r'"[^"]*"|\S+', phrase)
    if head not in vocabulary.REPEATED or not words:
        return ()
    if head == "checkpoint":
        unit = words[-1].rstrip("s")
        return (words[0], unit if unit in ("step", "epoch", "end") else "time")
    if head == "shuffle":
        return ({"sample": "samples", "file": "files"}.get(words[0], words[0]),)
    return (words[0],)
