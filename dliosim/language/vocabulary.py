"""Which statements and settings there are, where each may stand, and the grammar rule that reads its phrase."""

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
    "checkpoint": {
        "part": "part",
        "writers": "writers",
        "fsync": "switch",
        "keep": "keep",
        "async": "switch",
        "path": "path",
        "root": "name",
        **WRITING,
    },
    "prepare": {"fsync": "switch", **WRITING},
    "train": {**LOOP, "checkpoint": "cadence"},
    "evaluate": LOOP,
    "infer": {**LOOP, "requests": "requests"},
}
"""The settings of each kind of block, and the rule of each."""

LOOPS: Final = ("train", "evaluate", "infer")
NOUNS: Final = ("dataset", "checkpoint", "access")
REPEATED: Final = ("part", "hint", "shuffle", "checkpoint")
"""Settings that may be given several times in one block, told apart by the word that comes first."""

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
"""Verbs and the rule of what follows them; they stand in a file or in `repeat`."""

STATEMENTS: Final = {
    "dlio": "version",
    "workload": "workload",
    "param": "param",
    "set": "set",
    "include": "file",
    "extends": "file",
    "seed": "count",
    "dataset": "dataset",
    "checkpoint": "checkpoint",
    "access": "access",
    "expect": "expect",
    **VERBS,
}
"""All that may stand in a file, outside of blocks."""

MUST_OPEN: Final = ("dataset", "checkpoint", "access", "train", "infer", "evaluate", "repeat")
MAY_OPEN: Final = (*MUST_OPEN, "prepare")
INCLUDABLE: Final = ("dlio", "param", "include", *NOUNS)

RESERVED: Final = {
    "together": "`together { … }`, which runs verbs at the same time,",
    "on": "`on ranks`, which runs a verb on some of the ranks,",
    "stage": "`stage`, which copies data between tiers,",
}
"""Words kept for later versions of the language."""


def homes(head: str) -> list[str]:
    """The kinds of block that take a setting."""
    return [kind for kind, settings in SETTINGS.items() if head in settings]
