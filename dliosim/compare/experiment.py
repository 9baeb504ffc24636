"""The experiment that `--vary` asks for: names and values, all combinations, order of passes, and what is compared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, Union

import numpy as np

from dliosim.errors import HELP, UsageError
from dliosim.language.compile import CompiledPattern
from dliosim.language.diagnostics import TooManyMistakes
from dliosim.language.syntax import declarations
from dliosim.language.syntax.loader import Loader
from dliosim.model import Access, Loop, Restore, Save, Workload
from dliosim.model.verbs import flatten_verbs

#: Verb that a pass runs.
Compared: TypeAlias = Union[Loop, Save, Restore]

#: Largest number of variants: a table of more cannot be read.
MOST_VARIANTS: Final = 64

_MOST_LISTED: Final = 8  # numbers of a range that are all listed
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class VariedSetting:
    """A setting that differs between variants."""

    name: str  #: name as -D takes it, or a short one, see `target.full_setting_name`
    values: tuple[str, ...]  #: phrases that it takes in turn


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the verb that is compared."""

    label: str  #: text for tables
    values: tuple[tuple[str, str], ...]  #: (name, value) of each varied setting
    workload: Workload  #: workload with these values
    verb: Compared  #: verb of that workload which is run
    added: str = ""  #: why a variant is there that the user did not ask for; empty for all others

    @property
    def access(self) -> Access:
        """Access of the loop to its data, or of the checkpoint."""
        if isinstance(self.verb, Loop):
            return self.verb.access
        return self.workload.checkpoint(self.verb.checkpoint).access


@dataclass(frozen=True, slots=True)
class ExcludedVariant:
    """A combination that is impossible, or a variant that failed."""

    label: str  #: text for tables
    reason: str  #: why it did not run


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """The variants of one loop or verb, and those left out."""

    what: str  #: title of the loop or verb
    varied: tuple[VariedSetting, ...]  #: settings that differ
    variants: tuple[Variant, ...]  #: variants to run; the first is the reference
    not_run: tuple[ExcludedVariant, ...]  #: combinations that were left out
    without_saves: bool  #: true for a loop whose checkpoints are left out


def verb_title(verb: Compared) -> str:
    """Return a short title of what is compared: the name of a loop, `save NAME`, `restore NAME`."""
    if isinstance(verb, Loop):
        return verb.name
    return f"{'save' if isinstance(verb, Save) else 'restore'} {verb.checkpoint}"


def parse_varied(texts: Sequence[str]) -> tuple[VariedSetting, ...]:
    """Return the --vary options; UsageError for one that is no NAME=a,b or gives a value or a name twice."""
    found: list[VariedSetting] = []
    for text in texts:
        name, equals, values = text.partition("=")
        name, phrases = " ".join(name.split()), split_values(values)
        if not equals or not name or not all(phrases):
            hint = "give its values, as in `--vary api=posix,mpi-independent`"
            raise UsageError(f"--vary {text}: expected NAME=VALUE,VALUE,...{HELP}{hint}")
        if mended := _mend_values(values):
            raise UsageError(f"--vary {text}: values have commas between them{HELP}write `--vary {name}={mended}`")
        twice = next((one for number, one in enumerate(phrases) if one in phrases[:number]), None)
        if twice is not None:
            raise UsageError(f"--vary {text}: `{twice}` is given twice")
        if any(other.name == name for other in found):
            raise UsageError(f"--vary {name} is given twice: put all of its values into one")
        found.append(VariedSetting(name, phrases))
    return tuple(found)


