"""Checkpoints: compile a block into the dataclass of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from dliosim.language.blocks import parallelism
from dliosim.language.blocks.transformers import element_type
from dliosim.language.diagnostics import Label, mistake
from dliosim.language.settings.access import compile_access
from dliosim.language.settings.block_settings import CompileContext, Settings
from dliosim.language.settings.phrases import read_pace
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.language.values.quantities import MAX_SIZE
from dliosim.model import TYPES, Background, Checkpoint, Part, Split, Transformer, Writers
from dliosim.model import Scope as Held
from dliosim.model.transformer import parts_of


def compile_checkpoint(outer: Settings, seed: int, models: Mapping[str, Transformer | None]) -> Checkpoint | None:
    """Return the checkpoint of a block, or None where a mistake was reported."""
    context, job = outer.context, outer.context.scope.job
    before = len(context.found)
    outer.require(("part", "model"), ("path",))
    if outer.block.broken:
        return None
    named = outer.read("parallel", lambda node: parallelism.parse_axes(context.scope, node), None)
    if named is None and outer.find_line("parallel") is not None:
        return None
    parallel = (
        outer.read("parallel", lambda node: parallelism.fit_split(named, node, job.ranks), None) if named else None
    )
    split = named or Split(1, 1, job.ranks)
    scope = context.scope.narrow_to_split(split)
    settings = replace(outer, context=replace(context, scope=scope))
    folders = {"off": 0, "per_rank": 1, "per_node": job.ranks_per_node}
    fields = settings.read_fields(
        Checkpoint,
        writers=lambda node: _writers(settings, node),
        model=lambda node: _model(context, node, models),
        folder=lambda node: folders[node.kind],
        background=lambda node: node.kind == "on",
        partner=lambda node: _partner(scope, node),
    )
    fields["background"] = _background(settings, fields.get("background", False))
    access = compile_access(settings, None)
    parts = [
        settings.convert(line, lambda node: _part(scope, node, split), None) for line in settings.all_lines("part")
    ]
    # A mistake that was reported before, as in another checkpoint's line, is not reported again.
    if None in parts or context.has_errors(before) or ("model" in fields and fields["model"] is None):
        return None
    fields |= {"parts": tuple(parts), "access": access, "parallel": parallel}
    built = Checkpoint(**{"name": settings.block.name, "seed": seed, "writers": Writers("file per rank"), **fields})
    with context.reporting():
        _check_part_names(settings, built)
        head = next(head for head in ("parallel", "model", "part") if settings.find_line(head))
        parallelism.check_split(built, built.split(job.ranks), settings.setting_span(head))
        return built
    return None


def _model(context: CompileContext, node: SyntaxNode, models: Mapping[str, Transformer | None]) -> Transformer | None:
    context.find_noun(node.only_child, "model")
    return models.get(node.only_child.text)


def _check_part_names(settings: Settings, built: Checkpoint) -> None:
    """Raise E102 for a part with the name of one of the model's tensors.

    The name decides contents and file names, so it must be unique.
    """
    if built.model is None:
        return
    # Tensors of a layer begin with the number of the layer, and no part of a pattern can: one layer is enough.
    names = {part.name for part in parts_of(replace(built.model, layers=1), Split(1, 1, 1))}
    for line, part in zip(settings.all_lines("part"), built.parts, strict=True):
        if part.name in names:
            more = [Label(settings.setting_span("model"), "the model's own")]
            message = f"part `{part.name}` is also a tensor of model `{built.model.name}`"
            raise mistake("E102", message, line.phrase, "again here", more=more, hint="give it another name")


def _part(scope: Scope, node: SyntaxNode, split: Split) -> Part:
    name = node.children[0].text
    if node.kind != "elements":
        shared: dict[str, Held] = {"total": "total", "per_rank": "per rank", "whole": "whole"}
        stage = _stage(scope, node, split) if node.kind == "whole" else 0
        return Part(name, scope.size(node.children[1], 1), shared[node.kind], stage=stage)
    kinds = [child.kind for child in node.children]
    word = kinds.index("WORD")
    held, width = node.children[word + 1], TYPES[element_type(node.children[word])]
    first, *rest = (scope.count(child) for child in node.children[1:word])
    # A vector that is split by rows has one element in each row; any other vector is one row.
    rows, columns = (first, math.prod(rest)) if rest or held.kind == "rows" else (1, first)
    size = rows * columns * width
    if size > MAX_SIZE:
        raise mistake("E113", f"part `{name}` would have {size:.3g} B", node.span, f"at most {MAX_SIZE:.3g} B")
    return Part(name, size, cast(Held, held.kind), columns * width, width, _stage(scope, node, split))


def _stage(scope: Scope, node: SyntaxNode, split: Split) -> int:
    last = split.pipeline - 1
    named = node.find("stage")
    if named is None:
        if last:
            message = f"part `{node.children[0].text}` needs its pipeline stage"
            hint = f"write `part {node.text} on stage 0`"
            raise mistake("E003", message, node.span.end_span(), f"expected `on stage N`, of 0 to {last}", hint=hint)
        return 0
    stage = scope.count(named.only_child, 0)
    if stage > last:
        label = f"stages are 0 to {last}" if last else "there is stage 0 alone"
        hint = "" if last else "`parallel pipeline N` makes others"
        raise mistake("E218", f"pipeline stage {stage} does not exist", named.only_child.span, label, hint=hint)
    return stage


def _writers(settings: Settings, node: SyntaxNode) -> Writers:
    scope, job = settings.context.scope, settings.context.scope.job
    if node.kind == "one_per_node":
        return Writers("one per", job.ranks_per_node)
    if node.kind == "one_per":
        return Writers("one per", scope.count(node.only_child))
    if node.kind == "rank":
        rank = scope.count(node.only_child, 0)
        if rank >= job.ranks:
            raise mistake(
                "E209",
                f"rank {rank} does not exist",
                node.only_child.span,
                "the job has one rank, 0" if job.ranks == 1 else f"the job has {job.ranks} ranks, 0 to {job.ranks - 1}",
                hint="`writers rank 0` works for every number of ranks",
            )
        return Writers("rank", rank)
    return Writers("shared file" if node.kind == "shared_file" else "file per rank")


def _background(settings: Settings, is_on: bool) -> Background | None:
    """Return how a save continues in the background; E211 for `staging` or `in flight` without `async on`."""
    fields = settings.read_fields(Background, staging=partial(_staging, settings.context.scope))
    if is_on:
        return Background(**fields)
    for head, reason in (
        ("staging", "how fast a save is copied before it continues in the background"),
        ("in flight", "how many saves continue in the background"),
    ):
        if settings.find_line(head) is not None:
            hint = f"add `async on`, or leave `{head}` out"
            blocks = ("async", "but saving blocks", "saving blocks")
            settings.report("E211", f"`{head}` without `async on`", hint, (head, reason), blocks)
    return None


def _staging(scope: Scope, node: SyntaxNode) -> dict[str, Any]:
    pace = read_pace(scope, node.only_child) if node.children else None
    return {"staging": pace, "simulated": node.kind == "simulated"}


def _partner(scope: Scope, node: SyntaxNode) -> int:
    distance, ranks = scope.count(node.only_child), scope.job.ranks
    if ranks == 1:
        label, hint = "there is no other rank to keep a copy", "leave the line out, or use at least 2 ranks"
        raise mistake("E209", "`partner` in a job of one rank", node.span, label, hint=hint)
    if distance >= ranks:
        label = f"the job has {ranks} ranks: at most {ranks - 1}"
        raise mistake("E209", f"no rank is {distance} ranks away", node.only_child.span, label)
    return distance
