"""Cures of lines: what to type instead of one that a pattern cannot have, by the other words of the field.

Loaded when there is a mistake. Next to their settings, the modules of the model have tables `OTHER_WORDS`: a line
`SETTING`, or `SETTING: PHRASE | PHRASE` with phrases that can be typed, where the setting's declaration shows none.
Below it are other words for the setting; `-> PHRASE` says what they mean, with `{}` for the value that stands behind
the word, and `-> PHRASE | OTHER` has another phrase for `false`. Capitals stand for a name of the pattern.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dliosim.language.diagnostics import Mistake
from dliosim.language.source import COMMAND_LINE, SourceText, Span
from dliosim.language.syntax.declarations import TOKEN, Declaration, list_settings
from dliosim.language.syntax.parser import SyntaxNode, parse
from dliosim.language.syntax.rewrites import MAX_LENGTH, NO, clean, rewrite
from dliosim.language.syntax.vocabulary import BLOCKS, LOOPS, STATEMENTS, _rule
from dliosim.model import EXPECTABLE
from dliosim.plugins import APIS
from dliosim.units import COUNT, RATE, SIZE, TIME, UNITS, Dimension

_EXAMPLES: Final = {
    "COUNT": "4", "SIZE": "1 MiB", "TIME": "10 ms", "PACE": "2 GB/s", "SIZES": "1 MB", "TIMES": "20 ms",
    "NAME": "NAME", "PATH": '"data/train"',
}  # fmt: skip
_DIMENSIONS: Final = {
    "COUNT": (COUNT,), "SIZE": (SIZE,), "SIZES": (SIZE,), "TIME": (TIME,), "TIMES": (TIME,), "PACE": (TIME, RATE),
}  # fmt: skip

#: Words for statements, by what to write; `{}` is what stands behind the word.
_STATEMENTS: Final = {
    "prepare DATASET": "generate_data, generate, create, make, write, datagen",
    "train {": "training, fit, trainer",
    "infer {": "inference, serve, predict",
    "dataset NAME {": "data, data_set, dataloader, input",
    "checkpoint NAME {": "checkpointing, ckpt",
    "expect utilization at least {}": "au, metric, accelerator_utilization, goal",
    "pause {}": "sleep, wait, delay",
    "barrier": "mpi_barrier, sync",
    "drop caches": "drop_cache, dropcaches, clear_cache, flush_cache, invalidate",
    "repeat {} {": "loop, times",
    'include "OTHER.dlio"': "import, source, use",
    "workload {}": "name, job, title",
    "param {}": "let, var, variable, const, def, define",
    "save CHECKPOINT": "save_checkpoint, write_checkpoint",
    "restore CHECKPOINT": "load, load_checkpoint, read_checkpoint",
}
#: Words for what a pattern does not say, by what to do.
_ELSEWHERE: Final = {
    "leave the line out: the launcher starts the ranks, as `mpiexec -n {} dliosim run FILE`": (
        "numjobs, world_size, num_gpus, ngpus, nprocs, num_procs, np, ranks, num_ranks, num_tasks, ntasks, processes, "
        "num_accelerators, num_clients"
    ),
    "leave the line out: it has no effect on storage": (
        "pin_memory, persistent_workers, framework, device, accelerator, accelerator_type, multiprocessing_context, "
        "worker_init_fn, deterministic, group_reporting, name, learning_rate, lr, loss, model_type, profiling"
    ),
    "write `evaluate every {} epochs {{`, `read DATASET` and `}}` in the block `train`, a line each": (
        "epochs_between_evals, eval_every, do_eval, evaluation, validation, validate, eval_interval"
    ),
}
#: What the language cannot say yet: the head, the phrase, and the answer.
_NOT_YET: Final = (
    ("read", r"[,+&]|\band\b|^[0-9.]|[\w] [0-9]", "a loop reads one data set, and a mix cannot be said yet: {forms}"),
    (
        "prepare",
        r"\b(to|in|into|at)\b",
        "{forms}: where data go is an option of the command, `--dir {place}`, and `path` a folder in it",
    ),
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """A setting that a word may mean."""

    setting: Declaration  #: the setting
    kind: str  #: kind of block that takes it
    phrase: str = ""  #: phrase that the word says; `{}` stands for a value
    otherwise: str = ""  #: phrase for `false`


# ---- words --------------------------------------------------------------------------------------------------------


def find_setting(words: str, kind: str) -> tuple[Meaning, str] | None:
    """Return the setting of a kind of block that a line means, and the rest of the line, its phrase."""
    return _find(words, _list_meanings(kind))


def suggest_setting(words: str, kind: str) -> tuple[Meaning, str] | None:
    """Return what `find_setting` does, by the spelling of the first words, or by a part of the first word."""
    known = _list_meanings(kind)
    for count in (2, 1):
        head, rest = _split_words(words, count)
        near = difflib.get_close_matches(_key(head)[:64], known, n=1, cutoff=0.75)
        if head and near:
            return known[near[0]], rest
    head, rest = _split_words(words, 1)
    for part in re.split(r"[_.-]", head.lower())[::-1]:
        for same in (part, part + "s", part.removesuffix("s")):
            if len(same) > 2 and same in known:
                return known[same], rest
    return None


def _find(words: str, known: dict[str, Meaning]) -> tuple[Meaning, str] | None:
    for count in (3, 2, 1):
        head, rest = _split_words(words, count)
        if _key(head) in known:
            return known[_key(head)], rest
    return None


def _key(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _split_words(text: str, count: int) -> tuple[str, str]:
    found = re.match(
        rf"[\"'+(-]*([A-Za-z][\w.-]*(?:\s+[A-Za-z][\w-]*){{{count - 1}}})(?![\w-])[\"')]*\s*[:=]?\s*", text
    )
    return (found[1], text[found.end() :].rstrip("{ ")) if found else ("", "")


@lru_cache(maxsize=16)
def _list_meanings(kind: str) -> dict[str, Meaning]:
    settings = {setting.keyword: setting for setting in list_settings(BLOCKS[kind], kind)}
    found: dict[str, Meaning] = {}
    for keyword, (_, words) in _read_tables(kind).items():
        for word, phrase, otherwise in words:
            found[_key(word)] = Meaning(settings[keyword], kind, phrase, otherwise)
    return found | {_key(keyword): Meaning(setting, kind) for keyword, setting in settings.items()}


@lru_cache(maxsize=16)
def _read_tables(kind: str) -> dict[str, tuple[tuple[str, ...], tuple[tuple[str, str, str], ...]]]:
    """Return the phrases that can be typed, and other words with what they say, of each setting that has an entry."""
    settings = list_settings(BLOCKS[kind], kind)
    keywords = {setting.keyword for setting in settings}
    owners = (BLOCKS[kind], *(setting.owner for setting in settings))
    modules = dict.fromkeys(base.__module__ for owner in owners for base in owner.__mro__)
    found: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str, str], ...]]] = {}
    for module in modules:
        for entry in re.split(r"\n(?=\S)", getattr(sys.modules[module], "OTHER_WORDS", "").strip("\n")):
            first, *lines = entry.split("\n")
            keyword, _, forms = first.partition(": ")
            if keyword in keywords and keyword not in found:
                words = tuple(word for line in lines for word in _read_words(line))
                found[keyword] = tuple(forms.split(" | ") if forms else ()), words
    return found


def _read_words(line: str) -> Iterable[tuple[str, str, str]]:
    words, _, phrases = line.strip().partition(" -> ")
    phrase, _, otherwise = phrases.partition(" | ")
    return ((word, phrase, otherwise) for word in words.split(", "))


def _table(entries: dict[str, str]) -> dict[str, str]:
    return {_key(word): phrase for phrase, words in entries.items() for word in words.split(", ")}


# ---- phrases ------------------------------------------------------------------------------------------------------


def list_forms(setting: Declaration, kind: str) -> tuple[str, ...]:
    """Return phrases of a setting that can be typed."""
    declared = _read_tables(kind).get(setting.keyword, ((), ()))[0]
    if declared or setting.phrase.rule:
        return declared
    texts = [
        text for one in setting.alternatives for text in (_drop_optional(one.text), re.sub(r"[\[\]]", "", one.text))
    ]
    return tuple(dict.fromkeys(re.sub(r"\s+", " ", TOKEN.sub(_example, text)) for text in texts))


def _drop_optional(text: str) -> str:
    while text != (text := re.sub(r"\s*\[[^\[\]]*\]", "", text)):
        pass
    return text


def _example(token: re.Match[str]) -> str:
    return _EXAMPLES[token["value"]] if token["value"] else f"{token['word']}{token['plural'] or ''}"


def is_readable(setting: Declaration, text: str) -> bool:
    """Return whether a phrase of a setting can be read, and its units are those of the setting."""
    source = SourceText("", text)
    try:
        node = parse(_rule(setting), source.span(0, len(text)))
    except Mistake:
        return False
    if setting.phrase.rule:
        return setting.keyword != "api" or text in APIS
    alternatives = setting.alternatives
    found = next((one for one in alternatives if one.name == node.kind), alternatives[0])
    wanted = [_DIMENSIONS.get(value["value"] or "") for value in found.values]
    operands = [node] if node.kind == "quantity" else list(node.children)
    return all(
        allowed is None or all(dimension in allowed for dimension in _dimensions(operand))
        for allowed, operand in zip(wanted, operands, strict=False)
    )


def _dimensions(node: SyntaxNode) -> list[Dimension]:
    """Return the dimensions of the numbers of a phrase, without those of factors."""
    if node.kind == "product":
        return []
    if node.kind == "number":
        return [UNITS[node.children[1].text][1] if len(node.children) > 1 else COUNT]
    return [found for child in node.children for found in _dimensions(child)]


# ---- what to type -------------------------------------------------------------------------------------------------


def cure_head(line: Span, kind: str, *, opened: bool = False, elsewhere: bool = True) -> str:
    """Return what to type instead of a line that begins with no word of its place; empty where that is not known.

    `kind` is the kind of the block that the line is in, or empty; `opened`: a brace follows it; `elsewhere`: it may
    belong to another block.
    """
    text, names = line.text[:200] + " {" * opened, _Names(line.source)
    if re.match(r"//|/\*|--|;", text):
        return f"comments begin with `#`: write `# {clean(re.sub(r'^[/*;-]+|[*]/$', '', text))}`"
    found = find_setting(text, kind) if kind in BLOCKS else None
    if found:
        return _write_setting(*found, names, "")
    if not elsewhere:
        return ""
    homes = [(home, found) for home in _HOMES if home != kind and (found := find_setting(text, home))]
    if kind not in BLOCKS and (cure := _cure_statement(text, names, _cure_elsewhere(homes, names))):
        return cure
    word, rest = _split_words(text, 1)
    if answer := _table(_ELSEWHERE).get(_key(word)):
        return _write_singular(names.fill(answer.format(clean(rest) if clean(rest).isdecimal() else "4")))
    if kind in LOOPS and kind != "train" and _key(word) == "evaluate":
        return "`evaluate` stands in the block of a `train` loop"
    if homes:
        return _cure_elsewhere(homes, names)
    near = suggest_setting(text, kind) if kind in BLOCKS else None
    return _write_setting(*near, names, "") if near else ""


#: Kinds of block in which a line may belong that stands elsewhere, the most likely first.
_HOMES: Final = ("dataset", "train", "checkpoint", "model", "access", "infer", "restore", "prepare")


def _cure_elsewhere(homes: Sequence[tuple[str, tuple[Meaning, str]]], names: _Names) -> str:
    return _write_setting(*homes[0][1], names, homes[0][0]) if homes else ""


def _cure_statement(text: str, names: _Names, setting: str) -> str:
    word, rest = _split_words(text, 1)
    if _key(word) == "evaluate":
        return "move it into the block `train`: an evaluation runs between the epochs of a loop"
    made = _table(_STATEMENTS).get(_key(word))
    if made:
        values = rewrite(rest, lambda one: _is_statement(made.replace("{}", one))) if "{}" in made else [""]
        return f"write `{names.fill(made.replace('{}', (values or ['VALUE'])[0]))}`"
    if re.match(r"for\s+\w+\s+in\b", text):
        times = re.search(r"\d+", text)
        return f"write `repeat {times[0] if times else 3} {{`"
    assigned = re.match(r"(?:[a-z]+\s+)?([A-Za-z_]\w*)\s*=\s*(.+)", text)
    if assigned:
        param = f"write `param {assigned[1]} = {clean(assigned[2])}`, and `${assigned[1]}` where it is used"
        return f"{setting}; for a parameter, {param}" if setting else param
    if setting:
        return setting
    heads = {_key(head): head for head in STATEMENTS}
    for count in (2, 1):
        head, rest = _split_words(text, count)
        near = difflib.get_close_matches(_key(head)[:64], heads, n=1, cutoff=0.7)
        if near:
            return (
                f"write `{' '.join(filter(None, (heads[near[0]], clean(rest))))}{' {' if text.endswith('{') else ''}`"
            )
    return ""


def _is_statement(text: str) -> bool:
    head, _, phrase = text.rstrip(" {").partition(" ")
    lacks_unit = head in ("pause", "expect") and re.search(r"(^| )[0-9.]+$", phrase)
    return not lacks_unit and is_parsed(STATEMENTS[head], phrase)


def is_parsed(rule: str, text: str) -> bool:
    """Return whether a rule of the grammar takes a text."""
    try:
        parse(rule, SourceText("", text).span(0, len(text)))
    except Mistake:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that a source defines, for the capitals in phrases."""

    source: SourceText

    def fill(self, text: str) -> str:
        """Return a text with the first name of each kind, and that of the file, in place of the capitals."""
        text = text.replace("FILE", self.source.name or "FILE")
        for kind in ("dataset", "checkpoint", "access"):
            found = re.search(rf"^\s*{kind}\s+([A-Za-z_]\w*)", self.source.text, re.MULTILINE)
            if found:
                text = re.sub(rf"\b{kind.upper()}\b", found[1], text)
        return text