def _mend_values(text: str) -> str:
    """Return the values of a list in brackets, a range, or what other signs part, with commas; empty for others."""
    plain = text.strip()
    if found := re.fullmatch(r"\[(.*)\]|\{(.*)\}", plain):
        return re.sub(r"\s*,\s*", ",", (found[1] or found[2] or "").strip()) or "VALUE,VALUE"
    if found := re.fullmatch(r"(\d{1,9}) ?(?:\.\.\.?|-|:|to) ?(\d{1,9})", plain):
        low, high = int(found[1]), int(found[2])
        inside = range(low, high + 1) if 0 < high - low < _MOST_LISTED else (low, high)
        return ",".join(map(str, inside))
    if "," not in plain and re.search(r";|\||\b(?:vs|versus|or)\b", plain):
        values = re.split(r"\s*(?:;|\||\b(?:vs|versus|or)\b\.?)\s*", plain)
        return ",".join(values) if all(values) and '"' not in plain else ""
    return ",".join(plain.split()) if re.fullmatch(r"\d+(?: +\d+)+", plain) else ""


def split_values(text: str) -> tuple[str, ...]:
    """Return the phrases between commas, without splitting inside brackets or quotation marks."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        if letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip() for part in parts)


def combine_values(varied: Sequence[VariedSetting]) -> list[tuple[tuple[str, str], ...]]:
    """Return every combination as (name, value) pairs; the values of the last name change fastest.

    UsageError where there are more than `MOST_VARIANTS`.
    """
    total = int(np.prod([len(one.values) for one in varied], dtype=np.int64))
    if total > MOST_VARIANTS:
        raise UsageError(
            f"--vary: {total} combinations, and at most {MOST_VARIANTS} can be compared: vary less at a time"
        )
    named = [[(one.name, value) for value in one.values] for one in varied]
    return [tuple(pairs) for pairs in itertools.product(*named)]


def draw_pass_order(variants: int, blocks: int, seed: int) -> list[list[int]]:
    """Return for each block the order in which variants run, random in each block; it depends only on the seed."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return [generator.permutation(variants).tolist() for _ in range(blocks)]


def choose_verb(workload: Workload, loop: str | None, what: str | None) -> Compared:
    """Return the verb of `--loop` or `--what`; without them the only loop, or without loops the only checkpoint.

    UsageError where there is nothing of that name, or where several verbs are meant.
    """
    if loop is not None and what is not None:
        raise UsageError(f"--loop {loop} and --what {what}: one thing is compared at a time")
    if what is not None:
        return _parse_what(workload, what)
    loops = {one.name: one for one in _list_loops(workload)}
    listed = ", ".join(loops) or "none"
    if loop is not None:
        if loop in loops and not loops[loop].dataset:
            raise UsageError(f"--loop {loop}: it reads nothing to compare; `--what save` compares its checkpoints")
        if loop not in loops:
            raise UsageError(f"--loop {loop}: no such loop; loops here: {listed}")
        return loops[loop]
    loops = {name: one for name, one in loops.items() if one.dataset}
    if len(loops) > 1:
        raise UsageError(f"say which loop to compare: --loop NAME; loops here: {', '.join(loops)}")
    if loops:
        return next(iter(loops.values()))
    verbs = [verb for verb, _ in flatten_verbs(workload.verbs)]
    if any(isinstance(verb, Save) for verb in verbs):
        return _parse_what(workload, "save")
    if any(isinstance(verb, Restore) for verb in verbs):
        return _parse_what(workload, "restore")
    if any(_list_loops(workload)):
        raise UsageError("no loop here reads anything to compare; `--what save` compares a checkpoint that one saves")
    raise UsageError("this pattern has no loop (train, evaluate, infer), no save and no restore: nothing to compare")


def find_same_verb(workload: Workload, chosen: Compared) -> Compared:
    """Return the chosen verb in another variant's workload; KeyError where it is not there."""
    if isinstance(chosen, Loop):
        return {one.name: one for one in _list_loops(workload)}[chosen.name]
    return chosen if isinstance(chosen, Save) else _find_restore(workload, chosen.checkpoint)


