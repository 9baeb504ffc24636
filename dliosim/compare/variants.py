"""The variants of a comparison: what is compared, each combination compiled, those that are impossible, and why."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dliosim.compare.experiment import Compared, ComparisonPlan, ExcludedVariant, Variant, VariedSetting, verb_title
from dliosim.errors import UsageError
from dliosim.language.blocks.external_datasets import missing_finder
from dliosim.language.compile import CompiledPattern, compile_document
from dliosim.language.diagnostics import Diagnostic, PatternError, TooManyMistakes
from dliosim.language.syntax import declarations
from dliosim.language.syntax.loader import Loader
from dliosim.model import Access, Checkpoint, Finder, Job, Loop, Repeat, Restore, Save, Sources, Stripe, Verb, Workload
from dliosim.model.verbs import flatten_verbs, names_read
from dliosim.plan.checkpoints.equivalence import are_restores_equal, are_saves_equal
from dliosim.readable import count
from dliosim.units import format_bytes

_KINDS: Final[dict[str, type[Save] | type[Restore]]] = {"save": Save, "restore": Restore}


def choose_verb(workload: Workload, loop: str | None, what: str | None) -> Compared:
    """Return the verb of `--loop` or `--what`; without them the only loop, or without loops the only checkpoint.

    UsageError if there is nothing of that name, or if several verbs are meant.
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
    for kind, wanted in _KINDS.items():
        if any(isinstance(verb, wanted) for verb, _ in flatten_verbs(workload.verbs)):
            return _parse_what(workload, kind)
    if any(_list_loops(workload)):
        raise UsageError("no loop here reads anything to compare; `--what save` compares a checkpoint that one saves")
    raise UsageError("this pattern has no loop (train, evaluate, infer), no save and no restore: nothing to compare")


def _find_same_verb(workload: Workload, chosen: Compared) -> Compared:
    """Return the chosen verb in another variant's workload; KeyError if it is not there."""
    if isinstance(chosen, Loop):
        return {one.name: one for one in _list_loops(workload)}[chosen.name]
    return chosen if isinstance(chosen, Save) else _find_restore(workload, chosen.checkpoint)


