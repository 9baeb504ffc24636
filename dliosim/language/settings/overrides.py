"""`-D name=value` and `-D block.setting=phrase` applied to a document."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.language.diagnostics import Mistake, did_you_mean, hints, mistake
from dliosim.language.settings.block_settings import Context
from dliosim.language.settings.setting_overlay import settle, twice_overridden
from dliosim.language.source import COMMAND_LINE, MAX_LINE_LENGTH, Source, Span
from dliosim.language.syntax import vocabulary
from dliosim.language.syntax.ast import Block, Document, Setting


def apply(context: Context, overrides: Sequence[tuple[str, str]]) -> None:
    """Put every override in its place in the document, and give its blocks their settings; what names nothing, or is
    given twice, is reported."""
    given: dict[str, Span] = {}
    for name, value in overrides:
        source = Source(COMMAND_LINE, f"-D {name}={value}")
        place = source.span(3, 3 + len(name))
        phrase = source.span(4 + len(name), len(source.text)).stripped()
        try:
            if len(source.text) > MAX_LINE_LENGTH or not source.text.isprintable():
                raise mistake(
                    "E003",
                    "an override that is too long, or cannot be printed",
                    source.span(0, 2),
                )
            _apply(context.document, name.strip(), place, phrase, given)
        except Mistake as error:
            context.report(error)
    settle(context)


def _apply(document: Document, name: str, place: Span, phrase: Span, given: dict[str, Span]) -> None:
    """Settings are counted where they land: a block may have two names (`prepare` and `prepare D`)."""
    block_name, dot, head = (" ".join(part.split()) for part in name.partition("."))
    if dot:
        _override_setting(document, block_name, Setting(head, place, phrase))
    elif name in given:
        raise twice_overridden(place, given[name])
    elif name in document.params:
        given[name] = place
        document.params[name].value = phrase
    elif name == "seed":
        given[name] = place
        document.seed = Setting("seed", place, phrase)
    else:
        known = [*document.params, "seed"]
        hint = hints(did_you_mean(name, known), f"parameters here: {', '.join(sorted(document.params)) or 'none'}")
        raise mistake("E104", f"`-D {name}` names nothing", place, "no parameter of this name", hint=hint)


def _override_setting(document: Document, name: str, setting: Setting) -> None:
    named = _blocks(document)
    blocks = named.get(name, [])
    if not blocks:
        hint = hints(did_you_mean(name, named), f"blocks here: {', '.join(sorted(named)) or 'none'}")
        raise mistake(
            "E104", f"`-D {name}.{setting.head}` names nothing", setting.place, "no block of this name", hint=hint
        )
    taking = [block for block in blocks if setting.head in vocabulary.SETTINGS[block.kind]]
    if not taking:
        known = vocabulary.SETTINGS[blocks[0].kind]
        hint = hints(did_you_mean(setting.head, known), f"settings of `{name}`: {', '.join(sorted(known))}")
        raise mistake(
            "E104", f"`-D {name}.{setting.head}` names nothing", setting.place, "no setting of this name", hint=hint
        )
    if len({block.kind for block in taking}) > 1:
        kinds = " and ".join(sorted(f"a {block.kind}" for block in taking))
        hint = "give one of them another name"
        raise mistake("E104", f"`-D {name}.{setting.head}` could mean {kinds}", setting.place, "two blocks", hint=hint)
    for block in taking:
        block.overrides.append(setting)


def _blocks(document: Document) -> dict[str, list[Block]]:
    named: dict[str, list[Block]] = {}
    for block in (*document.nouns.values(), *document.walk()):
        if block.kind in ("prepare", "restore"):
            named.setdefault(block.kind, []).append(block)
            named.setdefault(f"{block.kind} {block.name}", []).append(block)
        elif block.kind in vocabulary.SETTINGS:
            named.setdefault(block.name, []).append(block)
    return named