def full_setting_name(name: str, base: CompiledPattern, chosen: Compared) -> str:
    """Return the full name of setting `name` for -D: itself if it is a parameter or has a block, else BLOCK.name.

    The block is the loop or its data set, the restore or its checkpoint, or the one checkpoint that a loop saves. So
    `--vary api=…` works with and without a parameter of that name. Any other name is left to the compiler, which
    reports it.
    """
    if "." in name or name in base.context.document.params or name == "seed":
        return name
    for block, kind in _setting_blocks(base.workload, chosen):
        if name in declarations.SETTINGS.get(kind, {}):
            return f"{block}.{name}"
    return name


def leave_saves_out(
    path: Path, given: Sequence[tuple[str, str]], varied: Sequence[VariedSetting]
) -> list[tuple[str, str]]:
    """Return the overrides that leave out the checkpoints of loops.

    There are none where -D says when to save, or where checkpoints vary: when they are saved, or one of their settings.
    """
    try:
        document = Loader().load(path)
    except TooManyMistakes:  # compiling reports them
        return []
    loops = list(document.loops())
    kept = {block.name for block in document.nouns.values() if block.kind == "checkpoint"}
    others = {head for kind in (*(loop.kind for loop in loops), "dataset") for head in declarations.SETTINGS[kind]}

    def is_of_checkpoint(name: str) -> bool:
        block, dot, head = name.rpartition(".")
        if dot:
            return head == "checkpoint" or block in kept
        return name not in document.params and name in declarations.SETTINGS["checkpoint"] and name not in others

    if any(name.endswith(".checkpoint") for name, _ in given) or any(is_of_checkpoint(one.name) for one in varied):
        return []
    lines = ((loop.name, line.head) for loop in loops for layer in loop.layers for line in layer)
    return [
        (f"{name}.checkpoint", "off") for name in dict.fromkeys(name for name, head in lines if head == "checkpoint")
    ]


def _parse_what(workload: Workload, what: str) -> Compared:
    kind, _, name = " ".join(what.split()).partition(" ")
    if kind not in ("save", "restore"):
        raise UsageError(f"--what {what}: expected save or restore, and the name of a checkpoint if there are several")
    names = [one.name for one in workload.checkpoints]
    listed = f"checkpoints here: {', '.join(names) or 'none'}"
    if not name:
        wanted = (Save, Restore)[kind == "restore"]
        done = [verb.checkpoint for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, wanted)]
        names = list(dict.fromkeys(done)) or names
        if len(names) != 1:
            raise UsageError(f'say which checkpoint to {kind}: --what "{kind} NAME"; {listed}')
        name = names[0]
    if name not in names:
        raise UsageError(f"--what {what}: no such checkpoint; {listed}")
    return Save(name) if kind == "save" else _find_restore(workload, name)


def _find_restore(workload: Workload, name: str) -> Restore:
    """Return the first restore of a checkpoint, of one; or a plain one where the pattern has none."""
    restores = (
        verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Restore) and verb.checkpoint == name
    )
    return replace(next(restores, Restore(name)), each=0, pause=None)


def _setting_blocks(workload: Workload, chosen: Compared) -> list[tuple[str, str]]:
    """Return (block, kind) of the blocks whose settings have short names; of two with a setting the first counts."""
    if isinstance(chosen, Loop):
        saved = dict.fromkeys(cadence.checkpoint for cadence in chosen.checkpoints)
        of_checkpoint = [(name, "checkpoint") for name in saved] if len(saved) == 1 else []
        return [(chosen.name, chosen.kind), (chosen.dataset, "dataset"), *of_checkpoint]
    verbs = [verb for verb, _ in flatten_verbs(workload.verbs)]
    in_pattern = any(isinstance(verb, Restore) and verb.checkpoint == chosen.checkpoint for verb in verbs)
    of_restore = [(verb_title(chosen), "restore")] if isinstance(chosen, Restore) and in_pattern else []
    return [*of_restore, (chosen.checkpoint, "checkpoint")]


def _list_loops(workload: Workload) -> Iterator[Loop]:
    return (verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop))
