"""Compile a pattern file into a Workload in which every name is resolved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeVar

from dliosim.dlio import OVERRIDE_MARKS
from dliosim.language.blocks import checkpoints, datasets, storages
from dliosim.language.blocks.external_datasets import missing_finder
from dliosim.language.blocks.verbs import VerbCompiler
from dliosim.language.checks import checkpoint_checks, data_checks
from dliosim.language.diagnostics import (
    Attempt,
    Diagnostic,
    Label,
    Mistake,
    PatternError,
    TooManyMistakes,
    join_hints,
    mistake,
    suggest_word,
)
from dliosim.language.settings import access, setting_overlay
from dliosim.language.settings.block_settings import CompileContext, CompiledNouns, Settings
from dliosim.language.settings.setting_overlay import inherit_settings
from dliosim.language.source import Span
from dliosim.language.syntax.ast import Document, Param, PatternBlock
from dliosim.language.syntax.loader import Loader
from dliosim.language.values.evaluator import Scope
from dliosim.language.values.quantities import MAX_SIZE, Value, literal_text, nearest_float
from dliosim.model import EXPECTABLE, Checkpoint, Dataset, Expectation, Finder, Job, StorageModel, Transformer, Workload
from dliosim.units import COUNT, FREQUENCY, RATE, RATIO, TIME, format_bytes, format_seconds

T = TypeVar("T")


@dataclass(slots=True)
class CompiledPattern:
    """A workload and the pattern lines that it was made from."""

    #: the compiled workload
    workload: Workload
    #: the document, the scope, and what was found
    context: CompileContext
    #: settings of each data set, model and checkpoint, by name
    nouns: dict[str, Settings]
    #: settings of each loop, prepare and restore, by the id of its model
    verbs: dict[int, Settings]
    #: W codes only, sorted by `_sort_diagnostics`
    warnings: tuple[Diagnostic, ...]


def compile_pattern(
    path: Path, overrides: Sequence[tuple[str, str]], job: Job, finder: Finder = missing_finder
) -> tuple[Workload, tuple[Diagnostic, ...]]:
    """Return the workload that a pattern file describes for a job, and the warnings about it.

    `overrides` are the pairs of `-D name=value`, and of a workload file of DLIO those of its keys
    (`++train.epochs=7`), whose values are in the pattern then. `finder` inspects the files of data sets `from files`
    that a loop reads. Raises PatternError with every mistake found.
    """
    compiled = compile_document(path, overrides, job, finder)
    return compiled.workload, compiled.warnings


def compile_text(
    text: str, overrides: Sequence[tuple[str, str]], job: Job, finder: Finder = missing_finder
) -> tuple[Workload, tuple[Diagnostic, ...]]:
    """Do the work of `compile_pattern` for a text, which includes no other files."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "pattern.dlio")
        path.write_text(text, encoding="utf-8", errors="replace")
        return compile_pattern(path, overrides, job, finder)


def compile_document(
    path: Path, given: Sequence[tuple[str, str]], job: Job, finder: Finder = missing_finder
) -> CompiledPattern:
    """Do the work of `compile_pattern`, and return the document too, which says where each value comes from."""
    loader = Loader()
    return _raise_with_help(loader, lambda: _compile_blocks(loader, path, given, job, finder))


@dataclass(slots=True)
class CompiledStorage:
    """A storage and the lines that it was made from."""

    #: the compiled storage
    storage: StorageModel
    #: the document, the scope, and what was found
    context: CompileContext
    #: settings of the storage
    settings: Settings


def describes_storage(path: Path) -> bool:
    """Return whether a file has a storage and is no pattern."""
    document = Loader().load(path) if path.suffix == ".dlio" else None
    return document is not None and document.workload is None and bool(_list_storages(document))


def compile_storage(path: Path, given: Sequence[tuple[str, str]]) -> CompiledStorage:
    """Return the storage that a file describes, with the pairs of `-D name=value`; PatternError for every mistake."""
    loader = Loader()
    return _raise_with_help(loader, lambda: _compile_storage_block(loader, path, given))


