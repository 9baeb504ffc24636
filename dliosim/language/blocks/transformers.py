"""Models: compile a block into the dataclass of a transformer's state."""

from __future__ import annotations

from typing import Final

from dliosim.language.blocks.storage_settings import unknown_word
from dliosim.language.settings.block_settings import Settings, make_diagnostic
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.model import OPTIMIZERS, TYPES, Transformer

MAX_LAYERS: Final = 10_000
MAX_WIDTH: Final = 1 << 20  # of `hidden`, and so of heads
MAX_FFN: Final = 1 << 22
MAX_VOCABULARY: Final = 1 << 24
MAX_SCALE: Final = 10**9


def compile_transformer(settings: Settings) -> Transformer | None:
    """Return the model of a block, or None where a mistake was reported."""
    context, scope = settings.context, settings.context.scope
    before = len(context.found)
    settings.require(*((head,) for head in ("layers", "hidden", "ffn", "heads", "vocabulary")))
    if settings.block.broken:
        return None

    def number(head: str, low: int, high: int, default: int) -> int:
        return settings.read(head, lambda node: scope.count(node.only_child, low, high), default)

    heads = number("heads", 1, MAX_WIDTH, 1)
    optimizer, state = settings.read("optimizer", _optimizer, ("adam", "fp32"))
    built = Transformer(
        name=settings.block.name,
        layers=number("layers", 1, MAX_LAYERS, 1),
        hidden=number("hidden", 1, MAX_WIDTH, 1),
        ffn=number("ffn", 1, MAX_FFN, 1),
        heads=heads,
        kv_heads=number("kv_heads", 1, MAX_WIDTH, heads),
        vocabulary=number("vocabulary", 1, MAX_VOCABULARY, 1),
        weights=settings.read("weights", lambda node: element_type(node.only_child), "bf16"),
        optimizer=optimizer,
        state=state,
        zero=number("zero", 0, 3, 1),
        scale=number("scale", 1, MAX_SCALE, 1),
    )
    if not any(found.is_error for found in context.found[before:]):
        _check_heads(settings, built)
    return None if any(found.is_error for found in context.found[before:]) else built


def element_type(word: SyntaxNode) -> str:
    """Return the name of an element type; E003 for an unknown one."""
    if word.text not in TYPES:
        raise unknown_word("element type", word, TYPES)
    return word.text


def _optimizer(node: SyntaxNode) -> tuple[str, str]:
    name = node.children[0]
    if name.text not in OPTIMIZERS:
        raise unknown_word("optimizer", name, OPTIMIZERS)
    return name.text, element_type(node.children[1]) if len(node.children) > 1 else "fp32"


def _check_heads(settings: Settings, built: Transformer) -> None:
    """Report E113 for more heads than `hidden`, or more `kv_heads` than heads."""
    for head, value, other, most in (
        ("heads", built.heads, "hidden", built.hidden),
        ("kv_heads", built.kv_heads, "heads", built.heads),
    ):
        if value > most:
            labels = [*settings.labels(head, f"at most {most}"), *settings.labels(other, f"`{other}`")]
            settings.context.found.append(make_diagnostic("E113", f"{value} `{head}` are more than `{other}`", labels))
