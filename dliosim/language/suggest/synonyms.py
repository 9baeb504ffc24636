"""The other words of the field: which setting or statement a word means, and the phrases that a setting takes.

Next to their settings, the modules of the model have tables `OTHER_WORDS`: a line `SETTING`, or
`SETTING: PHRASE | PHRASE` with phrases that can be typed, if the setting's declaration shows none. Below it are
other words for the setting; `-> PHRASE` says what they mean, with `{}` for the value that stands behind the word, and
`-> PHRASE | OTHER` has another phrase for `false`. Capitals stand for a name of the pattern, or for what its line of
that name has.
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dliosim.language.diagnostics import Mistake
from dliosim.language.source import SourceText
from dliosim.language.syntax.declarations import BLOCKS, TOKEN, Declaration, find_rule, list_settings
from dliosim.language.syntax.parser import SyntaxNode, parse
from dliosim.plugins import APIS
from dliosim.units import COUNT, FREQUENCY, RATE, SIZE, TIME, UNITS, Dimension

#: What phrases have in capitals: an example that can be typed, and the dimensions that it may have.
_VALUES: Final[dict[str, tuple[str, tuple[Dimension, ...]]]] = {
    "COUNT": ("4", (COUNT,)), "SIZE": ("1 MiB", (SIZE,)), "TIME": ("10 ms", (TIME,)), "PACE": ("2 GB/s", (TIME, RATE)),
    "NUMBER": ("2.1", (COUNT,)), "SIZES": ("1 MB", (SIZE,)), "TIMES": ("20 ms", (TIME,)), "RATE": ("6 GB/s", (RATE,)),
    "OPENS": ("80_000 opens/s", (FREQUENCY,)), "NAME": ("NAME", ()), "PATH": ('"data/train"', ()),
}  # fmt: skip

#: Words for statements, by what to write; `{}` is what stands behind the word.
STATEMENTS_FOR: Final = {
    "prepare DATASET": "generate_data, generate, create, make, write, datagen",
    "train": "training, fit, trainer", "infer": "inference, serve, predict",
    "evaluate {}": "evaluation, validation, validate",
    "dataset {}": "data, data_set, dataloader, input", "checkpoint {}": "checkpointing, ckpt",
    "expect utilization at least {}": "au, accelerator_utilization, goal", "expect {}": "assert, require, metric",
    "pause {}": "sleep, wait, delay", "barrier": "mpi_barrier, sync", "repeat {}": "loop, times, for",
    "drop caches": "drop_cache, drop_page_cache, clear_cache, clear_caches, flush_cache, cold_cache, drop",
    'include "{}"': "import, source, use", "workload {}": "name, job, title", "param {}": "let, var, const, def",
    "save CHECKPOINT": "save_checkpoint, write_checkpoint, torch.save",
    "restore CHECKPOINT": "load, load_checkpoint, read_checkpoint, torch.load, resume",
}  # fmt: skip
#: Words for the numbers of a job, by their names.
NUMBERS_OF_JOB: Final = {
    "$ranks": "rank, nranks, num_ranks, world_size, comm_size, np, nprocs, num_procs, ntasks, gpus, num_gpus",
    "$nodes": "node, nnodes, num_nodes, hosts, num_hosts",
    "$ranks_per_node": "ppn, local_size, local_world_size, gpus_per_node, tasks_per_node",
}
#: Words for what no line of a pattern says, by what to do; `{}` is the number behind the word.
ELSEWHERE: Final = {
    "leave the line out: the launcher starts the ranks, as `mpiexec -n {} dliosim run FILE`":
    "numjobs, world_size, num_gpus, nprocs, np, ranks, num_ranks, ntasks, processes, num_accelerators",
    "leave the line out: it has no effect on storage":
    "pin_memory, persistent_workers, framework, device, multiprocessing_context, worker_init_fn, deterministic, name, "
    "group_reporting, learning_rate, lr, loss, model_type, profiling, collate_fn, weight_decay, log_level, metrics",
    "leave the line out: an accelerator is the time that a step computes here, as `compute 100 ms`":
    "accelerator, accelerator_type",
    "leave the line out: `prepare`, `train` and `save` say what is done": "workflow, do_train, do_checkpoint",
    "leave the line out: `read DATASET`, `batch 4 per rank` and `readers 4` say what a data loader does":
    "data_loader, data_loader_classname, data_loader_sampler",
    "leave the line out: a pattern has no conditions, and `-D` changes its values": "if, else, elif, while, when",
    "write `compute {} s` in the block `evaluate`": "eval_time, evaluation_time",
    "write `evaluate every {} epochs {{`, `read DATASET` and `}}` in the block `train`, a line each":
    "epochs_between_evals, eval_every, do_eval, evaluation, validation, validate, eval_interval",
    "move it into the block `train`: an evaluation runs between the epochs of a loop": "evaluate",
}  # fmt: skip


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
    known = list_meanings(kind)
    heads = (split_words(words, count) for count in (3, 2, 1))
    return next(((known[spell_key(head)], rest) for head, rest in heads if spell_key(head) in known), None)


def suggest_setting(words: str, kind: str) -> tuple[Meaning, str] | None:
    """Return a result as `find_setting` does, by the spelling of the first words, or by a part of the first word."""
    known = list_meanings(kind)
    for count in (2, 1):
        head, rest = split_words(words, count)
        near = difflib.get_close_matches(spell_key(head)[:64], known, n=1, cutoff=0.78)
        if head and near:
            return known[near[0]], rest
    parts = [same for part in re.split(r"[_.-]", head.lower())[::-1] for same in (part, part + "s", part[:-1])]
    return next(((known[same], rest) for same in parts if len(same) > 2 and same in known), None)


def find_entry(word: str, entries: dict[str, str]) -> str:
    """Return the key of a table whose other words have a word; empty for none."""
    key = spell_key(word)
    return next((entry for entry, words in entries.items() if key in map(spell_key, words.split(", "))), "")


def spell_key(word: str) -> str:
    """Return the letters and digits of a word: the key for comparing words."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def split_words(text: str, count: int) -> tuple[str, str]:
    """Return the first words of a line, and the rest after them; empty texts if the line begins otherwise."""
    words = rf"[A-Za-z][\w.-]*(?:\s+[A-Za-z][\w-]*){{{count - 1}}}"
    found = re.match(rf"[\"'+(.\s-]*({words})(?![\w-])[\"')]*\s*[:=]?\s*", text)
    return (found[1], text[found.end() :]) if found else ("", "")