def _list_storages(document: Document) -> list[PatternBlock]:
    return [block for block in document.nouns.values() if block.kind == "storage"]


def _raise_with_help(loader: Loader, compile_file: Callable[[], T]) -> T:
    """Return what a function makes of a file; PatternError with all that the loader found, and suggestions."""
    try:
        return compile_file()
    except TooManyMistakes:
        found = _sort_diagnostics(loader.found)
    except PatternError as error:
        found = list(error.diagnostics)
    from dliosim.language.suggest.add_help import add_help  # nothing that compiles a right pattern needs it

    raise PatternError(add_help(found, loader.document))


def _compile_blocks(
    loader: Loader, path: Path, given: Sequence[tuple[str, str]], job: Job, finder: Finder
) -> CompiledPattern:
    keys = [(name, value) for name, value in given if name.startswith(OVERRIDE_MARKS)]
    given = [pair for pair in given if pair not in keys]
    document = loader.load(path, [name if name[0] == "~" else f"{name}={value}" for name, value in keys])
    if document.workload is None and not loader.found:
        here = document.source.span(0, len(document.source.line(1)))
        hint = 'add `workload NAME "what it does"` below it'
        if _list_storages(document):
            hint = "this file describes a storage: `run`, `plan` and `predict` take it as `PATTERN --storage FILE`"
        loader.found.append(mistake("E003", "a pattern needs a `workload` line", here, hint=hint).diagnostic)
    context = _apply_values(loader, document, given, job, finder)
    seed = _seed(context)
    known = _compile_nouns(context, seed, job)
    verbs = VerbCompiler(context, known, finder)
    body = verbs.compile_verbs(document.verbs)
    checkpoint_checks.check_flush_overlap(body, known, verbs.settings)
    data_checks.check_stages(body, verbs.settings)
    if not document.verbs and not loader.found:
        here = document.workload.span if document.workload else document.source.span(0, 0)
        hint = "add verbs, such as `prepare D` and `train { read D }`"
        context.report(mistake("E003", "the pattern does nothing", here, "no verb follows", hint=hint))
    expectations = _compile_expectations(context, verbs)
    if not any(found.is_error for found in loader.found):
        _warn_unused(context, [phrase for _, phrase in given])
    diagnostics = _sort_diagnostics(loader.found)
    workload = document.workload
    if workload is None or any(found.is_error for found in diagnostics):
        raise PatternError(diagnostics)
    title = workload.find("STRING")
    made = Workload(
        name=workload.children[0].text,
        title=title.text[1:-1] if title is not None else "",
        seed=seed,
        job=job,
        datasets=tuple(data for data in known.datasets.values() if data is not None and data.name in known.used),
        checkpoints=tuple(kept for kept in known.checkpoints.values() if kept is not None and kept.name in known.used),
        verbs=body,
        expectations=expectations,
        pattern=document.source.text,
        overrides=tuple((name, value) for name, value in given),
        scale=_scale(context),
        accelerator=_accelerator(context, given),
    )
    return CompiledPattern(made, context, dict(known.settings), verbs.settings, tuple(diagnostics))


def _apply_values(
    loader: Loader, document: Document, given: Sequence[tuple[str, str]], job: Job, finder: Finder
) -> CompileContext:
    """Return the document with its overrides, and its parameters checked."""
    scope = Scope(document.params, job, document.broken, writes_paths=finder is not missing_finder)
    context = CompileContext(document, scope, loader.found)
    setting_overlay.apply_overrides(context, given)
    for param in document.params.values():
        if param.name in context.scope.broken:
            continue
        before = len(context.found)
        with context.reporting(attempt=_describe_param(context, param)):
            context.scope.check_param(param)
        if context.has_errors(before):
            context.scope.broken.add(param.name)
    return context


