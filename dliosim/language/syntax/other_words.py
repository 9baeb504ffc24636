"""The other words of the field: which setting or statement a word means, and the phrases that a setting takes.

Loaded when there is a mistake. Next to their settings, the modules of the model have tables `OTHER_WORDS`: a line
`SETTING`, or `SETTING: PHRASE | PHRASE` with phrases that can be typed, where the setting's declaration shows none.
Below it are other words for the setting; `-> PHRASE` says what they mean, with `{}` for the value that stands behind
the word, and `-> PHRASE | OTHER` has another phrase for `false`. Capitals stand for a name of the pattern, or for what
its line of that name has. A word of two settings means the later one, if the pattern has what its capitals stand for.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dliosim.language.diagnostics import Mistake
from dliosim.language.source import SourceText
from dliosim.language.syntax.declarations import TOKEN, Declaration, list_settings
from dliosim.language.syntax.parser import SyntaxNode, parse
from dliosim.language.syntax.vocabulary import BLOCKS, find_rule
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
    "expect utilization at least {}": "au, metric, accelerator_utilization, goal, expect, assert, require",
    "pause {}": "sleep, wait, delay",
    "barrier": "mpi_barrier, sync",
    "drop caches": "drop_cache, drop_page_cache, clear_cache, clear, flush_cache, flush, invalidate, cold, cold_cache",
    "repeat {} {": "loop, times",
    'include "OTHER.dlio"': "import, source, use",
    "workload {}": "name, job, title",
    "param {}": "let, var, variable, const, def, define",
    "save CHECKPOINT": "save_checkpoint, write_checkpoint, torch.save",
    "restore CHECKPOINT": "load, load_checkpoint, read_checkpoint, torch.load, resume",
}
#: Words for the numbers of a job, by their names.
_NAMES: Final = {
    "$ranks": "rank, nranks, num_ranks, world_size, comm_size, np, nprocs, num_procs, processes, ntasks, gpus, "
    "num_gpus, ngpus",
    "$nodes": "node, nnodes, num_nodes, hosts, num_hosts",
    "$ranks_per_node": "ppn, local_size, local_world_size, gpus_per_node, tasks_per_node, procs_per_node",
}
#: Words for what a pattern does not say, by what to do.
_ELSEWHERE: Final = {
    "leave the line out: the launcher starts the ranks, as `mpiexec -n {} dliosim run FILE`": (
        "numjobs, world_size, num_gpus, ngpus, nprocs, num_procs, np, ranks, num_ranks, num_tasks, ntasks, processes, "
        "num_accelerators, num_clients"
    ),
    "leave the line out: it has no effect on storage": (
        "pin_memory, persistent_workers, framework, device, multiprocessing_context, "
        "worker_init_fn, deterministic, group_reporting, name, learning_rate, lr, loss, model_type, profiling, "
        "collate_fn, weight_decay, momentum, num_classes, scheduler, criterion, amp, log_level, log_interval, metrics"
    ),
    "leave the line out: an accelerator is the time that a step computes here, as `compute 100 ms`": (
        "accelerator, accelerator_type"
    ),
    "leave the line out: loops read, and checkpoints write": "rwmixread, rwmixwrite, write_percent",
    "leave the line out: `prepare`, `train` and `save` say what is done": "workflow, do_train, do_checkpoint",
    "leave the line out: `read DATASET`, `batch 4 per rank` and `readers 4` say what a data loader does": (
        "data_loader, data_loader_classname, data_loader_sampler"
    ),
    "leave the line out: a pattern has no conditions, and `-D` changes its values": "if, else, elif, while, when",
    "write `compute {} s` in the block `evaluate`": "eval_time, evaluation_time",
    "leave the line out: evaluations run between epochs, as `evaluate every 1 epoch {{`": (
        "eval_steps, val_check_interval"
    ),
    "write `evaluate every {} epochs {{`, `read DATASET` and `}}` in the block `train`, a line each": (
        "epochs_between_evals, eval_every, do_eval, evaluation, validation, validate, eval_interval"
    ),
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """A setting that a word may mean."""

    setting: Declaration  #: the setting
    kind: str  #: kind of block that takes it
    phrase: str = ""  #: phrase that the word says; `{}` stands for a value
    otherwise: str = ""  #: phrase for `false`
    before: Meaning | None = None  #: what the word means too: an earlier setting of its table


# ---- words --------------------------------------------------------------------------------------------------------


def find_setting(words: str, kind: str) -> tuple[Meaning, str] | None:
    """Return the setting of a kind of block that a line means, and the rest of the line, its phrase."""
    return _find(words, _list_meanings(kind))


def suggest_setting(words: str, kind: str) -> tuple[Meaning, str] | None:
    """Return what `find_setting` does, by the spelling of the first words, or by a part of the first word."""
    known = _list_meanings(kind)
    for count in (2, 1):
        head, rest = split_words(words, count)
        near = difflib.get_close_matches(spell_key(head)[:64], known, n=1, cutoff=0.78)
        if head and near:
            return known[near[0]], rest
    head, rest = split_words(words, 1)
    for part in re.split(r"[_.-]", head.lower())[::-1]:
        for same in (part, part + "s", part.removesuffix("s")):
            if len(same) > 2 and same in known:
                return known[same], rest
    return None


def find_statement(word: str) -> str:
    """Return the statement that a word means, as it is written, with `{}` for what stands behind the word; or empty."""
    return _find_entry(word, _STATEMENTS)


def find_name(word: str) -> str:
    """Return the name of a number of the job that a word means, as it is written; empty for other words."""
    return _find_entry(word, _NAMES)


def find_action(word: str) -> str:
    """Return what to do in place of a line that begins with a word that no pattern has; empty for other words."""
    return _find_entry(word, _ELSEWHERE)


def _find_entry(word: str, entries: dict[str, str]) -> str:
    key = spell_key(word)
    return next((entry for entry, words in entries.items() if key in map(spell_key, words.split(", "))), "")


def _find(words: str, known: dict[str, Meaning]) -> tuple[Meaning, str] | None:
    for count in (3, 2, 1):
        head, rest = split_words(words, count)
        if spell_key(head) in known:
            return known[spell_key(head)], rest
    return None


def spell_key(word: str) -> str:
    """Return the letters and digits of a word, by which words are compared."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def split_words(text: str, count: int) -> tuple[str, str]:
    """Return the first words of a line, and the rest behind them; empty texts where the line begins otherwise."""
    found = re.match(
        rf"[\"'+(.\s-]*([A-Za-z][\w.-]*(?:\s+[A-Za-z][\w-]*){{{count - 1}}})(?![\w-])[\"')]*\s*[:=]?\s*", text
    )
    return (found[1], text[found.end() :].rstrip("{ ")) if found else ("", "")


@lru_cache(maxsize=16)
def _list_meanings(kind: str) -> dict[str, Meaning]:
    settings = {setting.keyword: setting for setting in list_settings(BLOCKS[kind], kind)}
    found: dict[str, Meaning] = {}
    for keyword, (_, words) in _read_tables(kind).items():
        for word, phrase, otherwise in words:
            before = found.get(spell_key(word))
            found[spell_key(word)] = Meaning(settings[keyword], kind, phrase, otherwise, before)
    return found | {spell_key(keyword): Meaning(setting, kind) for keyword, setting in settings.items()}


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
    if token["high"] and int(token["high"]) < 4:
        return token["high"]
    return _EXAMPLES[token["value"]] if token["value"] else f"{token['word']}{token['plural'] or ''}"


def is_readable(setting: Declaration, text: str) -> bool:
    """Return whether a phrase of a setting can be read, and its units are those of the setting."""
    source = SourceText("", text)
    try:
        node = parse(find_rule(setting), source.span(0, len(text)))
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
