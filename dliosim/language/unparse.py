"""Text of a compiled workload: every setting with its value, and where that value comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from dliosim import model
from dliosim.language.blocks.external_datasets import missing_finder
from dliosim.language.compile import CompiledPattern, compile_document, compile_storage
from dliosim.language.diagnostics import Mistake
from dliosim.language.settings.block_settings import CompileContext, Settings
from dliosim.language.settings.phrases import write_distribution, write_pace, write_phrase, write_size
from dliosim.language.settings.setting_overlay import sub_names
from dliosim.language.source import Span
from dliosim.language.syntax.declarations import WITHOUT_DATA, list_settings
from dliosim.model.access import write_readers
from dliosim.readable import count
from dliosim.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class _OutputLine:
    text: str
    origin: str = ""


def explain_pattern(
    path: Path, overrides: Sequence[tuple[str, str]], job: model.Job, finder: model.Finder = missing_finder
) -> str:
    """Return the resolved pattern, itself a pattern, with the origin of each value as a comment.

    Raises PatternError.
    """
    return write_pattern(compile_document(path, overrides, job, finder))


def explain_storage(path: Path, overrides: Sequence[tuple[str, str]]) -> str:
    """Return the resolved file of a storage, with the origin of each value as a comment. Raises PatternError."""
    compiled = compile_storage(path, overrides)
    storage = compiled.storage
    writer = _PatternWriter(compiled.context, {storage.name: compiled.settings}, {})
    return _align_origins([_OutputLine("dlio 1"), *writer.params(), *writer.noun("storage", storage.name, storage)])


def write_pattern(compiled: CompiledPattern) -> str:
    """Return the text of `dliosim explain FILE`; compiled for the same job, it gives the same workload."""
    workload = compiled.workload
    writer = _PatternWriter(compiled.context, compiled.nouns, compiled.verbs)
    title = f' "{workload.title}"' if workload.title else ""
    seed = compiled.context.document.seed
    job = workload.job
    lines = [
        _OutputLine("dlio 1"),
        _OutputLine(f"workload {workload.name}{title}"),
        _OutputLine(f"# resolved for {count(job.ranks, 'rank')} on {count(job.nodes, 'node')}"),
        *writer.params(),
        _OutputLine(""),
        _OutputLine(f"seed {workload.seed}", writer.origin(seed.phrase) if seed else "default"),
    ]
    for dataset in workload.datasets:
        samples, files = count(dataset.samples, "sample"), count(dataset.layout.files, "file")
        found = f"found: {samples} in {files}" if dataset.source else ""
        lines += writer.noun("dataset", dataset.name, dataset, found)
    models = {kept.model.name: kept.model for kept in workload.checkpoints if kept.model is not None}
    for name, transformer in models.items():
        lines += writer.noun("model", f"{name} transformer", transformer)
    for kept in workload.checkpoints:
        lines += writer.noun("checkpoint", kept.name, kept)
    lines.append(_OutputLine(""))
    for verb in workload.verbs:
        lines += writer.verb(verb)
    if workload.expectations:
        lines += [_OutputLine(""), *(_OutputLine(f"expect {found.text}") for found in workload.expectations)]
    return _align_origins(lines)


def _align_origins(lines: Sequence[_OutputLine]) -> str:
    """Return lines as text, with their origins as comments below each other."""
    width = min(60, max(len(line.text) for line in lines if line.origin))
    return "\n".join(f"{line.text:<{width}}  # {line.origin}" if line.origin else line.text for line in lines)


def write_dataset(dataset: model.Dataset) -> str:
    """Return a pattern that prepares one data set; compiled for any job, it gives the same data set."""
    settings = [f"    {head:<10} {value}" for head, value in list_phrases("dataset", dataset)]
    head = ["dlio 1", "workload prepared", f"seed {dataset.seed}", f"dataset {dataset.name} {{"]
    return "\n".join([*head, *settings, "}", f"prepare {dataset.name}"])


@dataclass(slots=True)
class _PatternWriter:
    context: CompileContext
    nouns: Mapping[str, Settings]
    verbs: Mapping[int, Settings]
    _indent: str = field(default="")

    def origin(self, phrase: Span) -> str:
        """Return the location of a phrase, and the locations of the values of its parameters."""
        names = dict.fromkeys(re.findall(r"\$([A-Za-z_][A-Za-z0-9_]*)", phrase.text))
        params = self.context.document.params
        given = [f"${name} from {params[name].value.location}" for name in names if name in params]
        return ", ".join([phrase.location, *given])

    def params(self) -> Iterator[_OutputLine]:
        scope = self.context.scope
        for param in self.context.document.params.values():
            text = param.value.text
            try:
                value = str(scope.param_value(param))
            except Mistake:
                value = text
            meaning = f" = {text}" if value != text else ""
            yield _OutputLine(f"# param {param.name} = {value}{meaning}", param.value.location)

    def noun(
        self,
        kind: str,
        name: str,
        noun: model.Dataset | model.Transformer | model.Checkpoint | model.StorageModel,
        origin: str = "",
    ) -> Iterator[_OutputLine]:
        yield _OutputLine("")
        yield _OutputLine(f"{kind} {name} {{", origin)
        yield from self._settings(kind, noun, self.nouns[noun.name])
        yield _OutputLine("}")

    def _settings(self, kind: str, owner: Any, settings: Settings) -> Iterator[_OutputLine]:
        first = {line.head: line for line in reversed(settings.lines)}
        named = {(line.head, line.sub): line for line in reversed(settings.lines)}
        for head, value in list_phrases(kind, owner):
            if kind == "dataset" and owner.source and head not in first and head not in ("format", "root"):
                continue  # the files say this
            if isinstance(owner, model.Loop) and not owner.dataset and head not in WITHOUT_DATA:
                continue
            # A pair that no `hint` line gives comes from the set of `hints`.
            other = first.get("hints" if head == "hint" else head)
            line = named.get((head, sub_names(head, value)), other)
            origin = self.origin(line.phrase) if line is not None else "default"
            yield _OutputLine(f"{self._indent}    {head:<10} {value}", origin)

    def verb(self, verb: model.Verb, evaluates: str = "") -> Iterator[_OutputLine]:
        indent, head = self._indent, _VERB_HEADS[type(verb)](verb)
        if not isinstance(verb, (model.Loop, model.Prepare, model.Stage, model.Restore, model.Repeat)):
            yield _OutputLine(f"{indent}{head}")
            return
        yield _OutputLine(f"{indent}{head}{evaluates} {{")
        if not isinstance(verb, model.Repeat):
            yield from self._settings(head.split()[0], verb, self.verbs[id(verb)])
        self._indent = indent + "    "
        for inner in verb.body if isinstance(verb, model.Repeat) else ():
            yield from self.verb(inner)
        for evaluation in verb.evaluations if isinstance(verb, model.Loop) else ():
            yield from self.verb(evaluation.loop, f" every {count(evaluation.every, 'epoch')}{_first(evaluation)}")
        self._indent = indent
        yield _OutputLine(f"{indent}}}")


#: The words of a verb before its block.
_VERB_HEADS: Final[dict[type, Callable[[Any], str]]] = {
    model.Loop: lambda loop: f"{loop.kind} {loop.name}",
    model.Prepare: lambda prepare: f"prepare {prepare.dataset}{' afresh' * prepare.afresh}",
    model.Convert: lambda convert: convert.title,
    model.Stage: lambda stage: f"stage {stage.dataset} to {stage.root}",
    model.Save: lambda save: f"save {save.checkpoint}",
    model.Restore: lambda restore: f"restore {restore.checkpoint}",
    model.Repeat: lambda repeat: f"repeat {repeat.count}",
    model.Pause: lambda pause: f"pause {write_distribution(pause.time, format_seconds)}",
    model.Barrier: lambda _: "barrier",
    model.DropCaches: lambda _: "drop caches",
}


def list_phrases(kind: str, owner: Any) -> Iterator[tuple[str, str]]:
    """Yield the keyword and the phrase of each setting of a dataclass; several phrases of a repeated setting."""
    for setting in list_settings(owner.__class__, kind):
        holder = getattr(owner, setting.inside) if setting.inside else owner
        if holder is None:
            continue
        special = _SPECIAL.get(setting.keyword)
        phrases = special(holder) if special else write_phrase(setting, getattr(holder, setting.field))
        for phrase in phrases if isinstance(phrases, list) else [phrases]:
            if phrase is not None:
                yield setting.keyword, phrase


def _layout(data: model.Dataset) -> str:
    layout = data.layout
    placed = count(layout.files, "file") if layout.kind == "files" else layout.kind
    return placed + (f" in {layout.folders} folders" if layout.folders > 1 else "")


def _shape(data: model.Dataset) -> str | None:
    shape = data.shape
    return f"{' x '.join(map(str, shape.extents))} of {shape.element}" if shape is not None else None


def _columns(owner: model.Dataset | model.Loop) -> str | None:
    if isinstance(owner, model.Loop):
        return None if owner.columns is None else str(owner.columns)
    lengths = ((one, f"{one.length} x " if one.length > 1 else "") for one in owner.columns)
    return ", ".join(f"{one.number} of {length}{one.element}" for one, length in lengths) or None


def _datasets(data: model.Dataset) -> str | None:
    names = ", ".join(f'"{name}"' for name in data.names)
    return names or (None if data.columns else str(data.parts))


def _chunk(data: model.Dataset) -> str | None:
    chunk = data.chunk
    if chunk is None:
        return None
    if chunk.extents:
        return " x ".join(map(str, chunk.extents))
    return count(chunk.number, "sample") if chunk.unit == "samples" else format_bytes(chunk.number)


def _compression(data: model.Dataset) -> str:
    used = data.compress
    return "off" if used is None else f"{used.codec} {used.level}" if used.level else used.codec


def _engine(access: model.Access) -> str | None:
    if access.api not in ("posix", "mpi-independent") or access.through == "library":
        return None  # no other api takes an engine, and a library makes its own calls
    return f"{access.engine} depth {access.depth}" if access.engine == "queued" else access.engine


def _shuffles(loop: model.Loop) -> list[str]:
    shuffle, when = loop.shuffle, ("each epoch", "once")
    scope = f"within buffer of {shuffle.buffer} samples" if shuffle.samples == "within buffer" else shuffle.samples
    samples = [f"samples {scope} {when[shuffle.samples_once]}"] if shuffle.samples != "off" else []
    files = [f"files {shuffle.files} {when[shuffle.files_once]}"] if shuffle.files != "off" else []
    return samples + files or ["off"]


def _sync(loop: model.Loop) -> str:
    sync = loop.sync
    every = f" every {sync.every} steps" if sync.every > 1 else ""
    return f"allreduce {format_bytes(sync.size)}{every}" if sync.kind == "allreduce" else sync.kind + every


def _cold_within(loop: model.Loop) -> str:
    within = loop.cold_within
    return "as they are" if within is None else f"cold each epoch within {format_seconds(within)}"


def _cadence(cadence: model.Cadence) -> str:
    name, unit = cadence.checkpoint, cadence.unit
    if unit == "end":
        return f"{name} at end"
    if unit == "seconds":
        return f"{name} every {format_seconds(cadence.seconds)}"
    return f"{name} every {count(cadence.every, unit[:-1])}{_first(cadence)}"


def _first(one: model.Cadence | model.Evaluation) -> str:
    return f" from {one.first}" if one.first else ""


def _optimizer(transformer: model.Transformer) -> str:
    state = f" {transformer.state}" if transformer.optimizer != "none" or transformer.state != "fp32" else ""
    return transformer.optimizer + state


def _writers(checkpoint: model.Checkpoint) -> str:
    number = checkpoint.writers.number
    return {
        "file per rank": "into file per rank",
        "shared file": "all ranks into shared file",
        "one per": f"one per {count(number, 'rank')}",
        "rank": f"rank {number}",
    }[checkpoint.writers.kind]


def _parallel(owner: model.Checkpoint | model.Restore) -> str | None:
    split = owner.parallel
    return f"{split.phrase}{' subset' if split.played else ''}" if split else None


def _writer_split(restore: model.Restore) -> str | None:
    split = restore.written_by
    if split is None or split.played:
        return f"{split.phrase} subset {split.played}" if split else None
    return count(split.ranks, "rank") if split.tensor == split.pipeline == 1 else split.phrase


def _part(part: model.Part, stages: int) -> str:
    if part.scope in ("total", "per rank"):
        return f"{part.name} {format_bytes(part.size)} {part.scope}"
    held = part.scope if part.scope == "whole" else f"split by {part.scope}"
    where = f" on stage {part.stage}" if stages > 1 else ""
    if not part.row:  # bytes, not a tensor
        return f"{part.name} {format_bytes(part.size)} {held}{where}"
    element = next(name for name, size in model.TYPES.items() if size == part.element)
    return f"{part.name} {part.rows} x {part.row // part.element} of {element} {held}{where}"


def _parts(checkpoint: model.Checkpoint) -> list[str]:
    stages = checkpoint.parallel.pipeline if checkpoint.parallel else 1
    return [_part(part, stages) for part in checkpoint.parts]


def _staging(background: model.Background) -> str:
    how = ["simulated"] if background.simulated else []
    how += [write_pace(background.staging)] if background.staging else []
    return " ".join(how) or "memory"


def _shares(storage: model.StorageModel) -> str:
    return ", ".join(f"{name} {100 * share:g} %" for name, share in storage.uncertain) or "off"


#: Settings whose phrases are not those of one field, by keyword: a phrase, None without one, or several.
_SPECIAL: Final[dict[str, Callable[[Any], str | list[str] | None]]] = {
    "size": lambda data: write_distribution(data.size, write_size) if not (data.shape or data.columns) else None,
    "columns": _columns,
    "shape": _shape,
    "datasets": _datasets,
    "layout": _layout,
    "prepared by": lambda layout: count(layout.files, "rank") if layout.kind == "file per rank" else None,
    "chunk": _chunk,
    "compress": _compression,
    "compressible": lambda data: f"{Decimal(repr(data.compressible)):f} : 1" if data.compressible != 1 else "off",
    "readers": lambda access: f"{write_readers(access.readers, access.processes)} by {access.by}",
    "prefetch": lambda access: count(access.prefetch, "batch", "batches") if access.prefetch else None,
    "cache": lambda access: f"memory {format_bytes(access.memory)}" if access.cache == "memory" else access.cache,
    "engine": _engine,
    "hint": lambda access: [f'"{key}" = "{value}"' for key, value in access.hints],
    "epochs": lambda loop: str(loop.epochs) if loop.arrivals is None else None,
    "shuffle": _shuffles,
    "sync": _sync,
    "caches": _cold_within,
    "checkpoint": lambda loop: [_cadence(cadence) for cadence in loop.checkpoints] or ["off"],
    "optimizer": _optimizer,
    "parallel": _parallel,
    "part": _parts,
    "writers": _writers,
    "folder": lambda checkpoint: {0: "off", 1: "per rank"}.get(checkpoint.folder, "per node"),
    "async": lambda checkpoint: "on" if checkpoint.background else "off",
    "staging": _staging,
    "uncertain": _shares,
    "written by": _writer_split,
    "each": lambda restore: f"of {restore.each} once" if restore.each else None,
    "reads": lambda restore: (
        ("everything" if restore.everything else "own part")
        + " once" * restore.once
        + " without sending" * (not restore.sent)
        + " by file then broadcast" * restore.by_file
    ),
}
