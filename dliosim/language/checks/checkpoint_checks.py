"""Checks of checkpoints: contradicting settings (E211), none saved (E207), no other MPI-IO during a flush (E219)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dliosim.language.diagnostics import Diagnostic, Label
from dliosim.language.settings.block_settings import CompiledNouns, Settings, make_diagnostic
from dliosim.model import Checkpoint, Loop, Prepare, Repeat, Restore, Save, Verb
from dliosim.readable import count


def check_contradictions(settings: Settings, built: Checkpoint) -> list[Diagnostic]:
    """Return E211 for settings that are each right but cannot be used together."""
    shared = built.writers.kind == "shared file"
    refused = [
        (
            built.drain == built.root,
            ("drain to", "where complete checkpoints are copied to"),
            ("root", "where they are written", "where they are written (the default)"),
            f"`{built.name}` would be drained to where it is",
            "name two roots: `root local` with `drain to data`",
        ),
        (
            built.replicas == "all" and shared,
            ("replicas", "ranks that hold the same all write it"),
            ("writers", "one file has it once"),
            "`replicas all` does not work with one shared file",
            "use `replicas once` or `replicas dealt`, or files per rank",
        ),
        (
            built.folder > 0 and built.writers.kind in ("shared file", "rank"),
            ("folder", "files of some ranks share one"),
            ("writers", "there is one file"),
            "`folder` does not work with one file of all ranks",
            "leave `folder` out, or write files per rank",
        ),
    ]
    return [
        make_diagnostic("E211", message, [*settings.labels(*here), *settings.labels(*there)], hint)
        for is_wrong, here, there, message, hint in refused
        if is_wrong
    ]


def check_cadence_length(settings: Settings, loop: Loop, steps: int) -> list[Diagnostic]:
    """Return E207 for checkpoints of a loop whose cadence is longer than its `steps`, or than its epochs."""
    found = []
    for line, cadence in zip(settings.all_lines("checkpoint"), loop.checkpoints, strict=True):
        last = steps if cadence.unit == "steps" else loop.epochs
        if cadence.unit in ("steps", "epochs") and cadence.every > last:
            message = f"checkpoint `{cadence.checkpoint}` every {cadence.every} {cadence.unit} is never saved"
            label = Label(line.phrase, f"the last {cadence.unit[:-1]} is {last}")
            found.append(
                make_diagnostic(
                    "E207", message, [label], f"at most `every {count(last, cadence.unit[:-1])}`, or `at end`"
                )
            )
    return found


def check_flush_overlap(
    verbs: Iterable[Verb], nouns: CompiledNouns, settings: Mapping[int, Settings]
) -> list[Diagnostic]:
    """Return E219 where MPI-IO flushes a shared file while another thread of the same ranks calls MPI-IO.

    Both threads would wait in collective calls. Each would hold the one lock of its MPI library, which the other thread
    needs on another rank, so the job would hang.
    """
    known = nouns.checkpoints.items()
    shared = {name for name, kept in known if kept and kept.background and kept.writers.kind == "shared file"}
    at_risk = {name for name in shared if (kept := nouns.checkpoints[name]) and kept.access.is_mpi}
    found = []
    for name, label, other in _flush_conflicts(verbs, at_risk, set(), nouns, settings) if at_risk else ():
        own = nouns.settings[name]
        labels = [
            *own.labels("async", "flushed in the background by MPI-IO"),
            *own.labels("writers", "one file, of all ranks together"),
            *other.labels("api", "while this calls MPI-IO, too"),
        ]
        hint = "use `api posix` for one of the two, or `writers into file per rank`"
        found.append(make_diagnostic("E219", f"`{name}` is flushed while {label}", labels, hint))
    return list(dict.fromkeys(found))


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
