"""Text of a compiled workload: every setting with its value, and where that value comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from dliosim.language import unparse_checkpoints
from dliosim.language.blocks.external_datasets import missing_finder
from dliosim.language.compile import CompiledPattern, compile_document
from dliosim.language.diagnostics import Mistake
from dliosim.language.settings.block_settings import Settings
from dliosim.language.settings.setting_overlay import sub_names
from dliosim.language.source import Span
from dliosim.model import (
    Access,
    Barrier,
    Cadence,
    Compute,
    Dataset,
    Distribution,
    DropCaches,
    Finder,
    Job,
    Loop,
    Pause,
    Prepare,
    Repeat,
    Restore,
    Save,
    Sync,
    Verb,
)
from dliosim.readable import count
from dliosim.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class _OutputLine:
    text: str
    origin: str = ""


def explain_pattern(path: Path, overrides: Sequence[tuple[str, str]], job: Job, finder: Finder = missing_finder) -> str:
    """Return the resolved pattern, itself a pattern, with the origin of each value as a comment.

    Raises PatternError.
    """
    return write_pattern(compile_document(path, overrides, job, finder))


def write_pattern(compiled: CompiledPattern) -> str:
    """Return the text of `dliosim explain FILE`; compiled for the same job, it gives the same workload."""
    workload = compiled.workload
    writer = _PatternWriter(compiled)
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
        lines += [_OutputLine(""), *writer.dataset(dataset)]
    models = {kept.model.name: kept.model for kept in workload.checkpoints if kept.model is not None}
    for name, model in models.items():
        lines += [
            _OutputLine(""),
            *writer.state(f"model {name} transformer", name, unparse_checkpoints.model_phrases(model)),
        ]
    for kept in workload.checkpoints:
        phrases = unparse_checkpoints.checkpoint_phrases(kept, _access_phrases(kept.access))
        lines += [_OutputLine(""), *writer.state(f"checkpoint {kept.name}", kept.name, phrases)]
    lines.append(_OutputLine(""))
    for verb in workload.verbs:
        lines += writer.verb(verb)
    if workload.expectations:
        lines += [_OutputLine(""), *(_OutputLine(f"expect {found.text}") for found in workload.expectations)]
    width = min(60, max(len(line.text) for line in lines if line.origin))
    return "\n".join(f"{line.text:<{width}}  # {line.origin}" if line.origin else line.text for line in lines)


@dataclass(slots=True)
class _PatternWriter:
    compiled: CompiledPattern
    _indent: str = field(default="")

    def origin(self, phrase: Span) -> str:
        """Return the location of a phrase, and the locations of the values of its parameters."""
        names = dict.fromkeys(re.findall(r"\$([A-Za-z_][A-Za-z0-9_]*)", phrase.text))
        params = self.compiled.context.document.params
        given = [f"${name} from {params[name].value.location}" for name in names if name in params]
        return ", ".join([phrase.location, *given])

    def params(self) -> Iterator[_OutputLine]:
        scope = self.compiled.context.scope
        for param in self.compiled.context.document.params.values():
            text = param.value.text
            try:
                value = str(scope.param_value(param))
            except Mistake:
                value = text
            meaning = f" = {text}" if value != text else ""
            yield _OutputLine(f"# param {param.name} = {value}{meaning}", param.value.location)

    def _settings(self, settings: Settings, values: unparse_checkpoints.Phrases) -> Iterator[_OutputLine]:
        first = {line.head: line for line in reversed(settings.lines)}
        named = {(line.head, line.sub): line for line in reversed(settings.lines)}
        for head, value in values:
            if value is None:
                continue
            # A pair that no `hint` line gives comes from the set of `hints`.
            other = first.get("hints" if head == "hint" else head)
            line = named.get((head, sub_names(head, value)), other)
            origin = self.origin(line.phrase) if line is not None else "default"
            yield _OutputLine(f"{self._indent}    {head:<10} {value}", origin)

    def dataset(self, dataset: Dataset) -> Iterator[_OutputLine]:
        if dataset.source:
            yield from self._existing_dataset(dataset)
            return
        layout = dataset.layout
        placed = count(layout.files, "file") if layout.kind == "files" else layout.kind
        yield _OutputLine(f"dataset {dataset.name} {{")
        yield from self._settings(
            self.compiled.nouns[dataset.name],
            [
                ("samples", str(dataset.samples)),
                ("size", _distribution(dataset.size, _bytes) if dataset.shape is None else None),
                ("shape", _shape(dataset)),
                ("datasets", str(dataset.parts)),
                ("layout", placed + (f" in {layout.folders} folders" if layout.folders > 1 else "")),
                ("prepared by", count(layout.files, "rank") if layout.kind == "file per rank" else None),
                ("format", dataset.format),
                ("chunk", _chunk(dataset)),
                ("compress", _compression(dataset)),
                ("compressible", _compressible(dataset)),
                ("stripe", unparse_checkpoints.stripe_phrase(dataset.stripe)),
                ("header", format_bytes(dataset.header)),
                ("align", format_bytes(dataset.align)),
                ("path", f'"{dataset.path}"'),
                ("root", dataset.root),
            ],
        )
        yield _OutputLine("}")

    def _existing_dataset(self, dataset: Dataset) -> Iterator[_OutputLine]:
        settings = self.compiled.nouns[dataset.name]
        found = f"{count(dataset.samples, 'sample')} in {count(dataset.layout.files, 'file')}"
        size = _distribution(dataset.size, _bytes) if settings.find_line("size") is not None else None
        names = ", ".join(f'"{name}"' for name in dataset.names)
        yield _OutputLine(f"dataset {dataset.name} {{", f"found: {found}")
        yield from self._settings(
            settings,
            [
                ("from files", f'"{dataset.source}"'),
                ("format", dataset.format),
                ("size", size),
                ("shape", _shape(dataset)),
                ("datasets", names or None),
                ("root", dataset.root),
            ],
        )
        yield _OutputLine("}")

    def state(self, head: str, name: str, phrases: unparse_checkpoints.Phrases) -> Iterator[_OutputLine]:
        yield _OutputLine(f"{head} {{")
        yield from self._settings(self.compiled.nouns[name], phrases)
        yield _OutputLine("}")

    def verb(self, verb: Verb) -> Iterator[_OutputLine]:
        indent = self._indent
        if isinstance(verb, Loop):
            yield from self._loop(verb, f"{verb.kind} {verb.name} {{")
        elif isinstance(verb, Prepare):
            yield _OutputLine(f"{indent}prepare {verb.dataset}{' afresh' if verb.afresh else ''} {{")
            values: unparse_checkpoints.Phrases = [
                *_access_phrases(verb.access),
                ("fsync", "on" if verb.fsync else "off"),
            ]
            yield from self._settings(self.compiled.verbs[id(verb)], values)
            yield _OutputLine(f"{indent}}}")
        elif isinstance(verb, Restore):
            yield _OutputLine(f"{indent}restore {verb.checkpoint} {{")
            yield from self._settings(self.compiled.verbs[id(verb)], unparse_checkpoints.restore_phrases(verb))
            yield _OutputLine(f"{indent}}}")
        elif isinstance(verb, Repeat):
            yield _OutputLine(f"{indent}repeat {verb.count} {{")
            self._indent = indent + "    "
            for inner in verb.body:
                yield from self.verb(inner)
            self._indent = indent
            yield _OutputLine(f"{indent}}}")
        else:
            yield _OutputLine(indent + _verb_line(verb))

    def _loop(self, loop: Loop, head: str) -> Iterator[_OutputLine]:
        indent, access, shuffle = self._indent, loop.access, loop.shuffle
        when = "once" if shuffle.samples_once else "each epoch"
        scope = f"within buffer of {shuffle.buffer} samples" if shuffle.samples == "within buffer" else shuffle.samples
        files = f"files {shuffle.files} {'once' if shuffle.files_once else 'each epoch'}"
        arrivals = loop.arrivals
        gap = _distribution(arrivals.gap, format_seconds) if arrivals else ""
        yield _OutputLine(indent + head)
        yield from self._settings(
            self.compiled.verbs[id(loop)],
            [
                ("read", loop.dataset),
                ("requests", f"{arrivals.requests} per rank every {gap}" if arrivals else None),
                ("epochs", str(loop.epochs) if arrivals is None else None),
                ("steps", str(loop.steps) if loop.steps is not None else None),
                ("for", format_seconds(loop.seconds) if loop.seconds is not None else None),
                ("batch", f"{loop.batch} per rank"),
                ("shard", loop.shard),
                ("shuffle", f"samples {scope} {when}" if shuffle.samples != "off" else None),
                ("shuffle", files if shuffle.files != "off" else None),
                ("shuffle", "off" if shuffle.samples == shuffle.files == "off" else None),
                ("last batch", loop.last_batch),
                ("shifted by", count(loop.shift, "rank")),
                ("api", access.api),
                ("transfer", "whole sample" if access.transfer is None else format_bytes(access.transfer)),
                ("readers", f"{access.readers} by {access.by}"),
                ("prefetch", count(access.prefetch, "batch", "batches") if access.prefetch else None),
                ("open", access.open),
                ("cache", f"memory {format_bytes(access.memory)}" if access.cache == "memory" else access.cache),
                ("through", access.through),
                ("engine", _engine(access)),
                *_hint_phrases(access),
                ("order", access.order),
                ("communicator", _communicator(access)),
                ("scatter", "by node" if access.scatter else "off"),
                ("decode", "on" if loop.decode else "off"),
                ("preprocess", _compute(loop.preprocess) if loop.preprocess is not None else None),
                ("compute", _compute(loop.compute)),
                ("sync", _sync(loop.sync)),
                *(("checkpoint", _cadence(cadence)) for cadence in loop.checkpoints),
            ],
        )
        self._indent = indent + "    "
        for evaluation in loop.evaluations:
            yield from self._loop(
                evaluation.loop, f"evaluate {evaluation.loop.name} every {count(evaluation.every, 'epoch')} {{"
            )
        self._indent = indent
        yield _OutputLine(f"{indent}}}")


def _verb_line(verb: Save | Pause | Barrier | DropCaches) -> str:
    if isinstance(verb, Save):
        return f"save {verb.checkpoint}"
    if isinstance(verb, Pause):
        return f"pause {_distribution(verb.time, format_seconds)}"
    return "barrier" if isinstance(verb, Barrier) else "drop caches"


def _access_phrases(access: Access) -> unparse_checkpoints.Phrases:
    transfer = "whole sample" if access.transfer is None else format_bytes(access.transfer)
    return [("api", access.api), ("transfer", transfer), ("cache", access.cache), *_hint_phrases(access)]


def _hint_phrases(access: Access) -> unparse_checkpoints.Phrases:
    return [("hints", access.hint_set), *(("hint", f'"{key}" = "{value}"') for key, value in access.hints)]


def _communicator(access: Access) -> str:
    together = access.communicator
    return count(together, "rank") if isinstance(together, int) else together


def _engine(access: Access) -> str | None:
    if access.api not in ("posix", "mpi-independent") or access.through == "library":
        return None  # no other api takes an engine, and a library makes its own calls
    return f"{access.engine} depth {access.depth}" if access.engine == "queued" else access.engine


def _shape(dataset: Dataset) -> str | None:
    shape = dataset.shape
    return f"{' x '.join(map(str, shape.extents))} of {shape.element}" if shape is not None else None


def _chunk(dataset: Dataset) -> str | None:
    chunk = dataset.chunk
    if chunk is None:
        return None
    return count(chunk.number, "sample") if chunk.unit == "samples" else format_bytes(chunk.number)


def _compression(dataset: Dataset) -> str:
    used = dataset.compress
    return "off" if used is None else f"{used.codec} {used.level}" if used.level else used.codec


def _compressible(dataset: Dataset) -> str:
    return "off" if dataset.compressible == 1 else f"{Decimal(repr(dataset.compressible)):f} : 1"


def _compute(compute: Compute) -> str:
    return _distribution(compute.time, format_seconds) + (" busy" if compute.busy else "")


def _sync(sync: Sync) -> str:
    every = f" every {sync.every} steps" if sync.every > 1 else ""
    return f"allreduce {format_bytes(sync.size)}{every}" if sync.kind == "allreduce" else sync.kind + every


def _cadence(cadence: Cadence) -> str:
    name, unit = cadence.checkpoint, cadence.unit
    if unit == "end":
        return f"{name} at end"
    return f"{name} every {format_seconds(cadence.seconds) if unit == 'seconds' else count(cadence.every, unit[:-1])}"


def _bytes(size: float) -> str:
    return format_bytes(int(size)) if size == int(size) else f"{Decimal(repr(size)):f} B"


def _distribution(drawn: Distribution, write: Callable[[float], str]) -> str:
    values = [write(value) for value in drawn.parameters]
    if drawn.is_constant:
        return values[0]
    clip = (
        f" clipped to {write(drawn.low)} and {write(drawn.high)}"
        if drawn.low is not None and drawn.high is not None
        else ""
    )
    return f"{drawn.kind}({', '.join(values)}){clip}"
