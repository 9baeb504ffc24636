"""Storages: compile a block that describes one into the dataclass of the model."""

from __future__ import annotations

from dliosim.language.settings.block_settings import Settings
from dliosim.model import StorageModel


def compile_storage(settings: Settings) -> StorageModel | None:
    """Return the storage of a block, or None if a mistake was reported."""
    context = settings.context
    before = len(context.found)
    settings.require(("servers",))
    if settings.block.broken:
        return None
    fields = settings.read_fields(StorageModel)
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