def _compile_storage_block(loader: Loader, path: Path, given: Sequence[tuple[str, str]]) -> CompiledStorage:
    document = loader.load(path)
    context = _apply_values(loader, document, given, Job(1), missing_finder)
    blocks = _list_storages(document)
    if len(blocks) != 1 and not loader.found:
        here = blocks[1].place if blocks else document.source.span(0, len(document.source.line(1)))
        message = f"a file describes one storage, not {len(blocks)}"
        loader.found.append(mistake("E003", message, here, hint="write `storage NAME {`, and `}` below it").diagnostic)
    for block in blocks[:1]:
        settings = Settings(context, block, block.settings)
        built = storages.compile_storage(settings)
        if built is not None and not any(found.is_error for found in loader.found):
            return CompiledStorage(built, context, settings)
    raise PatternError(_sort_diagnostics(loader.found))


def _seed(context: CompileContext) -> int:
    line = context.document.seed
    if line is None:
        return 0
    accepts = partial(context.scope.has_dimension, dimensions=(COUNT,))
    with context.reporting(line.phrase, Attempt("seed", "", line.phrase, accepts)):
        return context.scope.count(context.scope.phrase("count", line.phrase).only_child, 0, 2**63 - 1)
    return 0


def _scale(context: CompileContext) -> int:
    """Return the parameter `scale` of a pattern whose description says that 1 is the published or real size; else 1."""
    param = context.document.params.get("scale")
    if param is None:
        return 1
    source, start = param.place.source, param.place.start
    described = re.search("1 is the (published|real) size", source.line(source.position(start)[0]))
    try:
        return int(context.scope.param_value(param).amount) if described else 1
    except Mistake:  # a word
        return 1


def _accelerator(context: CompileContext, given: Sequence[tuple[str, str]]) -> str:
    """Return the parameter `accelerator`, if loops take their compute from it; else an empty text."""
    param = context.document.params.get("accelerator")
    replaced = any(name.rpartition(".")[2] == "compute" for name, _ in given)
    return param.value.text if param and "accelerator" in context.scope.used and not replaced else ""


def _describe_param(context: CompileContext, param: Param) -> Attempt:
    """Return what a value of a parameter was to be: one of its domain, or a quantity like its default."""
    domain, head = param.domain, f"param {param.name} ="
    choices = [" ".join(choice.text.split()) for choice in domain.children] if domain else []
    if domain is None or domain.kind == "between":
        return Attempt(head, "", param.value, partial(context.scope.has_kind_of, param), (*choices, param.default.text))
    return Attempt(head, "", param.value, choices.__contains__, tuple(choices))


def _compile_nouns(context: CompileContext, seed: int, job: Job) -> CompiledNouns:
    data: dict[str, Dataset | None] = {}
    models: dict[str, Transformer | None] = {}
    kept: dict[str, Checkpoint | None] = {}
    settings: dict[str, Settings] = {}
    blocks = context.document.nouns
    for name, block in sorted(blocks.items(), key=lambda item: item[1].kind == "checkpoint"):  # models first
        if block.kind == "access":
            # Only its mistakes matter here; each loop that uses it compiles it again.
            access.compile_access(Settings(context, block, block.settings), None)
            continue
        if block.kind == "storage":
            storages.compile_storage(Settings(context, block, block.settings))
            continue
        found = _noun_settings(context, block)
        if found is None:
            (data if block.kind == "dataset" else models if block.kind == "model" else kept)[name] = None
            continue
        settings[name] = found
        if block.kind == "dataset":
            data[name] = datasets.compile_dataset(found, seed, job.ranks)
        elif block.kind == "model":
            models[name] = checkpoints.compile_transformer(found)
        else:
            kept[name] = built = checkpoints.compile_checkpoint(found, seed, models)
            if built is not None:
                checkpoint_checks.check_checkpoint(found, built)
    return CompiledNouns(data, kept, settings)