def _write_setting(meaning: Meaning, rest: str, names: _Names, home: str) -> str:
    setting = meaning.setting
    phrases = _phrases_of(meaning, rest, names) or [names.fill(form) for form in list_forms(setting, meaning.kind)]
    where = f" in the block `{home}`" if home else ""
    return write_lines(setting.keyword, phrases) + where if phrases else f"the setting is `{setting.keyword}`"


def _phrases_of(meaning: Meaning, rest: str, names: _Names) -> list[str]:
    setting, phrase = meaning.setting, names.fill(meaning.phrase)
    value = clean(rest)
    if phrase and "{}" not in phrase:
        return [names.fill(meaning.otherwise)] if meaning.otherwise and value.lower() in NO else [phrase]

    def accepts(text: str) -> bool:
        return is_readable(setting, text)

    unit = re.fullmatch(r"\{\} (B|s|us)", phrase)
    if phrase and not (unit and re.search("[A-Za-z]", value)):
        made = rewrite(value, lambda text: accepts(phrase.replace("{}", text)))
        return [phrase.replace("{}", text) for text in made]
    return rewrite(value, accepts, [names.fill(form) for form in list_forms(setting, meaning.kind)])


def write_lines(head: str, phrases: Sequence[str]) -> str:
    """Return `write `HEAD PHRASE``, with all phrases."""
    lines = [f"`{_write_singular(' '.join(filter(None, (head, phrase))))}`" for phrase in phrases]
    return f"write {', '.join(lines[:-1])} or {lines[-1]}" if len(lines) > 1 else f"write {lines[0]}"


