"""The variants of a comparison: each combination compiled, and those that cannot be, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dliosim.compare.design import MOST_VARIANTS, Comparables, NotRun, Variant, Varied, combinations
from dliosim.errors import UsageError
from dliosim.language import vocabulary
from dliosim.language.compile import Compiled, compile_document
from dliosim.language.diagnostics import Diagnostic, PatternError
from dliosim.language.existing import nobody_looks
from dliosim.model import Dataset, Finder, Job, Loop, Repeat, Verb, Workload
from dliosim.units import format_bytes

#: Buffers of aggregators that `hints two-phase` stands for, besides one of the stripe's size.
_BUFFERS: Final = (16 << 20, 64 << 20)

_TWO_PHASE: Final = "two-phase"
_LIBRARY: Final = "library"


def comparables(
    path: Path,
    given: Sequence[tuple[str, str]],
    job: Job,
    varied: Sequence[Varied],
    loop: str | None,
    finder: Finder = nobody_looks,
) -> tuple[Comparables, tuple[Diagnostic, ...]]:
    """Compile every combination of what is varied, on top of the overrides `given`; with the warnings, each once.

    `finder` looks at files that are there already.

    Where a variant uses MPI-IO with hints, one with the library's defaults is added unless it is there. Raises
    PatternError for mistakes in the pattern or a value, and UsageError where fewer than two variants are left.
    """
    base = compile_document(path, given, job, finder)
    chosen = _chosen(base.workload, loop)
    full = {one.name: named(one.name, base, chosen) for one in varied}
    _refuse_twice(full, given)
    varied = [_expanded(one, full[one.name], base.workload, chosen) for one in varied]
    known = {str(warning.message) for warning in base.warnings}
    warned = {warning.message: warning for warning in base.warnings}
    made: list[tuple[Variant, Compiled]] = []
    left_out: list[NotRun] = []
    for pairs in combinations(varied):
        label = ", ".join(f"{name}={value}" for name, value in pairs)
        try:
            pairs_given = [*given, *((full[name], value) for name, value in pairs)]
            compiled = compile_document(path, pairs_given, job, finder)
        except PatternError as error:
            if not all(found.code.startswith("E2") for found in error.diagnostics if found.is_error):
                raise
            left_out.append(NotRun(label, next(found.message for found in error.diagnostics if found.is_error)))
            continue
        own = find_loop(compiled.workload, chosen.name)
        made.append((Variant(label, pairs, compiled.workload, own), compiled))
    variants: list[Variant] = []
    varying = _varying([one.loop for one, _ in made])
    for one, compiled in made:
        reason = _without_effect(compiled, known, one.loop, varying) or _same_as(one, variants)
        if reason:
            left_out.append(NotRun(one.label, reason))
        else:
            variants.append(one)
            warned |= {warning.message: warning for warning in compiled.warnings}
    variants += _libraries(variants)
    if len(variants) < 2:
        reasons = "".join(f"\n  not run: {one.label}: {one.reason}" for one in left_out)
        raise UsageError(f"nothing to compare: {len(variants)} variant is left, and a comparison takes two{reasons}")
    if len(variants) > MOST_VARIANTS:
        raise UsageError(f"{len(variants)} variants, and at most {MOST_VARIANTS} can be compared: vary less at a time")
    return Comparables(chosen.name, tuple(varied), tuple(variants), tuple(left_out)), tuple(warned.values())


def named(name: str, base: Compiled, loop: Loop) -> str:
    """What -D calls `name`: itself if it is a parameter or has a block, else that setting of the loop or its data set.

    So `--vary api=…` works whether or not a pattern has a parameter for it. A name that is none of these is left for
    the compiler to complain about.
    """
    if "." in name or name in base.context.document.params or name == "seed":
        return name
    if name in vocabulary.SETTINGS[loop.kind]:
        return f"{loop.name}.{name}"
    if name in vocabulary.SETTINGS["dataset"]:
        return f"{loop.dataset}.{name}"
    return name


def find_loop(workload: Workload, name: str) -> Loop:
    """The outer loop of that name; KeyError where there is none."""
    return {loop.name: loop for loop in _outer_loops(workload.verbs)}[name]


def _outer_loops(verbs: Sequence[Verb]) -> Iterator[Loop]:
    for verb in verbs:
        if isinstance(verb, Loop):
            yield verb
        elif isinstance(verb, Repeat):
            yield from _outer_loops(verb.body)


def _chosen(workload: Workload, name: str | None) -> Loop:
    loops = {loop.name: loop for loop in _outer_loops(workload.verbs)}
    listed = ", ".join(loops) or "none"
    if name is not None:
        if name not in loops:
            raise UsageError(f"--loop {name}: no such loop; loops here: {listed}")
        return loops[name]
    if not loops:
        raise UsageError("this pattern has no loop (train, evaluate, infer), and a loop is what is compared")
    if len(loops) != 1:
        raise UsageError(f"say which loop to compare: --loop NAME; loops here: {listed}")
    return next(iter(loops.values()))


def _refuse_twice(full: dict[str, str], given: Sequence[tuple[str, str]]) -> None:
    for name, whole in full.items():
        if any(" ".join(other.split()) == whole for other, _ in given):
            raise UsageError(f"--vary {name} beside -D {whole}: it cannot vary and be given")
    for name, whole in full.items():
        other = next((one for one in full if one != name and full[one] == whole), None)
        if other is not None:
            raise UsageError(f"--vary {name} and --vary {other} are the same setting")


def _expanded(one: Varied, full: str, workload: Workload, loop: Loop) -> Varied:
    """Of sets of hints, the library's defaults are always one.

    `two-phase` alone stands for what a tuner would try: numbers of aggregators, and sizes of their buffers.
    """
    if not full.endswith(".hints"):
        return one
    tried = _two_phases(workload.dataset(loop.dataset), workload.job)
    values = [phrase for value in one.values for phrase in (tried if value == _TWO_PHASE else [value])]
    return replace(one, values=tuple(dict.fromkeys([*values, _LIBRARY])))


def _two_phases(dataset: Dataset, job: Job) -> list[str]:
    """One aggregator a node, as many as stripes, twice as many; buffers of a stripe, 16 and 64 MiB."""
    counts, buffers = [job.nodes], list(_BUFFERS)
    if dataset.stripe is not None:
        counts += [dataset.stripe.targets, 2 * dataset.stripe.targets]
        buffers.insert(0, dataset.stripe.size)
    # More aggregators than ranks there cannot be.
    several = dict.fromkeys(min(number, job.ranks) for number in counts)
    return [
        f"{_TWO_PHASE} {number} aggregator{'s' if number > 1 else ''} buffer {format_bytes(size)}"
        for number in several
        for size in dict.fromkeys(buffers)
    ]


def _varying(loops: Sequence[Loop]) -> frozenset[str]:
    """Which of the settings that may be without effect differ between variants, by the words of their warnings."""
    hints = {(loop.access.hints, loop.access.hint_set) for loop in loops}
    communicators = {loop.access.communicator for loop in loops}
    return frozenset(
        [*(("`hint`", "`hints`") if len(hints) > 1 else ()), *(("`communicator`",) if len(communicators) > 1 else ())]
    )


def _without_effect(made: Compiled, known: set[str], loop: Loop, varying: frozenset[str]) -> str:
    """Why what is varied changes nothing here, which would only look like a finding; empty where it does.

    A setting that all variants share may well be without effect in some of them.
    """
    for warning in made.warnings:
        message = str(warning.message)
        if warning.code == "W305" and message not in known and message.partition(" ")[0] in varying:
            return message
    if "`hints`" in varying and loop.access.api == "mpi-independent" and loop.access.hint_set != _LIBRARY:
        return f"`hints {loop.access.hint_set}` changes nothing where each rank reads sample by sample"
    return ""


def _same_as(one: Variant, others: Sequence[Variant]) -> str:
    """That a variant does what one before it does, since its label would promise a difference; empty where it differs.

    A parameter that nothing in the loop uses makes such a one, and a setting that -D gives as well.
    """
    own = _done(one)
    other = next((other for other in others if _done(other) == own), None)
    return f"`{one.loop.name}` does exactly what it does with {other.label}" if other else ""


def _done(one: Variant) -> tuple[object, ...]:
    """All that a pass of a variant depends on."""
    workload, loop = one.workload, one.loop
    read = {loop.dataset, *(evaluation.loop.dataset for evaluation in loop.evaluations)}
    saved = {cadence.checkpoint for cadence in loop.checkpoints}
    datasets = tuple(each for each in workload.datasets if each.name in read)
    return loop, workload.seed, datasets, tuple(each for each in workload.checkpoints if each.name in saved)


def _libraries(variants: Sequence[Variant]) -> list[Variant]:
    """For each variant of MPI-IO with hints the same one without, where it is not among them."""
    found: list[Variant] = []
    for one in variants:
        access = one.loop.access
        if not access.is_mpi or not access.hints:
            continue
        loop = replace(one.loop, access=replace(access, hints=(), hint_set=_LIBRARY))
        if any(other.loop == loop for other in (*variants, *found)):
            continue
        workload = replace(one.workload, verbs=_with_loop(one.workload.verbs, loop))
        values = tuple((name, value) for name, value in one.values if name.rpartition(".")[2] not in ("hints", "hint"))
        label = ", ".join([*(f"{name}={value}" for name, value in values), f"hints={_LIBRARY}"])
        found.append(Variant(label, (*values, ("hints", _LIBRARY)), workload, loop, "the library's defaults"))
    return found


def _with_loop(verbs: Sequence[Verb], loop: Loop) -> tuple[Verb, ...]:
    return tuple(
        loop
        if isinstance(verb, Loop) and verb.name == loop.name
        else replace(verb, body=_with_loop(verb.body, loop))
        if isinstance(verb, Repeat)
        else verb
        for verb in verbs
    )
