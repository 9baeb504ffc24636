"""Vocabulary: the statements and settings, the blocks that take them, and the grammar rule of each phrase."""

from __future__ import annotations

from typing import Final

from dliosim.language.syntax.declarations import Declaration, list_settings
from dliosim.model import Access, Checkpoint, Convert, Dataset, Loop, Prepare, Restore, Transformer

LOOPS: Final = ("train", "evaluate", "infer")
#: Blocks, and the dataclasses of the model whose fields declare their settings.
BLOCKS: Final[dict[str, type]] = {
    "dataset": Dataset,
    "access": Access,
    "model": Transformer,
    "checkpoint": Checkpoint,
    "prepare": Prepare,
    "convert": Convert,
    "restore": Restore,
    **dict.fromkeys(LOOPS, Loop),
}
#: Rules of grammar.lark for phrases that many settings have, by their bodies.
_SHARED: Final = {"sum": "count", "quantity": "quantity", "NAME": "name", "STRING": "path", "sum _RANKS": "ranks"}
#: The rules that follow from phrases, by their bodies; a rule has the name of the first setting with such a phrase.
RULES: Final[dict[str, str]] = {}


def find_rule(setting: Declaration) -> str:
    """Return the rule of the grammar that reads the phrases of a setting."""
    if setting.phrase.rule or setting.body in _SHARED:
        return setting.phrase.rule or _SHARED[setting.body]
    return RULES.setdefault(setting.body, setting.keyword.replace(" ", "_"))


#: The settings of each kind of block, and the grammar rule of each.
SETTINGS: Final[dict[str, dict[str, str]]] = {
    kind: {setting.keyword: find_rule(setting) for setting in list_settings(owner, kind)}
    for kind, owner in BLOCKS.items()
}
NOUNS: Final = ("dataset", "model", "checkpoint", "access")
#: Settings that one block may give several times; the first word of a phrase identifies the line.
REPEATED: Final = ("part", "hint", "shuffle", "checkpoint")
#: Settings that a loop without `read` takes.
WITHOUT_DATA: Final = ("epochs", "steps", "for", "compute", "sync", "checkpoint")

#: Verbs, and the grammar rule of the rest of their line; they stand in a file or in `repeat`.
VERBS: Final = {
    "prepare": "prepare",
    "convert": "convert",
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
MAY_OPEN: Final = (*MUST_OPEN, "prepare", "convert", "restore")
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