def full_setting_name(name: str, base: CompiledPattern, chosen: Compared) -> str:
    """Return the full name of setting `name` for -D: itself if it is a parameter or has a block, else BLOCK.name.

    The block is the loop or its data set, the restore or its checkpoint, or the only checkpoint that a loop saves. So
    `--vary api=…` works with and without a parameter of that name. The compiler reports any other name.
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

    There are none if -D says when to save, or if checkpoints vary: the time of saves, or one of their settings.
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
    saving = (loop.name for loop in loops if any(line.head == "checkpoint" for layer in loop.layers for line in layer))
    return [(f"{name}.checkpoint", "off") for name in dict.fromkeys(saving)]


def _parse_what(workload: Workload, what: str) -> Compared:
    kind, _, name = " ".join(what.split()).partition(" ")
    if kind not in _KINDS:
        raise UsageError(f"--what {what}: expected save or restore, and the name of a checkpoint if there are several")
    names = [one.name for one in workload.checkpoints]
    listed = f"checkpoints here: {', '.join(names) or 'none'}"
    if not name:
        done = [verb.checkpoint for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, _KINDS[kind])]
        names = list(dict.fromkeys(done)) or names
        if len(names) != 1:
            raise UsageError(f'say which checkpoint to {kind}: --what "{kind} NAME"; {listed}')
        name = names[0]
    if name not in names:
        raise UsageError(f"--what {what}: no such checkpoint; {listed}")
    return Save(name) if kind == "save" else _find_restore(workload, name)


def _find_restore(workload: Workload, name: str) -> Restore:
    """Return the first restore of a checkpoint, of one; or a plain one if the pattern has none."""
    restores = (
        verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Restore) and verb.checkpoint == name
    )
    return replace(next(restores, Restore(name)), each=0, pause=None)


def _setting_blocks(workload: Workload, chosen: Compared) -> list[tuple[str, str]]:
    """Return (block, kind) of the blocks whose settings have short names; of two with a setting the first counts."""
    if isinstance(chosen, Loop):
        saved = dict.fromkeys(cadence.checkpoint for cadence in chosen.checkpoints)
        of_checkpoint = [(name, "checkpoint") for name in saved] if len(saved) == 1 else []
        return [(chosen.name, chosen.kind), *((name, "dataset") for name in names_read(chosen)), *of_checkpoint]
    verbs = [verb for verb, _ in flatten_verbs(workload.verbs)]
    in_pattern = any(isinstance(verb, Restore) and verb.checkpoint == chosen.checkpoint for verb in verbs)
    of_restore = [(verb_title(chosen), "restore")] if isinstance(chosen, Restore) and in_pattern else []
    return [*of_restore, (chosen.checkpoint, "checkpoint")]


def _list_loops(workload: Workload) -> Iterator[Loop]:
    return (verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop))


#: Largest number of variants: a table of more cannot be read.
MOST_VARIANTS: Final = 64

#: Buffers of aggregators that `hints two-phase` tries, in addition to one of the stripe's size; bytes.
_BUFFERS: Final = (16 << 20, 64 << 20)

#: Codes of what a combination cannot do, or cannot do with what is installed here: no mistakes.
_IMPOSSIBLE: Final = ("E2", "R403")

_TWO_PHASE: Final = "two-phase"
_LIBRARY: Final = "library"


def compile_variants(
    path: Path,
    given: Sequence[tuple[str, str]],
    job: Job,
    varied: Sequence[VariedSetting],
    loop: str | None,
    what: str | None = None,
    keep_saves: bool = False,
    finder: Finder = missing_finder,
) -> tuple[ComparisonPlan, tuple[Diagnostic, ...]]:
    """Compile every combination of the varied settings, on top of the overrides `given`; with the warnings, each once.

    `loop` or `what` names the verb that is compared, see `choose_verb`; `finder` surveys files that exist
    already. A loop is compared without its checkpoints, unless `keep_saves` or one of their settings varies. If a
    variant uses MPI-IO with hints, the same variant with the library's defaults is added unless it is there.

    Raises PatternError for mistakes in the pattern or a value, and UsageError if fewer than two variants are left.
    """
    without = [] if keep_saves or what else leave_saves_out(path, given, varied)
    given = [*given, *without]
    base = compile_document(path, given, job, finder)
    chosen = choose_verb(base.workload, loop, what)
    without_saves = any(name == f"{verb_title(chosen)}.checkpoint" for name, _ in without)
    full = {one.name: full_setting_name(one.name, base, chosen) for one in varied}
    _refuse_duplicates(full, given)
    varied = [_expand_hints(one, full[one.name], base.workload, chosen) for one in varied]
    known = {str(warning.message) for warning in base.warnings}
    warned = {warning.message: warning for warning in base.warnings}
    made: list[tuple[Variant, CompiledPattern]] = []
    left_out: list[ExcludedVariant] = []
    for pairs in combine_values(varied):
        label = ", ".join(f"{name}={value}" for name, value in pairs)
        try:
            pairs_given = [*given, *((full[name], value) for name, value in pairs)]
            compiled = compile_document(path, pairs_given, job, finder)
        except PatternError as error:
            if not all(found.code.startswith(_IMPOSSIBLE) for found in error.diagnostics if found.is_error):
                raise
            reason = next(found.message for found in error.diagnostics if found.is_error)
            left_out.append(ExcludedVariant(label, reason))
            continue
        verb = _find_same_verb(compiled.workload, chosen)
        made.append((Variant(label, pairs, compiled.workload, verb), compiled))
    variants: list[Variant] = []
    varying = _find_differing_settings([one.access for one, _ in made])
    for one, compiled in made:
        reason = (
            _not_runnable_reason(one)
            or _no_effect_reason(compiled, known, one.access, varying)
            or _duplicate_reason(one, variants, without_saves)
        )
        if reason:
            left_out.append(ExcludedVariant(one.label, reason))
        else:
            variants.append(one)
            warned |= {warning.message: warning for warning in compiled.warnings}
    variants += _library_variants(variants)
    if len(variants) < 2:
        reasons = "".join(f"; not run: {one.label}: {' '.join(one.reason.split())}" for one in left_out)
        few = f"nothing to compare: {count(len(variants), 'variant')} can run, and a comparison needs two"
        is_refused = left_out and any(one.name == "api" for one in varied)
        hint = "through=direct,library" if is_refused else "api=posix,mpi-independent"
        if isinstance(chosen, Loop) and isinstance(chosen.dataset, Sources):  # which MPI-IO and libraries do not read
            hint = f"{chosen.name}.readers=0,2"
        raise UsageError(f"{few}{reasons}\n  = help: vary what can differ here: `--vary {hint}`")
    if len(variants) > MOST_VARIANTS:
        raise UsageError(f"{len(variants)} variants, and at most {MOST_VARIANTS} can be compared: vary less at a time")
    plan = ComparisonPlan(verb_title(chosen), tuple(varied), tuple(variants), tuple(left_out), without_saves)
    return plan, tuple(warned.values())


def combine_values(varied: Sequence[VariedSetting]) -> list[tuple[tuple[str, str], ...]]:
    """Return every combination as (name, value) pairs; the values of the last name change fastest.

    UsageError if there are more than `MOST_VARIANTS`.
    """
    total = math.prod(len(one.values) for one in varied)
    if total > MOST_VARIANTS:
        raise UsageError(
            f"--vary: {total} combinations, and at most {MOST_VARIANTS} can be compared: vary less at a time"
        )
    named = [[(one.name, value) for value in one.values] for one in varied]
    return [tuple(pairs) for pairs in itertools.product(*named)]


def _refuse_duplicates(full: dict[str, str], given: Sequence[tuple[str, str]]) -> None:
    for name, whole in full.items():
        if any(" ".join(other.split()) == whole for other, _ in given):
            raise UsageError(f"--vary {name} and -D {whole}: it cannot vary and be given")
        other = next((one for one in full if one != name and full[one] == whole), None)
        if other is not None:
            raise UsageError(f"--vary {name} and --vary {other} are the same setting")


def _expand_hints(one: VariedSetting, full: str, workload: Workload, chosen: Compared) -> VariedSetting:
    """Return the setting with the library's defaults added to its sets of hints.

    `two-phase` alone is replaced by what a tuner would try: numbers of aggregators, and sizes of their buffers.
    """
    if not full.endswith(".hints"):
        return one
    stored = workload.dataset(chosen.dataset) if isinstance(chosen, Loop) else workload.checkpoint(chosen.checkpoint)
    tried = _two_phase_hints(stored.stripe, workload.job)
    values = [phrase for value in one.values for phrase in (tried if value == _TWO_PHASE else [value])]
    return replace(one, values=tuple(dict.fromkeys([*values, _LIBRARY])))


def _two_phase_hints(stripe: Stripe | None, job: Job) -> list[str]:
    """Return phrases: one aggregator a node, as many as stripes, twice that; buffers of a stripe, 16 and 64 MiB."""
    counts, buffers = [job.nodes], list(_BUFFERS)
    if stripe is not None:
        counts += [stripe.targets, 2 * stripe.targets]
        buffers.insert(0, stripe.size)
    # There cannot be more aggregators than ranks.
    several = dict.fromkeys(min(number, job.ranks) for number in counts)
    return [
        f"{_TWO_PHASE} {number} aggregator{'s' if number > 1 else ''} buffer {format_bytes(size)}"
        for number in several
        for size in dict.fromkeys(buffers)
    ]


def _find_differing_settings(accesses: Sequence[Access]) -> frozenset[str]:
    """Return the settings, as warnings name them, that differ between variants and may have no effect."""
    hints = {(access.hints, access.hint_set) for access in accesses}
    communicators = {access.communicator for access in accesses}
    names = ["`hint`", "`hints`"] if len(hints) > 1 else []
    return frozenset([*names, "`communicator`"] if len(communicators) > 1 else names)


def _no_effect_reason(made: CompiledPattern, known: set[str], access: Access, varying: frozenset[str]) -> str:
    """Return why a varied setting changes nothing here; empty if it changes something.

    A variant without any effect would look like a finding. A setting that all variants share may have no effect in
    some.
    """
    for warning in made.warnings:
        message = str(warning.message)
        if warning.code == "W305" and message not in known and message.partition(" ")[0] in varying:
            return message
    if "`hints`" in varying and access.api == "mpi-independent" and access.hint_set != _LIBRARY:
        return f"`hints {access.hint_set}` changes nothing unless ranks read or write together"
    return ""


def _not_runnable_reason(one: Variant) -> str:
    """Return why a variant cannot run although the pattern is right; empty if it can."""
    if isinstance(one.verb, Loop):
        copied = [stage.dataset for stage in one.workload.stages() if stage.copy != "before"]
        return f"copies of `{copied[0]}` are complete before the first pass: compare `copy before`" if copied else ""
    written_by = one.verb.written_by if isinstance(one.verb, Restore) else None
    ranks = one.workload.job.ranks
    if written_by is None or written_by.present_ranks == ranks:
        return ""
    return (
        f"a variant restores what it has saved itself, and {written_by.present_ranks} ranks wrote this one, "
        f"not the {ranks} of this job"
    )


def _duplicate_reason(one: Variant, others: Sequence[Variant], without_saves: bool) -> str:
    """Return the sentence that a variant does the same as an earlier one; empty if it differs.

    The labels would promise a difference. A parameter that nothing in the loop uses makes such a variant, and so does a
    setting that -D gives as well.
    """
    other = next((other for other in others if _is_same_variant(one, other)), None)
    if other is None:
        return ""
    without = " without its checkpoints, which --checkpoints keeps" if without_saves else ""
    return f"`{verb_title(one.verb)}` does exactly what it does with {other.label}{without}"


def _is_same_variant(one: Variant, other: Variant) -> bool:
    ranks = one.workload.job.ranks
    if isinstance(one.verb, Save) and isinstance(other.verb, Save):
        return are_saves_equal(_variant_checkpoint(one, one.verb), _variant_checkpoint(other, other.verb), ranks)
    if isinstance(one.verb, Restore) and isinstance(other.verb, Restore):
        return are_restores_equal(
            (_variant_checkpoint(one, one.verb), one.verb), (_variant_checkpoint(other, other.verb), other.verb), ranks
        )
    return _loop_inputs(one) == _loop_inputs(other)


def _variant_checkpoint(one: Variant, verb: Save | Restore) -> Checkpoint:
    return one.workload.checkpoint(verb.checkpoint)


def _loop_inputs(one: Variant) -> tuple[object, ...]:
    """Return all that a pass of a variant of a loop depends on."""
    workload, loop = one.workload, one.verb
    if not isinstance(loop, Loop):
        return (loop,)
    read = {name for one in (loop, *(inner.loop for inner in loop.evaluations)) for name in names_read(one)}
    saved = {cadence.checkpoint for cadence in loop.checkpoints}
    datasets = tuple(each for each in workload.datasets if each.name in read)
    copies = tuple(stage for stage in workload.stages() if stage.dataset in read)
    return loop, workload.seed, datasets, copies, tuple(each for each in workload.checkpoints if each.name in saved)


def _library_variants(variants: Sequence[Variant]) -> list[Variant]:
    """Return for each variant of MPI-IO with hints the same variant without them, if there is none yet."""
    found: list[Variant] = []
    for one in variants:
        if not one.access.is_mpi or not one.access.hints:
            continue
        values = tuple((name, value) for name, value in one.values if name.rpartition(".")[2] not in ("hints", "hint"))
        label = ", ".join([*(f"{name}={value}" for name, value in values), f"hints={_LIBRARY}"])
        without = replace(one.access, hints=(), hint_set=_LIBRARY)
        verb, workload = _replace_access(one, without)
        made = Variant(label, (*values, ("hints", _LIBRARY)), workload, verb, "the library's defaults")
        if not any(_is_same_variant(made, other) for other in (*variants, *found)):
            found.append(made)
    return found


def _replace_access(one: Variant, access: Access) -> tuple[Compared, Workload]:
    """Return the verb that a variant runs, and its workload, with another access."""
    workload, verb = one.workload, one.verb
    if isinstance(verb, Loop):
        loop = replace(verb, access=access)
        return loop, replace(workload, verbs=_replace_loop(workload.verbs, loop))
    kept = tuple(
        replace(each, access=access) if each.name == verb.checkpoint else each for each in workload.checkpoints
    )
    return verb, replace(workload, checkpoints=kept)


def _replace_loop(verbs: Sequence[Verb], loop: Loop) -> tuple[Verb, ...]:
    inner = (replace(verb, body=_replace_loop(verb.body, loop)) if isinstance(verb, Repeat) else verb for verb in verbs)
    return tuple(loop if isinstance(verb, Loop) and verb.name == loop.name else verb for verb in inner)
