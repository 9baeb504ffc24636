"""Storages: compile a block that describes one into the dataclass of the model."""

from __future__ import annotations

from functools import partial

from dliosim.language.diagnostics import join_hints, mistake, suggest_word
from dliosim.language.settings.block_settings import Settings
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.quantities import join_spans, range_mistake
from dliosim.model import StorageModel
from dliosim.model.storage import UNCERTAIN
from dliosim.units import RATIO


def compile_storage(settings: Settings) -> StorageModel | None:
    """Return the storage of a block, or None if a mistake was reported."""
    context = settings.context
    before = len(context.found)
    settings.require(("servers",))
    if settings.block.broken:
        return None
    fields = settings.read_fields(StorageModel, uncertain=partial(_read_shares, settings))
    if context.has_errors(before):
        return None
    built = StorageModel(name=settings.block.name, **fields)
    if built.stripe is not None and built.stripe.targets > built.servers.number:
        message = f"a file is spread over {built.stripe.targets} servers, but there are {built.servers.number}"
        settings.report("E113", message, "", ("stripe", "too many"), ("servers", "the servers"))
    if built.tail is not None and not built.latency:
        settings.report(
            "E211", "`tail` spreads latencies, and there is no `latency`", "add `latency 400 us`", ("tail", "of 0 s")
        )
    if built.step_tail is not None and not built.step_time:
        message = "`step tail` spreads `step time`, and there is none"
        settings.report("E211", message, "add `step time 2 ms`", ("step tail", "of 0 s"))
    return None if context.has_errors(before) else built


def _read_shares(settings: Settings, node: SyntaxNode) -> tuple[tuple[str, float], ...]:
    """Return the settings that are uncertain, each with a share of its value; E104, E102, E113."""
    shares: dict[str, float] = {}
    for one in node.children:
        *words, amount = one.children
        name, place = " ".join(word.text for word in words), join_spans(words[0].span, words[-1].span)
        given = [
            head for head in UNCERTAIN if (line := settings.find_line(head)) is not None and line.phrase.text != "off"
        ]
        if name not in given:
            hint = join_hints(suggest_word(name, given), f"values here: {', '.join(given)}")
            raise mistake("E104", f"`{name}` has no value that could be uncertain", place, "not given here", hint=hint)
        if name in shares:
            raise mistake("E102", f"`{name}` is uncertain twice", place, "again here", hint="leave one of them out")
        share = settings.context.scope.require_dimension(amount, RATIO)
        if not 0 < share.amount < 1:
            raise range_mistake(share, "above 0 %, below 100 %")
        shares[name] = float(share.amount)
    return tuple(shares.items())
