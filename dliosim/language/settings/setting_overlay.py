"""Settings of a block from several files and from `-D`, merged once the parameters are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dliosim.language.diagnostics import Attempt, Label, Mistake, mistake
from dliosim.language.settings.block_settings import CompileContext, Settings, kind_name
from dliosim.language.source import COMMAND_LINE, MAX_LINE_LENGTH, SourceText, Span
from dliosim.language.syntax import declarations
from dliosim.language.syntax.ast import Document, Param, PatternBlock, Setting, follow_reference
from dliosim.language.values.choices import Choices

MAX_CHAIN: Final = 32  # nouns, each made from the next one


def inherit_settings(context: CompileContext, block: PatternBlock, chain: tuple[str, ...] = ()) -> Settings:
    """Return the lines of a noun, merged over the lines of the noun in its `from`; E105 for a circle."""
    lines = list(block.settings)
    if "from" in block.header:
        name, what = block.header["from"].only_child, kind_name(block.kind)
        if name.text == block.name or name.text in chain:
            text, hint = f"{what} `{name.text}` is made from itself", f"leave `from {name.text}` out"
            raise mistake("E105", text, name.span, "goes round in a circle", hint=hint)
        if len(chain) >= MAX_CHAIN:
            raise mistake("E105", f"more than {MAX_CHAIN} {what}s made from each other", name.span, "too long a chain")
        below = inherit_settings(context, context.find_noun(name, block.kind), (*chain, block.name))
        block.broken |= below.block.broken
        lines = overlay(below.lines, lines)
    return Settings(context, block, lines)


def merge_layers(context: CompileContext) -> None:
    """Give every block of the document its settings; report E102 for one given twice in a file, or by `-D`.

    This must follow all overrides: the text of a parameter may decide which repeated setting a line is.
    """
    document = context.document
    for block in (*document.nouns.values(), *document.walk_verbs()):
        for layer in block.layers:
            block.settings = overlay(block.settings, _file_settings(context, block, layer))
        block.settings = overlay(block.settings, _override_settings(context, block.overrides))


def overlay(below: Iterable[Setting], above: Iterable[Setting]) -> list[Setting]:
    """Return the settings of two blocks, merged.

    Those of `above` replace those of `below` with the same head and first sub-name.
    """
    above = list(above)
    replaced = {(setting.head, setting.sub[:1]) for setting in above}
    given, off = {setting.head for setting in above}, {setting.head for setting in above if setting.is_off}
    whole = (("size", ()), ("shape", ()), ("columns", ()))  # each one gives the whole size
    if replaced & {*whole}:
        replaced |= {*whole}
    return [
        setting
        for setting in below
        if (setting.head, setting.sub[:1]) not in replaced
        and setting.head not in off
        and not (setting.is_off and setting.head in given)
    ] + above


def duplicate_override(place: Span, first: Span) -> Mistake:
    """Return the E102 for two `-D` with the same target."""
    name = " ".join(place.text.split())
    more = [Label(first, "first here")]
    return mistake("E102", f"`-D {name}` is given twice", place, "again here", more=more, hint="leave one of them out")


def _file_settings(context: CompileContext, block: PatternBlock, lines: Sequence[Setting]) -> list[Setting]:
    first: dict[tuple[str, ...], Setting] = {}
    for line in _name_lines(lines, context.document.params):
        other = first.setdefault((line.head, *line.sub), line)
        if other is not line:
            block.broken = True
            labels = [Label(other.place, "first here"), *_value_labels(context, line, other)]
            name = " ".join((line.head, *line.sub))
            message, hint = f"setting `{name}` is given twice", "leave one of the two lines out"
            context.report(mistake("E102", message, line.place, "again here", more=labels, hint=hint))
    return list(first.values())


def _value_labels(context: CompileContext, *lines: Setting) -> Iterable[Label]:
    for line in lines:
        value = follow_reference(context.document.params, line.phrase)
        if value is not line.phrase:
            yield Label(value, f"the value of `{line.phrase.text}`")


def _override_settings(context: CompileContext, lines: Sequence[Setting]) -> list[Setting]:
    first: dict[tuple[str, ...], Setting] = {}
    for line in _name_lines(lines, context.document.params):
        # Two overrides are the same where `overlay` would let one replace the other.
        other = first.setdefault((line.head, *line.sub[:1]), line)
        if other is not line:
            context.report(duplicate_override(line.place, other.place))
    return list(first.values())


def _name_lines(lines: Iterable[Setting], params: Mapping[str, Param]) -> list[Setting]:
    return [replace(line, sub=sub_names(line.head, follow_reference(params, line.phrase).text)) for line in lines]


def sub_names(head: str, phrase: str) -> tuple[str, ...]:
    """Return the words that identify a line among the lines of a repeated setting; empty for any other setting."""
    words = re.findall(r'"[^"]*"|\S+', phrase)
    if head not in declarations.REPEATED or not words:
        return ()
    if head == "checkpoint" and words != ["off"]:
        unit = words[-1].rstrip("s")
        return (words[0], unit if unit in ("step", "epoch", "end") else "time")
    if head == "shuffle":
        return ({"sample": "samples", "file": "files"}.get(words[0], words[0]),)
    return (words[0],)


def apply_overrides(context: CompileContext, overrides: Sequence[tuple[str, str]]) -> None:
    """Put every override in its place in the document, then merge the settings of all blocks.

    Reports E104 for an override that names nothing, and E102 for one that is given twice.
    """
    given: dict[str, Span] = {}
    for name, value in overrides:
        source = SourceText(COMMAND_LINE, f"-D {name}={value}")
        place = source.span(3, 3 + len(name))
        phrase = source.span(4 + len(name), len(source.text)).trim()
        with context.reporting():
            if len(source.text) > MAX_LINE_LENGTH or not source.text.isprintable():
                raise mistake("E003", "an override that is too long, or cannot be printed", source.span(0, 2))
            _apply_override(context.document, name.strip(), place, phrase, given)
    _choose_values(context)
    merge_layers(context)


def _choose_values(context: CompileContext) -> None:
    """Give parameters with a table the value for the word that counts; report each wrong word once."""
    choices, wrong = Choices(context.scope), set[Span]()
    for param in context.document.params.values():
        try:
            choices.choose(param)
        except Mistake as error:
            place = error.diagnostic.labels[0].span
            if place not in wrong:
                context.report(error)
            wrong.add(place)
            context.scope.broken.add(param.name)


def _apply_override(document: Document, name: str, place: Span, phrase: Span, given: dict[str, Span]) -> None:
    """Put one override in its place; E102 for a parameter or seed given twice, E104 for an unknown name.

    Settings given twice are found in `merge_layers`: a block may have two names (`prepare` and `prepare D`).
    """
    block_name, dot, head = (" ".join(part.split()) for part in name.partition("."))
    if dot:
        _override_setting(document, block_name, Setting(head, place, phrase))
    elif name in given:
        raise duplicate_override(place, given[name])
    elif name in document.params:
        given[name] = place
        document.params[name].value = phrase
    elif name == "seed":
        given[name] = place
        document.seed = Setting("seed", place, phrase)
    else:
        hint = f"parameters here: {', '.join(sorted(document.params)) or 'none'}"
        raise _unknown_override(name, phrase, place, "no parameter of this name", hint)


def _override_setting(document: Document, name: str, setting: Setting) -> None:
    named = blocks_by_name(document)
    blocks = named.get(name, [])
    target = f"{name}.{setting.head}"
    if not blocks:
        hint = f"blocks here: {', '.join(sorted(named)) or 'none'}"
        raise _unknown_override(target, setting.phrase, setting.place, "no block of this name", hint)
    taking = [block for block in blocks if setting.head in declarations.SETTINGS[block.kind]]
    if not taking:
        hint = f"settings of `{name}`: {', '.join(sorted(declarations.SETTINGS[blocks[0].kind]))}"
        raise _unknown_override(target, setting.phrase, setting.place, "no setting of this name", hint)
    if len({block.kind for block in taking}) > 1:
        kinds = " and ".join(sorted(f"a {block.kind}" for block in taking))
        hint = "give one of them another name"
        raise mistake("E104", f"`-D {target}` could mean {kinds}", setting.place, "two blocks", hint=hint)
    for block in taking:
        block.overrides.append(setting)


def _unknown_override(name: str, value: Span, place: Span, label: str, listed: str) -> Mistake:
    """Return the E104 for an override that names nothing, with the names there are."""
    attempt = Attempt("-D", "", value)
    return mistake("E104", f"`-D {name}` names nothing", place, label, hint=listed, attempt=attempt)


def blocks_by_name(document: Document) -> dict[str, list[PatternBlock]]:
    """Return the blocks that each name of an override means."""
    named: dict[str, list[PatternBlock]] = {}
    for block in (*document.nouns.values(), *document.walk_verbs()):
        if block.kind in ("prepare", "convert", "stage", "restore"):
            named.setdefault(block.kind, []).append(block)
            named.setdefault(f"{block.kind} {block.name}", []).append(block)
        elif block.kind in declarations.SETTINGS:
            named.setdefault(block.name, []).append(block)
    return named