def _write_singular(text: str) -> str:
    text = re.sub(r"(?<![\w.])1 batches\b", "1 batch", text)
    return re.sub(r"(?<![\w.])1 (rank|step|epoch|file|folder|target)s\b", r"1 \1", text)


def cure_phrase(head: str, kind: str, phrase: Span, accepts: Callable[[str], bool]) -> str:
    """Return what to type instead of a line whose head is right and whose phrase is not; empty if not known."""
    names = _Names(phrase.source)
    for known, pattern, answer in _NOT_YET:
        if head == known and re.search(pattern, phrase.text):
            return answer.format(forms=write_lines(head, [names.fill("DATASET")]))
    found = rewrite(phrase.text, accepts, _fill_forms(head, kind, names))
    return _write_cure(head, phrase, found) if found and found != [phrase.text] else ""


def show_forms(head: str, kind: str, phrase: Span) -> str:
    """Return lines of a setting as they may be."""
    return _write_cure(head, phrase, _fill_forms(head, kind, _Names(phrase.source))[:4])


def _fill_forms(head: str, kind: str, names: _Names) -> list[str]:
    setting = next(one for one in list_settings(BLOCKS[kind], kind) if one.keyword == head)
    return [names.fill(form) for form in list_forms(setting, kind)]


def _write_cure(head: str, phrase: Span, found: Sequence[str]) -> str:
    if not found:
        return ""
    return write_override(phrase, found) if phrase.source.name == COMMAND_LINE else write_lines(head, found)


