"""Checkpoints, models and how ranks split them: compile a block into the dataclass of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from dliosim.language.blocks.storage_settings import require_word
from dliosim.language.diagnostics import Label, mistake
from dliosim.language.settings.access import compile_access
from dliosim.language.settings.block_settings import CompileContext, Settings
from dliosim.language.settings.phrases import read_pace
from dliosim.language.source import Span
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import OF_SPLIT, Scope
from dliosim.language.values.quantities import MAX_SIZE
from dliosim.model import OPTIMIZERS, TYPES, Background, Checkpoint, Part, Split, Transformer, Writers
from dliosim.model import Scope as Held
from dliosim.model.dataset import MAX_TOTAL
from dliosim.model.job import MAX_RANKS
from dliosim.model.transformer import parts_of
from dliosim.readable import count


def compile_transformer(settings: Settings) -> Transformer | None:
    """Return the model of a block, or None if a mistake was reported."""
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
    return require_word("element type", word, TYPES)


def _optimizer(node: SyntaxNode) -> dict[str, str]:
    name = require_word("optimizer", node.children[0], OPTIMIZERS)
    state = element_type(node.children[1]) if len(node.children) > 1 else "fp32"
    return {"optimizer": name, "state": state}


def _check_heads(settings: Settings, built: Transformer) -> None:
    """Report E113 for more heads than `hidden`, or more `kv_heads` than heads."""
    for head, value, other, most in (
        ("heads", built.heads, "hidden", built.hidden),
        ("kv_heads", built.kv_heads, "heads", built.heads),
    ):
        if value > most:
            message = f"{value} `{head}` are more than `{other}`"
            settings.report("E113", message, "", (head, f"at most {most}"), (other, f"`{other}`"))


def compile_checkpoint(outer: Settings, seed: int, models: Mapping[str, Transformer | None]) -> Checkpoint | None:
    """Return the checkpoint of a block, or None if a mistake was reported."""
    context, job = outer.context, outer.context.scope.job
    before = len(context.found)
    outer.require(("part", "model"), ("path",))
    if outer.block.broken:
        return None
    named = outer.read("parallel", lambda node: parse_axes(context.scope, node), None)
    if named is None and outer.find_line("parallel") is not None:
        return None
    parallel = outer.read("parallel", lambda node: fit_split(named, node, job.ranks), None) if named else None
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
        check_split(built, built.split(job.ranks), settings.setting_span(head))
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


#: Parts of a checkpoint, the tensors of its model included.
MAX_PARTS: Final = 1 << 17


def parse_axes(scope: Scope, node: SyntaxNode) -> Split:
    """Return the split that a phrase names, with all of its ranks; E113 for more than MAX_RANKS ranks."""
    tensor, pipeline, data = (
        scope.count(found.only_child, 1, MAX_RANKS) if (found := node.find(name)) else 1 for name in OF_SPLIT
    )
    order = node.find("rank_order")
    is_other = order is not None and order.find("TP_PP_DP") is not None and pipeline > 1 and data > 1
    split = Split(tensor, pipeline, data, order="tp-pp-dp" if is_other else "tp-dp-pp")
    if split.ranks > MAX_RANKS:
        raise mistake("E113", f"a split over {split.ranks:_} ranks", node.span, f"at most {MAX_RANKS:_} ranks")
    return split


def fit_split(split: Split, node: SyntaxNode, ranks: int) -> Split:
    """Return the split of the phrase `node` for a job of `ranks` ranks; E217 if the numbers differ.

    With `subset` the split may have more ranks than the job.
    """
    subset = node.find("SUBSET") is not None
    if split.ranks == ranks:
        return split
    if subset and split.ranks > ranks:
        return replace(split, played=ranks)
    each = split.tensor * split.pipeline
    fewer = ranks // each
    if ranks % each == 0:
        hint = f"use `data {fewer}`"
    else:
        near = (data for data in (fewer, fewer + 1) if data)
        hint = ", ".join(f"`data {data}` is for {count(each * data, 'rank')}" for data in near)
    if split.ranks > ranks and not subset:
        hint += f"; or end the line with `subset`: then the first {ranks} of the {split.ranks:_} take part"
    raise mistake(
        "E217",
        f"a split over {count(split.ranks, 'rank')} in a job of {ranks}",
        node.span,
        f"{split.tensor} x {split.pipeline} x {split.data} = {count(split.ranks, 'rank')}",
        hint=hint,
    )


def parse_written_by(scope: Scope, node: SyntaxNode) -> Split:
    """Return the split of `written by`; `subset N` is the number of its ranks that took part."""
    ranks = node.find("ranks")
    if ranks is not None:
        return Split(1, 1, scope.count(ranks.only_child, 1, MAX_RANKS))
    split = parse_axes(scope, node)
    if node.find("SUBSET") is None:
        return split
    played = scope.count(node.children[-1], 1, split.ranks)
    return replace(split, played=played if played < split.ranks else 0)


def measure_model(model: Transformer) -> tuple[int, int]:
    """Return the number of parts of a model, and their bytes.

    All layers have equal sizes, so models of one and of two layers give the figures of any number.
    """
    one, two = (parts_of(replace(model, layers=layers), Split(1, 1, 1)) for layers in (1, 2))
    more = model.layers - 1
    sizes = [sum(part.size for part in parts) for parts in (one, two)]
    return len(one) + more * (len(two) - len(one)), sizes[0] + more * (sizes[1] - sizes[0])


def check_split(checkpoint: Checkpoint, split: Split, place: Span) -> None:
    """Check a split against what the checkpoint saves.

    E218 at `place` if the state cannot be split in this way; E113 for too many parts or more than MAX_TOTAL bytes.
    """
    model = checkpoint.model
    if model is not None:
        what = f"model `{model.name}`"
        if split.pipeline > model.layers:
            message = f"{what} has fewer layers than pipeline stages"
            label = f"{count(split.pipeline, 'stage')} of {count(model.layers, 'layer')}"
            raise mistake("E218", message, place, label, hint=f"at most `pipeline {model.layers}`")
        if split.tensor > model.heads:
            message = f"{what} has fewer attention heads than tensor-parallel ranks"
            label = f"{count(split.tensor, 'rank')} for {count(model.heads, 'head')}"
            raise mistake("E218", message, place, label, hint=f"at most `tensor {model.heads}`")
        if model.zero == 3 and split.pipeline > 1:
            message = f"{what} of `zero 3` cannot have pipeline stages"
            hint = "use `zero 1` in the model, or `pipeline 1`"
            raise mistake("E218", message, place, "every rank holds a range of all layers", hint=hint)
    stages = [part for part in checkpoint.parts if part.stage >= split.pipeline]
    if stages:
        message = f"part `{stages[0].name}` is on stage {stages[0].stage}"
        label = f"stages here are 0 to {split.pipeline - 1}" if split.pipeline > 1 else "there is stage 0 alone"
        raise mistake("E218", message, place, label, hint="the tensors of a `model` use all stages that there are")
    number, size = measure_model(model) if model is not None else (0, 0)
    number += len(checkpoint.parts)
    if number > MAX_PARTS:
        message = f"checkpoint `{checkpoint.name}` would have {number:_} parts"
        raise mistake("E113", message, place, f"at most {MAX_PARTS:_}")
    copies = split.data if checkpoint.replicas == "all" else 1
    own = (part.size * (split.present_ranks if part.scope == "per rank" else copies) for part in checkpoint.parts)
    total = size * copies + sum(own)
    if total > MAX_TOTAL:
        message = f"checkpoint `{checkpoint.name}` of {split.present_ranks:_} ranks would have {total:.3g} B, over 2^62"
        raise mistake("E113", message, place, "too large")
