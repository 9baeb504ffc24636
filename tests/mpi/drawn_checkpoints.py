"""Checkpoints and restores, drawn as `drawn_patterns` draws the rest of a pattern."""

from __future__ import annotations

import re

from tests.mpi.drawn_patterns import Drawing, Lines, block


def split(drawing: Drawing, ranks: int, present: bool = False) -> str:
    """A way to split a state over this many ranks: more than the `present` ones, which are the first of them."""
    whole = ranks * drawing.number(2, 3) if present else ranks
    tensor = drawing.source.choice([each for each in range(1, whole + 1) if whole % each == 0])
    rest = whole // tensor
    pipeline = drawing.source.choice([each for each in range(1, rest + 1) if rest % each == 0 and each < 4])
    text = f"tensor {tensor} pipeline {pipeline} data {rest // pipeline}"
    return text + drawing.one("", " order tp-dp-pp", " order tp-pp-dp") + (" subset" if present else "")


def add_checkpoint(drawing: Drawing, name: str) -> None:
    def attempt() -> bool:
        drawing.models.pop(f"{name}_model", None)
        drawing.checkpoints[name] = _checkpoint(drawing, name)
        return drawing.compiles(f"save {name}\nrestore {name}\n")

    drawing.until_right(attempt)


def _checkpoint(drawing: Drawing, name: str) -> tuple[Lines, tuple[str, ...]]:
    lines = {"path": f'"{name}"'} | drawing.some(0.5, "parallel", split(drawing, drawing.ranks))
    if drawing.chance(0.1):
        lines["parallel"] = split(drawing, drawing.ranks, present=True)
    stages = int(found[1]) if (found := re.search(r"pipeline (\d+)", lines.get("parallel", ""))) else 1
    if drawing.chance(0.25):
        drawing.models[f"{name}_model"] = _model(drawing)
        lines["model"] = f"{name}_model"
    parts = [_part(drawing, number, stages) for number in range(drawing.number(0 if "model" in lines else 1, 3))]
    writers = drawing.one(
        "into file per rank", "all ranks into shared file", "all ranks into shared file", "one per node"
    )
    writers = drawing.one(
        writers, writers, f"one per {drawing.number(1, 4)} ranks", f"rank {drawing.number(0, drawing.ranks - 1)}"
    )
    shared = writers == "all ranks into shared file"
    lines |= {"writers": writers} if drawing.chance(0.7) or shared else {}
    lines |= drawing.some(0.3, "replicas", "once", "dealt", *([] if shared else ["all"]))
    lines |= drawing.some(0.3, "pieces", "by tensor", "whole")
    if "writers" in lines and lines["writers"].startswith(("into", "one per")):
        lines |= drawing.some(0.3, "folder", "off", "per rank", "per node")
    lines |= drawing.some(0.3, "metadata", "on", "off")
    lines |= drawing.some(0.5, "commit", "rename", "metadata", "none")
    lines |= drawing.some(0.4, "keep", "all", "1", "2")
    lines |= drawing.some(0.3, "fsync", "on", "off")
    lines |= drawing.some(0.1, "serialize", "1 ms", "1 GB/s")
    lines |= drawing.some(0.04, "stripe", "64 KiB over 2 targets")
    if drawing.chance(0.4):
        lines["async"] = "on"
        lines |= drawing.some(0.4, "staging", "memory", "2 GB/s", "1 ms", "simulated", "simulated 1 GB/s")
        lines |= drawing.some(0.4, "in flight", "1", "2", "3")
    lines |= drawing.some(0.25, "drain to", "drained")
    if drawing.ranks > 1:
        lines |= drawing.some(0.25, "partner", f"{drawing.number(1, drawing.ranks - 1)} ranks")
    if "partner" not in lines and lines.get("writers", "into").startswith(("into", "one per")):
        lines |= drawing.some(0.3, "at most", f"{drawing.number(1, 4)} writers at a time", "off")
    return lines | drawing.writing(shared), tuple(parts)


def _part(drawing: Drawing, number: int, stages: int) -> str:
    stage = f" on stage {drawing.number(0, stages - 1)}" if stages > 1 else ""
    held = drawing.one("split by rows", "split by columns", "whole")
    extents = " x ".join(f"{drawing.number(1, 30)}" for _ in range(drawing.number(1, 3)))
    tensor = f"{extents} of {drawing.one('bf16', 'fp32', 'int8')} {held}{stage}"
    return f"part p{number} " + drawing.one(
        f"{drawing.number(1, 9000)} B total",
        f"{drawing.number(1, 900)} B per rank",
        f"{drawing.number(1, 9000)} B whole{stage}",
        tensor,
    )


def _model(drawing: Drawing) -> Lines:
    heads = drawing.source.choice([2, 3, 4, 6])
    lines = {"layers": f"{drawing.number(1, 4)}", "hidden": f"{heads * drawing.number(1, 5)}", "heads": f"{heads}"}
    lines |= {"ffn": f"{drawing.number(1, 40)}", "vocabulary": f"{drawing.number(1, 60)}"}
    lines |= drawing.some(0.4, "kv_heads", "1", "2") | drawing.some(0.4, "optimizer", "adam fp32", "sgd fp32", "none")
    lines |= drawing.some(0.5, "zero", "0", "1", "2", "3") | drawing.some(0.3, "weights", "bf16", "fp32", "fp8")
    return lines | drawing.some(0.2, "scale", "2", "10")


def restore(drawing: Drawing, name: str, written_by: str = "") -> str:
    """A restore of a checkpoint, by another split perhaps."""
    made = [""]

    def attempt() -> bool:
        lines = drawing.some(0.5, "parallel", split(drawing, drawing.ranks))
        lines |= drawing.some(0.4, "reads", "own part", "own part once", "everything", "everything once")
        if "once" in lines.get("reads", "") and drawing.chance(0.3):
            lines["reads"] += " without sending"
        if lines.get("reads") == "everything" and drawing.chance(0.5):
            lines["reads"] += " by file then broadcast"
        lines |= drawing.some(0.3, "order", "as saved", "rotated by rank")
        lines |= drawing.some(0.2, "through", "calls", "mmap")
        lines |= drawing.some(0.2, "read ahead", "whole file", "off")
        lines |= drawing.some(0.3, "shifted by", f"{drawing.number(0, 7)} ranks")
        lines |= drawing.some(0.3, "each", "once" if not written_by else "of 1 once")
        lines |= drawing.some(0.3, "pause", "1 ms") if "each" in lines else {}
        if "subset" in drawing.checkpoints[name][0].get("parallel", ""):
            lines = {}
        lines |= {"written by": written_by} if written_by else {}
        made[0] = block(f"restore {name}", lines)
        return drawing.compiles(f"save {name}\n{made[0]}" if not written_by else made[0])

    drawing.until_right(attempt)
    return made[0]
