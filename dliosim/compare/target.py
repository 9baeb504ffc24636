"""The target of a comparison: a loop of the pattern, the saving of a checkpoint, or the restoring of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dliosim.compare.experiment import Compared, VariedSetting, verb_title
from dliosim.errors import UsageError
from dliosim.language.compile import CompiledPattern
from dliosim.language.diagnostics import TooManyMistakes
from dliosim.language.syntax import vocabulary
from dliosim.language.syntax.loader import Loader
from dliosim.model import Loop, Restore, Save, Workload
from dliosim.model.verbs import flatten_verbs


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
        if name in vocabulary.SETTINGS.get(kind, {}):
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
    others = {head for kind in (*(loop.kind for loop in loops), "dataset") for head in vocabulary.SETTINGS[kind]}

    def is_of_checkpoint(name: str) -> bool:
        block, dot, head = name.rpartition(".")
        if dot:
            return head == "checkpoint" or block in kept
        return name not in document.params and name in vocabulary.SETTINGS["checkpoint"] and name not in others

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
