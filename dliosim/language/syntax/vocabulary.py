"""Vocabulary: the statements and settings, the blocks that take them, and the grammar rule of each phrase."""

from __future__ import annotations

from typing import Final

ACCESS: Final = {
    "api": "api",
    "transfer": "transfer",
    "readers": "readers",
    "prefetch": "prefetch",
    "open": "open",
    "cache": "cache",
    "engine": "engine",
    "hint": "hint",
    "hints": "hints",
    "order": "order",
    "communicator": "communicator",
    "scatter": "scatter",
    "through": "through",
}
WRITING: Final = {head: ACCESS[head] for head in ("api", "transfer", "cache", "hint", "hints")}
LOOP: Final = {
    "read": "read",
    "batch": "batch",
    "shard": "shard",
    "shuffle": "shuffle",
    "last batch": "last_batch",
    "epochs": "count",
    "steps": "count",
    "for": "count",
    "shifted by": "ranks",
    "compute": "compute",
    "decode": "switch",
    "preprocess": "compute",
    "sync": "sync",
    **ACCESS,
}

#: The settings of each kind of block, and the grammar rule of each.
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "dataset": {
        "samples": "count",
        "size": "quantity",
        "shape": "shape",
        "datasets": "datasets",
        "layout": "layout",
        "prepared by": "ranks",
        "format": "format",
        "chunk": "chunk",
        "compress": "compress",
        "compressible": "compressible",
        "stripe": "stripe",
        "header": "count",
        "align": "count",
        "path": "path",
        "from files": "source",
        "root": "name",
    },
    "access": ACCESS,
    "model": {
        "layers": "count",
        "hidden": "count",
        "ffn": "count",
        "heads": "count",
        "kv_heads": "count",
        "vocabulary": "count",
        "weights": "element",
        "optimizer": "optimizer",
        "zero": "count",
        "scale": "count",
    },
    "checkpoint": {
        "model": "name",
        "part": "part",
        "parallel": "parallel",
        "writers": "writers",
        "replicas": "replicas",
        "pieces": "pieces",
        "folder": "folder",
        "stripe": "stripe",
        "metadata": "switch",
        "commit": "commit",
        "fsync": "switch",
        "keep": "keep",
        "serialize": "pace",
        "async": "switch",
        "staging": "staging",
        "in flight": "count",
        "drain to": "name",
        "partner": "ranks",
        "path": "path",
        "root": "name",
        **WRITING,
    },
    "prepare": {"fsync": "switch", **WRITING},
    "restore": {
        "written by": "written",
        "parallel": "parallel",
        "shifted by": "ranks",
        "reads": "reads",
    },
    "train": {**LOOP, "checkpoint": "cadence"},
    "evaluate": LOOP,
    "infer": {**LOOP, "requests": "requests"},
}

LOOPS: Final = ("train", "evaluate", "infer")
NOUNS: Final = ("dataset", "model", "checkpoint", "access")
#: Settings that one block may give several times; the first word of a phrase identifies the line.
REPEATED: Final = ("part", "hint", "shuffle", "checkpoint")

#: Verbs, and the grammar rule of the rest of their line; they stand in a file or in `repeat`.
VERBS: Final = {
    "prepare": "prepare",
    "train": "loop",
    "infer": "loop",
    "save": "save",
    "restore": "restore",
    "pause": "quantity",
    "barrier": "nothing",
    "drop caches": "nothing",
    "repeat": "count",
}

#: Statements that may stand in a file, outside of blocks, and the grammar rule of each.
STATEMENTS: Final = {
    "dlio": "version",
    "workload": "workload",
    "param": "param",
    "set": "set",
    "include": "file",
    "extends": "file",
    "seed": "count",
    "dataset": "dataset",
    "model": "model",
    "checkpoint": "checkpoint",
    "access": "access",
    "expect": "expect",
    **VERBS,
}

MUST_OPEN: Final = ("dataset", "model", "checkpoint", "access", "train", "infer", "evaluate", "repeat")
MAY_OPEN: Final = (*MUST_OPEN, "prepare", "restore")
INCLUDABLE: Final = ("dlio", "param", *NOUNS, "include")

#: Words kept for later versions of the language.
RESERVED: Final = {
    "together": "`together { … }`, which runs verbs at the same time,",
    "on": "`on ranks`, which runs a verb on some of the ranks,",
    "stage": "`stage`, which copies data between tiers,",
}


def block_kinds(head: str) -> list[str]:
    """Return the kinds of block that take a setting."""
    return [kind for kind, settings in SETTINGS.items() if head in settings]
