"""Split of a state over ranks: the phrases of `parallel` and `written by`, and what a split must fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dliosim.language.diagnostics import mistake
from dliosim.language.source import Span
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import OF_SPLIT, Scope
from dliosim.model import Checkpoint, Split, Transformer
from dliosim.model.dataset import MAX_TOTAL
from dliosim.model.job import MAX_RANKS
from dliosim.model.transformer import parts_of
from dliosim.readable import count

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
    """Return the split of the phrase `node` for a job of `ranks` ranks; E217 where the numbers differ.

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
    """Return the split of `written by`; `subset N` gives the number of its ranks that took part."""
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

    E218 at `place` where the state cannot be split in this way; E113 for too many parts or more than MAX_TOTAL bytes.
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