def cure_statement(head: str, phrase: Span, rule: str, opened: bool) -> str:
    """Return what to type instead of a statement whose head is right and whose phrase is not."""
    text, brace = phrase.text, " {" if opened else ""
    names = _Names(phrase.source)
    for known, pattern, answer in _NOT_YET:
        if head == known and re.search(pattern, text):
            place = re.search(r"\S*/\S*", text)
            return answer.format(forms=f"write `{head} {text.split()[0]}`", place=place[0] if place else "DIR")
    if len(text) > MAX_LENGTH:
        return ""
    found = rewrite(text, lambda made: is_parsed(rule, made), [names.fill(form) for form in _FORMS.get(head, ())])
    return write_lines(head, [made + brace for made in found]) if found and found != [text] else ""


_FORMS: Final = {
    "prepare": ("DATASET",),
    "repeat": ("3",),
    "expect": tuple(f"{name} {figure.example}" for name, figure in EXPECTABLE.items()),
    "checkpoint": ("NAME",),
    "dataset": ("NAME",),
    "pause": ("5 s",),
    "evaluate": ("every 2 epochs",),
    "save": ("CHECKPOINT",),
    "restore": ("CHECKPOINT",),
}


# ---- overrides ----------------------------------------------------------------------------------------------------


def cure_override(name: str, value: str, params: Iterable[str], blocks: Mapping[str, str], source: SourceText) -> str:
    """Return the `-D` to give instead of one that names nothing; empty where that is not known.

    `blocks` has the kind of each block that has a name; `source` is the pattern.
    """
    block, _, word = name.rpartition(".")
    names, known = _Names(source), {_key(param): param for param in params}
    if not block and (near := difflib.get_close_matches(_key(word)[:64], known, n=1, cutoff=0.75)):
        return f"write `-D {known[near[0]]}={quote_value(value)}`"
    for find in (find_setting, suggest_setting):
        for home in _list_homes(block.rpartition(".")[2], blocks):
            found = find(f"{word} {value}", blocks[home])
            if found is not None:
                keyword = found[0].setting.keyword
                if not block and keyword in known.values():
                    return f"write `-D {keyword}={quote_value(value)}`"
                phrases = _phrases_of(*found, names) or [value]
                return f"write {' or '.join(f'`-D {home}.{keyword}={quote_value(one)}`' for one in phrases)}"
    return ""


