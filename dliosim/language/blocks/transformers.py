"""Models: compile a block into the dataclass of a transformer's state."""

from __future__ import annotations

from dliosim.language.blocks.storage_settings import unknown_word
from dliosim.language.settings.block_settings import Settings
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.model import OPTIMIZERS, TYPES, Transformer


def compile_transformer(settings: Settings) -> Transformer | None:
    """Return the model of a block, or None where a mistake was reported."""
    context = settings.context
    before = len(context.found)
    settings.require(*((head,) for head in ("layers", "hidden", "ffn", "heads", "vocabulary")))
    if settings.block.broken:
        return None
    fields = settings.read_fields(Transformer, weights=lambda node: element_type(node.only_child), optimizer=_optimizer)
    if context.has_errors(before):
        return None
    built = Transformer(name=settings.block.name, **{"kv_heads": fields["heads"], **fields})
    _check_heads(settings, built)
    return None if context.has_errors(before) else built


def element_type(word: SyntaxNode) -> str:
    """Return the name of an element type; E003 for an unknown one."""
    if word.text not in TYPES:
        raise unknown_word("element type", word, TYPES)
    return word.text


def _optimizer(node: SyntaxNode) -> dict[str, str]:
    name = node.children[0]
    if name.text not in OPTIMIZERS:
        raise unknown_word("optimizer", name, OPTIMIZERS)
    state = element_type(node.children[1]) if len(node.children) > 1 else "fp32"
    return {"optimizer": name.text, "state": state}


def _check_heads(settings: Settings, built: Transformer) -> None:
    """Report E113 for more heads than `hidden`, or more `kv_heads` than heads."""
    for head, value, other, most in (
        ("heads", built.heads, "hidden", built.hidden),
        ("kv_heads", built.kv_heads, "heads", built.heads),
    ):
        if value > most:
            message = f"{value} `{head}` are more than `{other}`"
            settings.report("E113", message, "", (head, f"at most {most}"), (other, f"`{other}`"))
