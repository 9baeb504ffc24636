"""Checks of checkpoints: access (E204), contradictions (E211), no save at all (E207), MPI-IO during a flush (E219)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dliosim.language.checks.access_checks import check_writes
from dliosim.language.diagnostics import Label
from dliosim.language.settings.block_settings import CompiledNouns, Settings
from dliosim.model import Checkpoint, Loop, Prepare, Repeat, Restore, Save, Verb
from dliosim.model.verbs import count_due
from dliosim.readable import count


def check_checkpoint(settings: Settings, built: Checkpoint) -> None:
    """Report the findings about a checkpoint: E204, what its access refuses, and E211 for settings that contradict."""
    if built.access.collective and built.writers.kind != "shared file":
        settings.report(
            "E204",
            "collective access needs one file shared by every rank",
            "use `api mpi-independent`, or let all write one file: `writers all ranks into shared file`",
            ("api", "all ranks must call write together"),
            ("writers", "but not every rank writes to one file", "but each rank writes a file (the default)"),
        )
    check_writes(settings, built.access)
    if built.drain == built.root:
        settings.report(
            "E211",
            f"`{built.name}` would be drained to where it is",
            "name two roots: `root local` with `drain to data`",
            ("drain to", "where complete checkpoints are copied to"),
            ("root", "where they are written", "where they are written (the default)"),
        )
    if built.replicas == "all" and built.writers.kind == "shared file":
        settings.report(
            "E211",
            "`replicas all` does not work with one shared file",
            "use `replicas once` or `replicas dealt`, or files per rank",
            ("replicas", "ranks that hold the same all write it"),
            ("writers", "one file has it once"),
        )
    if built.at_most is not None:
        settings.refuse(
            f"at most {count(built.at_most, 'writer')} at a time",
            ("at most", "ranks take turns"),
            (built.writers.kind == "shared file", "writers", "sync one file together", "write files per rank"),
            (built.writers.kind == "rank", "writers", "are one rank alone", "leave `at most` out"),
            (
                built.partner is not None,
                "partner",
                "all ranks write these copies while they exchange them",
                "leave it out",
            ),
        )
    if built.folder > 0 and built.writers.kind in ("shared file", "rank"):
        settings.report(
            "E211",
            "`folder` does not work with one file of all ranks",
            "leave `folder` out, or write files per rank",
            ("folder", "files of some ranks share one"),
            ("writers", "there is one file"),
        )


def check_cadence_length(settings: Settings, loop: Loop, steps: int) -> None:
    """Report E207 for checkpoints of a loop whose cadence is longer than its `steps`, or than its epochs."""
    for line, cadence in zip(settings.all_lines("checkpoint"), loop.checkpoints, strict=True):
        last, unit = steps if cadence.unit == "steps" else loop.epochs, cadence.unit[:-1]
        if cadence.unit in ("steps", "epochs") and not count_due(cadence, last):
            when = f"from {unit} {cadence.first}" if cadence.first else f"every {cadence.every} {cadence.unit}"
            message = f"checkpoint `{cadence.checkpoint}` {when} is never saved"
            phrase = f"{cadence.checkpoint} every {count(last, unit)}"
            hint = f'write `checkpoint {phrase}`, or give `-D {settings.block.name}.checkpoint="{phrase}"`'
            settings.report("E207", message, hint, [Label(line.phrase, f"the last {unit} is {last}")])


def check_flush_overlap(verbs: Iterable[Verb], nouns: CompiledNouns, settings: Mapping[int, Settings]) -> None:
    """Report E219 if MPI-IO flushes a shared file while another thread of the same ranks calls MPI-IO.

    Both threads would wait in collective calls. Each would hold the one lock of its MPI library, which the other thread
    needs on another rank, so the job would hang.
    """
    known = nouns.checkpoints.items()
    shared = {name for name, kept in known if kept and kept.background and kept.writers.kind == "shared file"}
    at_risk = {name for name in shared if (kept := nouns.checkpoints[name]) and kept.access.is_mpi}
    conflicts = _flush_conflicts(verbs, at_risk, set(), nouns, settings) if at_risk else ()
    for name, label, other in conflicts:
        own = nouns.settings[name]
        own.report(
            "E219",
            f"`{name}` is flushed while {label}",
            "use `api posix` for one of the two, or `writers into file per rank`",
            ("async", "flushed in the background by MPI-IO"),
            ("writers", "one file, of all ranks together"),
            other.labels("api", "while this calls MPI-IO, too"),
        )


def _flush_conflicts(
    verbs: Iterable[Verb], at_risk: set[str], flying: set[str], nouns: CompiledNouns, settings: Mapping[int, Settings]
) -> Iterator[tuple[str, str, Settings]]:
    """Yield the checkpoints of `at_risk` that may be in flight while MPI-IO is called, and what calls it.

    Each is a name, a text for the caller, and the caller's settings. `flying` has the names in flight, and grows.
    """
    for verb in verbs:
        flying |= at_risk & set(_checkpoint_names(verb))  # `repeat`: in flight when its body begins again
        if isinstance(verb, Repeat):
            yield from _flush_conflicts(verb.body, at_risk, flying, nouns, settings)
        elif isinstance(verb, Loop):
            for loop in (verb, *(evaluation.loop for evaluation in verb.evaluations)):
                if loop.access.is_mpi:
                    yield from ((name, f"`{loop.name}` reads", settings[id(loop)]) for name in sorted(flying))
        elif isinstance(verb, Prepare):
            if verb.access.is_mpi:
                label = f"`{verb.dataset}` is prepared"
                yield from ((name, label, settings[id(verb)]) for name in sorted(flying))
        elif isinstance(verb, (Save, Restore)):
            other = nouns.checkpoints.get(verb.checkpoint)
            if other is not None and other.access.is_mpi:
                label = f"`{other.name}` is {'saved' if isinstance(verb, Save) else 'restored'}"
                others = sorted(flying - {other.name})
                yield from ((name, label, nouns.settings[other.name]) for name in others)


def _checkpoint_names(verb: Verb) -> Iterator[str]:
    if isinstance(verb, Save):
        yield verb.checkpoint
    elif isinstance(verb, Loop):
        yield from (cadence.checkpoint for cadence in verb.checkpoints)
    elif isinstance(verb, Repeat) and verb.count > 1:
        for inner in verb.body:
            yield from _checkpoint_names(inner)