@lru_cache(maxsize=16)
def list_meanings(kind: str) -> dict[str, Meaning]:
    """Return the settings of a kind of block by their keywords and by the other words for them."""
    settings = {setting.keyword: setting for setting in list_settings(BLOCKS[kind], kind)}
    found: dict[str, Meaning] = {}
    for keyword, (_, words) in _read_tables(kind).items():
        found |= {spell_key(word): Meaning(settings[keyword], kind, *said.split(" | ")) for word, said in words}
    return found | {spell_key(keyword): Meaning(setting, kind) for keyword, setting in settings.items()}


@lru_cache(maxsize=16)
def _read_tables(kind: str) -> dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]]:
    """Return the phrases that can be typed, and other words with what they say, of each setting that has an entry."""
    settings = list_settings(BLOCKS[kind], kind)
    keywords = {setting.keyword for setting in settings}
    owners = (BLOCKS[kind], *(setting.owner for setting in settings))
    modules = dict.fromkeys(base.__module__ for owner in owners for base in owner.__mro__)
    found: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {}
    for module in modules:
        for entry in re.split(r"\n(?=\S)", getattr(sys.modules[module], "OTHER_WORDS", "").strip("\n")):
            first, *lines = entry.split("\n")
            keyword, _, forms = first.partition(": ")
            if keyword in keywords and keyword not in found:
                said = [line.strip().partition(" -> ")[::2] for line in lines]
                pairs = ((word, phrase) for words, phrase in said for word in words.split(", "))
                found[keyword] = tuple(forms.split(" | ") if forms else ()), tuple(pairs)
    return found


# ---- phrases ------------------------------------------------------------------------------------------------------


def list_forms(setting: Declaration, kind: str) -> tuple[str, ...]:
    """Return phrases of a setting that can be typed."""
    declared = _read_tables(kind).get(setting.keyword, ((), ()))[0]
    if declared or setting.phrase.rule:
        return declared
    texts = [text for one in setting.alternatives for text in (re.sub(r"\s*\[.*\]", "", one.text), one.text)]
    return tuple(dict.fromkeys(" ".join(TOKEN.sub(_example, re.sub(r"[\[\]]", "", text)).split()) for text in texts))


def _example(token: re.Match[str]) -> str:
    if token["high"] and int(token["high"]) < 4:
        return token["high"]
    return _VALUES[token["value"]][0] if token["value"] else f"{token['word']}{token['plural'] or ''}"


def is_parsed(rule: str, text: str) -> SyntaxNode | None:
    """Return the node of a text that a rule of the grammar takes; None for other texts."""
    try:
        return parse(rule, SourceText("", text).span(0, len(text)))
    except Mistake:
        return None


def is_readable(setting: Declaration, text: str) -> bool:
    """Return whether a phrase of a setting can be read, and has a unit where the setting takes no count."""
    amount = re.fullmatch(r"[0-9][0-9_.]* ?([^\s0-9]*)", text)
    if amount and not setting.phrase.rule and amount[1] in ("", *UNITS):
        given = UNITS[amount[1]][1] if amount[1] else COUNT
        if not any(given in allowed for kind, (_, allowed) in _VALUES.items() if kind in setting.phrase.text):
            return False
    return text in APIS if setting.keyword == "api" else is_parsed(find_rule(setting), text) is not None
