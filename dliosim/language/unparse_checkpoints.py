"""Phrases of the settings of models, checkpoints and restores, for `unparse`."""

from __future__ import annotations

from decimal import Decimal

from dliosim.model import TYPES, Background, Checkpoint, Pace, Part, Restore, Split, Stripe, Transformer
from dliosim.readable import count
from dliosim.units import format_bytes, format_seconds

#: Settings and their phrases; a setting with None is left out.
Phrases = list[tuple[str, str | None]]


def model_phrases(model: Transformer) -> Phrases:
    """Return the settings of a `model` with their phrases."""
    state = f" {model.state}" if model.optimizer != "none" or model.state != "fp32" else ""
    numbers = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocabulary")
    return [
        *((name, str(getattr(model, name))) for name in numbers),
        ("weights", model.weights),
        ("optimizer", model.optimizer + state),
        ("zero", str(model.zero)),
        ("scale", str(model.scale)),
    ]


def checkpoint_phrases(checkpoint: Checkpoint, writing: Phrases) -> Phrases:
    """Return the settings of a `checkpoint` with their phrases; `writing` has those of its access."""
    number = checkpoint.writers.number
    writers = {
        "file per rank": "into file per rank",
        "shared file": "all ranks into shared file",
        "one per": f"one per {count(number, 'rank')}",
        "rank": f"rank {number}",
    }[checkpoint.writers.kind]
    parallel, stages = checkpoint.parallel, checkpoint.parallel.pipeline if checkpoint.parallel else 1
    pace, partner = checkpoint.serialize, checkpoint.partner
    return [
        ("model", checkpoint.model.name if checkpoint.model else None),
        ("parallel", f"{_axes(parallel)}{' subset' if parallel.played else ''}" if parallel else None),
        *(("part", _part(part, stages)) for part in checkpoint.parts),
        ("writers", writers),
        ("replicas", checkpoint.replicas),
        ("pieces", checkpoint.pieces),
        ("folder", {0: "off", 1: "per rank"}.get(checkpoint.folder, "per node")),
        ("stripe", stripe_phrase(checkpoint.stripe)),
        *writing,
        ("metadata", "on" if checkpoint.metadata else "off"),
        ("commit", checkpoint.commit),
        ("fsync", "on" if checkpoint.fsync else "off"),
        ("keep", "all" if checkpoint.keep is None else str(checkpoint.keep)),
        ("serialize", _pace(pace) if pace else None),
        *_background(checkpoint.background),
        ("drain to", checkpoint.drain),
        ("partner", count(partner, "rank") if partner is not None else None),
        ("path", f'"{checkpoint.path}"'),
        ("root", checkpoint.root),
    ]


def restore_phrases(verb: Restore) -> Phrases:
    """Return the settings of a `restore` with their phrases."""
    own = verb.parallel
    return [
        ("written by", _split_phrase(verb.written_by) if verb.written_by else None),
        ("parallel", f"{_axes(own)}{' subset' if own.played else ''}" if own else None),
        ("shifted by", count(verb.shift, "rank")),
        ("reads", ("everything" if verb.everything else "own part") + (" once" if verb.once else "")),
    ]


def stripe_phrase(stripe: Stripe | None) -> str | None:
    """Return the phrase of a `stripe`, or None where there is none."""
    return f"{format_bytes(stripe.size)} over {count(stripe.targets, 'target')}" if stripe else None


def _axes(split: Split) -> str:
    return f"tensor {split.tensor} pipeline {split.pipeline} data {split.data}"


def _split_phrase(split: Split) -> str:
    if split.played:
        return f"{_axes(split)} subset {split.played}"
    return count(split.ranks, "rank") if split.tensor == split.pipeline == 1 else _axes(split)


def _part(part: Part, stages: int) -> str:
    if part.scope in ("total", "per rank"):
        return f"{part.name} {format_bytes(part.size)} {part.scope}"
    held = part.scope if part.scope == "whole" else f"split by {part.scope}"
    where = f" on stage {part.stage}" if stages > 1 else ""
    if not part.row:  # bytes, not a tensor
        return f"{part.name} {format_bytes(part.size)} {held}{where}"
    element = next(name for name, size in TYPES.items() if size == part.element)
    return f"{part.name} {part.rows} x {part.row // part.element} of {element} {held}{where}"


def _background(background: Background | None) -> Phrases:
    if background is None:
        return [("async", "off")]
    how = ["simulated"] if background.simulated else []
    how += [_pace(background.staging)] if background.staging else []
    return [("async", "on"), ("staging", " ".join(how) or "memory"), ("in flight", str(background.in_flight))]


def _pace(pace: Pace) -> str:
    if pace.seconds is not None:
        return format_seconds(pace.seconds)
    rate = pace.bytes_per_second or 0.0
    return f"{format_bytes(int(rate)) if rate.is_integer() else f'{Decimal(repr(rate)):f} B'}/s"