def _list_homes(given: str, blocks: Mapping[str, str]) -> list[str]:
    """Return the names of the blocks that a name may mean, the most likely first."""
    if given in blocks:
        return [given]
    kind = _table(_STATEMENTS).get(_key(given), "").partition(" ")[0]
    first = [name for name in blocks if blocks[name] == kind] + difflib.get_close_matches(given, blocks, n=1)
    others = [name for home in _HOMES for name in blocks if blocks[name] == home]
    return list(dict.fromkeys([*first, *others]))


def quote_value(value: str) -> str:
    """Return a value as a shell takes it."""
    if '"' in value or "$" in value:
        return shlex.quote(value)
    return f'"{value}"' if re.search(r"[^\w.%/:-]", value) else value


def cure_value(value: Span, accepts: Callable[[str], bool]) -> str:
    """Return the `-D` to give instead of one with a value that its parameter cannot have; empty if not known."""
    found = rewrite(value.text, accepts)
    return write_override(value, found) if found else ""


def write_override(value: Span, phrases: Sequence[str]) -> str:
    """Return `write `-D NAME=PHRASE``, for a value on the command line."""
    given = value.source.text[: value.start].rstrip()
    return f"write {' or '.join(f'`{given}{quote_value(one)}`' for one in phrases)}"
