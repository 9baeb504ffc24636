"""Checkpoints: a block to the dataclass of the model."""

from __future__ import annotations

from typing import Literal, cast

from dliosim.language import vocabulary
from dliosim.language.accesses import access, with_access
from dliosim.language.diagnostics import Mistake, mistake
from dliosim.language.document import Block
from dliosim.language.parser import Node
from dliosim.language.paths import path_below_root
from dliosim.language.settings import Context, Settings
from dliosim.language.source import Span
from dliosim.model import Checkpoint, Part, Writers
from dliosim.model.dataset import MAX_TOTAL


def checkpoint_settings(context: Context, block: Block) -> Settings:
    """The lines of a checkpoint over those of the access it names."""
    name = block.header["with"].only if "with" in block.header else None
    return with_access(context, block, name, vocabulary.WRITING)


def checkpoint(settings: Settings, seed: int, ranks: int) -> Checkpoint | None:
    """The checkpoint of a block, or None where a mistake was reported."""
    context, scope = settings.context, settings.context.scope
    before = len(context.found)
    settings.require(("part",), ("path",))
    if settings.block.broken:
        return None
    if settings.read("async", lambda node: node.kind == "on", False):
        hint = "a checkpoint blocks; leave the line out"
        context.report(
            mistake(
                "E003",
                "`async on` is kept for a later version of the language",
                settings.place("async"),
                "not in version 1",
                hint=hint,
            )
        )
    built = Checkpoint(
        name=settings.block.name,
        seed=seed,
        parts=tuple(
            part
            for line in settings.all("part")
            if (part := settings.convert(line, lambda node: _part(settings, node), None))
        ),
        writers=settings.read("writers", lambda node: _writers(settings, node, ranks), Writers("file per rank")),
        access=access(settings, None),
        path=settings.read("path", path_below_root, "data"),
        root=settings.read("root", lambda node: node.only.text, "data"),
        fsync=settings.read("fsync", lambda node: node.kind == "on", True),
        keep=settings.read("keep", lambda node: None if node.kind == "all" else scope.count(node.only), None),
    )
    if any(found.is_error for found in context.found[before:]):
        return None
    try:
        check_saved(built, ranks, settings.place("part"))
    except Mistake as error:
        context.report(error)
        return None
    return built


def check_saved(checkpoint: Checkpoint, ranks: int, place: Span) -> None:
    """E113 at `place` where a checkpoint that `ranks` ranks write is too large for any file."""
    total = sum(part.size * (ranks if part.scope == "per rank" else 1) for part in checkpoint.parts)
    if total > MAX_TOTAL:
        message = f"checkpoint `{checkpoint.name}` of {ranks:_} ranks would have {total:.3g} B, over 2^62"
        raise mistake("E113", message, place, "too large")


def _part(settings: Settings, node: Node) -> Part | None:
    scope = "total" if node.kind == "total" else "per rank"
    return Part(
        node.children[0].text,
        settings.context.scope.size(node.children[1], 1),
        cast(Literal["total", "per rank"], scope),
    )


def _writers(settings: Settings, node: Node, ranks: int) -> Writers:
    scope = settings.context.scope
    if node.kind == "one_per":
        return Writers("one per", scope.count(node.only))
    if node.kind == "rank":
        rank = scope.count(node.only, 0)
        if rank >= ranks:
            raise mistake(
                "E209",
                f"rank {rank} does not exist",
                node.only.span,
                "the job has one rank, 0" if ranks == 1 else f"the job has {ranks} ranks, 0 to {ranks - 1}",
                hint="`writers rank 0` works for every number of ranks",
            )
        return Writers("rank", rank)
    return Writers("shared file" if node.kind == "shared_file" else "file per rank")