def _noun_settings(context: CompileContext, block: PatternBlock) -> Settings | None:
    """Return the settings of a noun, or None if a name in its head is wrong; that mistake is reported."""
    with context.reporting():
        if block.kind == "checkpoint":
            return access.merge_access(context, block, block.header.get("with"))
        return inherit_settings(context, block)
    return None


def _compile_expectations(context: CompileContext, verbs: VerbCompiler) -> tuple[Expectation, ...]:
    """Return all `expect` lines; E102 for two bounds of one kind on one figure of one loop.

    Throughput may have one bound in B/s and one in samples/s.
    """
    made: dict[tuple[str, str, str, str], tuple[Expectation, Span]] = {}
    for block in context.document.expects:
        found = _compile_expectation(context, block, verbs)
        if found is None:
            continue
        first = made.setdefault((found.figure, found.loop, found.bound, found.unit), (found, block.place))[1]
        if first is not block.place:
            message = f"`{found.figure}` of `{found.loop}` has two bounds `{found.bound}`"
            context.report(mistake("E102", message, block.place, "again here", more=[Label(first, "first here")]))
    return tuple(found for found, _ in made.values())


#: The dimension of a unit of figures; others are counts.
_DIMENSIONS: Final = {"ratio": RATIO, "B/s": RATE, "samples/s": FREQUENCY, "s": TIME}


def _compile_expectation(context: CompileContext, block: PatternBlock, verbs: VerbCompiler) -> Expectation | None:
    figure = block.header["FIGURE"].text
    with context.reporting():
        value = context.scope.value(block.header["value"])
        unit = {_DIMENSIONS.get(unit, COUNT): unit for unit in EXPECTABLE[figure].units}.get(value.dimension)
        if unit is None:
            raise _wrong_dimension(figure, value, block.place)
        if not 0 < nearest_float(value.amount) <= (1 if unit == "ratio" else MAX_SIZE):
            bounds = "0 % to 100 %" if unit == "ratio" else f"must be above 0, and at most {MAX_SIZE:.0e}"
            raise mistake("E113", f"`{figure}` cannot be {value}", value.span, bounds)
        loop = _find_loop(context, block, verbs)
        _refuse_unread(context, block, loop)
        if figure == "utilization":
            _refuse_requests(context, block, loop)
        bound: Literal["at least", "at most"] = "at least" if "at_least" in block.header else "at most"
        return Expectation(
            figure,
            loop,
            bound,
            float(value.amount),
            unit,
            f"{figure} of {loop} {bound} {literal_text(value) or _exact_text(value)}",
        )
    return None


def _wrong_dimension(figure: str, value: Value, phrase: Span) -> Mistake:
    """Return the E111 for a value that cannot bound a figure; mostly its unit was left out."""
    expectable, missing = EXPECTABLE[figure], value.dimension == COUNT
    needed = " or ".join(str(_DIMENSIONS.get(unit, COUNT)) for unit in expectable.units)
    label = f"this is {value.dimension}" + ("; a unit is missing" if missing else "")
    text, attempt = f"`{figure}` is {needed}, not {value.dimension}", Attempt("expect", "", phrase)
    return mistake("E111", text, value.span, label, hint=expectable.written, attempt=attempt)


def _exact_text(value: Value) -> str:
    """Return the text of a computed value; parsed again, the text gives the same value."""
    exact = Decimal(repr(float(value.amount)))
    if value.dimension == RATIO:
        return f"{(exact * 100).normalize():f} %"
    if value.dimension == TIME:
        return format_seconds(float(value.amount))
    if value.dimension == RATE and value.amount.denominator == 1:
        return f"{format_bytes(int(value.amount))}/s"
    return f"{exact.normalize():f}{ {RATE: ' B/s', FREQUENCY: ' samples/s'}.get(value.dimension, '') }"


