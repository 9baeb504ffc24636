"""Settings as fields of the model declare them: keywords, types, and the alternatives of their phrases."""

from __future__ import annotations

import re
from dataclasses import dataclass, is_dataclass, replace
from functools import lru_cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from dliosim.model import Access, Checkpoint, Convert, Dataset, Loop, Prepare, Restore, Stage, StorageModel, Transformer
from dliosim.model.phrase import Phrase

#: A value with its bounds, a word that alone is in brackets, another bracket, or a word with its plural.
TOKEN: Final = re.compile(
    r"(?P<value>[A-Z]+)(>=(?P<low>\d+))?(<=(?P<high>[\d_]+))?|\[(?P<flag>[a-z]+( [a-z]+)*)\]|[\[\]]"
    r"|(?P<word>[a-z-]+)(\((?P<plural>[a-z]+)\))?"
)
_SYMBOLS: Final = {
    **dict.fromkeys(("COUNT", "NUMBER", "SIZE", "TIME", "RATE", "OPENS", "PACE"), "sum"),
    **dict.fromkeys(("SIZES", "TIMES"), "quantity"),
    "NAME": "NAME",
    "PATH": "STRING",
    "[": "(",
    "]": ")?",
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the alternatives of a phrase."""

    text: str  #: as declared
    name: str  #: kind of its node if there are several
    values: tuple[re.Match[str], ...]  #: values, and words that alone are in brackets, in order


@dataclass(frozen=True, slots=True)
class Declaration:
    """A setting that a field declares."""

    keyword: str  #: first words of its line
    field: str  #: name of the field
    owner: type  #: dataclass that has the field
    phrase: Phrase  #: phrase of the field
    types: tuple[Any, ...]  #: types that the field may have, or its literals
    inside: str = ""  #: field of the block's dataclass whose own dataclass has the field; empty: the block's has it

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Return the alternatives of the phrase."""
        return split_phrase(self.phrase.text or " | ".join(self.types))

    @property
    def body(self) -> str:
        """Return what a rule of the grammar has for the phrase."""
        bodies = [TOKEN.sub(_symbol, one.text) for one in self.alternatives]
        if len(bodies) == 1:
            return bodies[0]
        return " | ".join(f"{body} -> {one.name}" for body, one in zip(bodies, self.alternatives, strict=True))


def _symbol(token: re.Match[str]) -> str:
    if token["flag"]:
        return f"{flag_symbol(token['flag'])}?"
    if token["word"]:
        return f"_{token['word']}{token['plural'] or ''}".upper().replace("-", "_")
    return _SYMBOLS[token["value"] or token[0]]


def flag_symbol(words: str) -> str:
    """Return the terminal for words that may be left out."""
    return words.upper().replace(" ", "_")


@lru_cache(maxsize=256)
def split_phrase(text: str) -> tuple[Alternative, ...]:
    """Return the alternatives of a phrase."""
    return tuple(_alternative(part) for part in text.split(" | "))


def _alternative(text: str) -> Alternative:
    words = [
        token["word"] + (token["plural"] or "") for token in TOKEN.finditer(re.sub(r"\[.*", "", text)) if token["word"]
    ]
    values = tuple(token for token in TOKEN.finditer(text) if token["value"] or token["flag"])
    return Alternative(text, "_".join(words).replace("-", "_") or values[0]["value"].lower(), values)


@lru_cache(maxsize=32)
def list_settings(owner: type, kind: str) -> tuple[Declaration, ...]:
    """Return the settings that a kind of block takes, which is compiled to `owner`; those of its access come last."""
    return tuple(one for one in _read_fields(owner) if not one.phrase.blocks or kind in one.phrase.blocks)


@lru_cache(maxsize=32)
def _read_fields(owner: type) -> tuple[Declaration, ...]:
    own: list[Declaration] = []
    shared: list[Declaration] = []
    for field, hint in get_type_hints(owner, include_extras=True).items():
        phrase = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Phrase)), None)
        plain = hint.__origin__ if phrase else hint
        types = get_args(plain) if get_origin(plain) in (Literal, Union, UnionType) else (plain,)
        if phrase:
            own.append(Declaration(phrase.keyword or field, field, owner, phrase, types))
        if phrase is None or phrase.text != "NAME":  # a name stands for a block of its own
            inner = (one for each in types if is_dataclass(each) for one in _read_fields(each))  # type: ignore[arg-type]
            (own if phrase else shared).extend(replace(one, inside=field) for one in inner)
    return (*own, *shared)


LOOPS: Final = ("train", "evaluate", "infer")
#: Blocks, and the dataclasses of the model whose fields declare their settings.
BLOCKS: Final[dict[str, type]] = {
    "dataset": Dataset,
    "access": Access,
    "model": Transformer,
    "checkpoint": Checkpoint,
    "storage": StorageModel,
    "prepare": Prepare,
    "convert": Convert,
    "stage": Stage,
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
    name = setting.keyword.replace(" ", "_")
    if name in RULES.values() and setting.body not in RULES:  # another block has a setting of that name
        name = f"{setting.owner.__name__.lower()}_{name}"
    return RULES.setdefault(setting.body, name)


#: The settings of each kind of block, and the grammar rule of each.
SETTINGS: Final[dict[str, dict[str, str]]] = {
    kind: {setting.keyword: find_rule(setting) for setting in list_settings(owner, kind)}
    for kind, owner in BLOCKS.items()
}
NOUNS: Final = ("dataset", "model", "checkpoint", "access", "storage")
#: Settings that one block may give several times; the first word of a phrase identifies the line.
REPEATED: Final = ("part", "hint", "shuffle", "checkpoint")
#: Settings that a loop without `read` takes.
WITHOUT_DATA: Final = ("epochs", "steps", "for", "compute", "sync", "checkpoint")

#: Verbs, and the grammar rule of the rest of their line; they stand in a file or in `repeat`.
VERBS: Final = {
    "prepare": "prepare",
    "convert": "convert",
    "stage": "staged",
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
    "storage": "storage",
    "expect": "expect",
    **VERBS,
}

MUST_OPEN: Final = (*NOUNS, "train", "infer", "evaluate", "repeat")
MAY_OPEN: Final = (*MUST_OPEN, "prepare", "convert", "stage", "restore")
INCLUDABLE: Final = ("dlio", "param", *NOUNS, "include")

#: Words kept for later versions of the language.
RESERVED: Final = {
    "together": "`together { … }`, which runs verbs at the same time,",
    "on": "`on ranks`, which runs a verb on some of the ranks,",
}


def block_kinds(head: str) -> list[str]:
    """Return the kinds of block that take a setting."""
    return [kind for kind, settings in SETTINGS.items() if head in settings]