def _find_loop(context: CompileContext, block: PatternBlock, verbs: VerbCompiler) -> str:
    names = [loop.name for loop in context.document.loops()]
    listed = f"loops here: {', '.join(names) or 'none'}"
    name = block.header.get("NAME")
    if name is None:
        if loop := block.name.partition(" ")[2]:
            return loop  # `_name_expected_loops` has set it to the only loop of its file
        if len(names) != 1:
            figure, phrase = block.header["FIGURE"].span, block.place.text
            lines = [f"`expect {figure.text} of {one}{phrase.removeprefix(figure.text)}`" for one in names[:3]]
            hint = (
                f"write {' or '.join(lines)}" if lines else "add a loop, as `train { read D }`, or leave the line out"
            )
            raise mistake("E003", "name the loop", figure, "expected `of NAME`", hint=hint)
        return names[0]
    if name.text not in names:
        hint = join_hints(suggest_word(name.text, names), listed)
        raise mistake("E101", f"unknown loop `{name.text}`", name.span, "not defined", hint=hint)
    return name.text


def _refuse_unread(context: CompileContext, block: PatternBlock, name: str) -> None:
    """Raise E211 for an `expect` of a loop that reads nothing."""
    loop = next((one for one in context.document.loops() if one.name == name), None)
    if loop is None or loop.broken or any(line.head == "read" for line in loop.settings):
        return
    raise mistake(
        "E211",
        f"`{block.header['FIGURE'].text}` of `{name}`, which reads nothing",
        block.header["FIGURE"].span,
        "says how storage feeds a loop",
        more=[Label(loop.place, "no `read`")],
        hint=f"leave this line out, or add `{context.example_read()}` to `{name}`",
    )


def _refuse_requests(context: CompileContext, block: PatternBlock, loop: str) -> None:
    """Raise E211 for `expect utilization` of a loop with `requests`: the requests decide how idle the loop is."""
    loops = (verb for verb in context.document.walk_verbs() if verb.kind == "infer" and verb.name == loop)
    line = next((line for verb in loops for line in verb.settings if line.head == "requests"), None)
    if line is not None:
        raise mistake(
            "E211",
            f"`utilization` of `{loop}`, which waits for requests",
            block.header["FIGURE"].span,
            "how idle it is depends on them",
            more=[Label(line.place, "they come when they come")],
            hint="expect `p99` or `throughput` of it",
        )


def _warn_unused(context: CompileContext, overrides: Sequence[str]) -> None:
    """Add W302 for each name that no line refers to, or only lines that one of these phrases of a -D replaced.

    A -D that says `off` replaces lines on purpose: then only names that no line refers to are reported.
    """
    document = context.document
    text = re.sub(r'"[^"\n]*"|#[^\n]*', "", document.source.text)
    mentioned = Counter(re.findall(r"\$?\w+", text)) if overrides else Counter()

    def report(name: str, place: Span, replaced: bool) -> None:
        if not (replaced and "off" in overrides):
            why = "-D replaced the only lines that refer to it" if replaced else "nothing refers to it"
            context.found.append(Diagnostic("W302", f"{name} is never used", (Label(place, why),)))

    for noun in document.nouns.values():
        if noun.own and noun.name not in context.used:
            report(f"{noun.kind} `{noun.name}`", noun.place, mentioned[noun.name] > 1)
    for param in document.params.values():
        replaced = mentioned["$" + param.name] > 0
        # One with its default is replaced on purpose, too.
        if param.own and param.name not in context.scope.used and not (replaced and param.value == param.default):
            report(f"parameter `{param.name}`", param.place, replaced)


def _sort_diagnostics(found: list[Diagnostic]) -> list[Diagnostic]:
    """Return each diagnostic once: errors first, then by file and by position in the file."""
    unique = list(dict.fromkeys(found))
    files = list(dict.fromkeys(diagnostic.labels[0].span.source.name for diagnostic in unique if diagnostic.labels))

    def key(diagnostic: Diagnostic) -> tuple[bool, int, int]:
        if not diagnostic.labels:
            return (not diagnostic.is_error, -1, 0)
        span = diagnostic.labels[0].span
        return (not diagnostic.is_error, files.index(span.source.name), span.start)

    return sorted(unique, key=key)
