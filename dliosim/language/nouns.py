"""Data sets, access methods and checkpoints: blocks to the dataclasses of the model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, cast

from dliosim.language import vocabulary
from dliosim.language.diagnostics import Label, Mistake, did_you_mean, mistake
from dliosim.language.document import Block
from dliosim.language.hintsets import Hints, hint_set, with_hints
from dliosim.language.layers import overlay
from dliosim.language.parser import Node
from dliosim.language.settings import Context, Settings, warn_if_not_positive
from dliosim.language.source import Span
from dliosim.model import (
    Access,
    Api,
    Checkpoint,
    Communicator,
    Dataset,
    Engine,
    Layout,
    Order,
    Part,
    Stripe,
    Writers,
    constant,
    ranks_together,
)
from dliosim.model.job import MAX_RANKS
from dliosim.units import SIZE

FORMATS: Final = ("raw", "hdf5", "tfrecord", "npz", "npy", "csv", "indexed", "parquet", "jpeg", "png")
MAX_CHAIN: Final = 32  # data sets made from each other
MAX_TOTAL: Final = 2**62  # bytes of a data set or checkpoint: offsets have 63 bits
WRITE_TRANSFER: Final = 4 << 20
"""The default `transfer` of prepare and checkpoint: bounded memory, and small samples are not written one by one."""
DEPTH: Final = 32  # calls that `engine queued` keeps in flight, as storage that wants several wants at least
MAX_DEPTH: Final = 32768  # entries of the largest ring that the kernel gives


# ---- data sets ----------------------------------------------------------------------------------------------------


def dataset_settings(context: Context, block: Block, chain: tuple[str, ...] = ()) -> Settings:
    """The lines of a data set over those of the one it is made `from`."""
    lines = list(block.settings)
    if "from" in block.header:
        name = block.header["from"].only
        if name.text == block.name or name.text in chain:
            raise mistake("E105", f"data set `{name.text}` is made from itself", name.span, "goes round in a circle")
        if len(chain) >= MAX_CHAIN:
            raise mistake(
                "E105", f"more than {MAX_CHAIN} data sets made from each other", name.span, "too long a chain"
            )
        below = dataset_settings(context, context.noun(name, "dataset"), (*chain, block.name))
        block.broken |= below.block.broken
        lines = overlay(below.lines, lines)
    return Settings(context, block, lines)


def dataset(settings: Settings, seed: int, ranks: int) -> Dataset | None:
    """The data set of a block, or None where a mistake was reported."""
    context, scope = settings.context, settings.context.scope
    before = len(context.found)
    settings.require(("samples", "size", "path"))
    if settings.block.broken:
        return None
    samples = settings.read("samples", lambda node: scope.count(node.only), 1)
    size = settings.read("size", lambda node: scope.quantity(node, SIZE), constant(1))
    warn_if_not_positive(settings, "size", size)
    errors = sum(found.is_error for found in context.found[before:])
    built = Dataset(
        name=settings.block.name,
        seed=seed,
        samples=samples,
        size=size,
        layout=_layout(settings, samples, ranks) if not errors else Layout("shared file", 1),
        path=settings.read("path", _path, "data"),
        root=settings.read("root", lambda node: node.only.text, "data"),
        format=settings.read("format", _format, "raw"),
        header=settings.read("header", lambda node: scope.size(node.only), 0),
        align=settings.read("align", lambda node: scope.size(node.only, 1, 1 << 30), 1),
        stripe=settings.read(
            "stripe",
            lambda node: Stripe(scope.size(node.children[0], 1), scope.count(node.children[1], 1, 1 << 20)),
            None,
        ),
    )
    if not errors:
        _check_total(settings, built)
    return None if any(found.is_error for found in context.found[before:]) else built


def _layout(settings: Settings, samples: int, ranks: int) -> Layout:
    scope = settings.context.scope
    line = settings.given("layout")
    writers = settings.given("prepared by")
    prepared_by = settings.read("prepared by", lambda node: scope.count(node.only), ranks)

    def convert(node: Node) -> Layout:
        kind = node.kind.replace("_", " ")
        if kind == "shared file":
            return Layout("shared file", 1)
        files = {"file per sample": samples, "file per rank": prepared_by}.get(kind)
        if files is None:
            files = scope.count(node.children[0], 1, 1 << 31)
        place = line.phrase if line is not None else node.span
        if files > samples:
            raise mistake(
                "E113",
                f"{files:_} files for {samples:_} samples",
                place,
                "every file needs a sample",
                more=[Label(settings.place("samples"), f"{samples:_} samples")],
            )
        folders = node.find("folders")
        dealt = scope.count(folders.only, 1, files) if folders is not None else 1
        return Layout(cast(Literal["file per sample", "files", "file per rank"], kind), files, dealt)

    layout = settings.read("layout", convert, Layout("file per sample", samples))
    if writers is not None and layout.kind != "file per rank":
        hint = "every other layout is the same whoever prepared it"
        error = mistake(
            "E210",
            "`prepared by` counts with `layout file per rank` only",
            writers.place,
            "no meaning here",
            more=settings.labels("layout", "the layout", "the layout is file per sample"),
            hint=hint,
        )
        settings.context.report(error)
    return layout


def _check_total(settings: Settings, built: Dataset) -> None:
    # A sample is never below 1 B, so the mean of what is drawn may be far above the one that is written.
    largest = built.size.high if built.size.high is not None else built.size.mean_from_zero() + 1
    if built.samples * (largest + built.align) + built.header * built.layout.files > MAX_TOTAL:
        error = mistake(
            "E113",
            f"{built.samples:_} samples of about {largest:.3g} B are over 2^62 bytes",
            settings.place("size"),
            "too large",
            more=[Label(settings.place("samples"))],
        )
        settings.context.report(error)
    if built.size.high is not None and built.size.high < 1:
        error = mistake("E113", "every sample would be smaller than a byte", settings.place("size"), "at least 1 B")
        settings.context.report(error)


def _format(node: Node) -> str:
    name = node.only.text
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise mistake(
            "E003",
            f"unknown format `{name}`",
            node.span,
            "not a format",
            hint=did_you_mean(name, FORMATS) or f"formats: {known}",
        )
    if name not in ("raw", "npy", "csv", "npz", "jpeg", "png", "tfrecord", "hdf5", "indexed", "tar", "parquet"):
        raise mistake("R403", f"format `{name}` is not available yet", node.span, "later work", hint="use `format raw`")
    return name


def _path(node: Node) -> str:
    text = node.only.text[1:-1]
    parts = text.split("/")
    reason = ""
    if not text.strip() or any(letter in "\t\\" for letter in text):
        reason = "not a path"
    elif text.startswith(("/", "~")) or re.match(r"[A-Za-z]:", text):
        reason = "an absolute path"
    elif ".." in parts:
        reason = "`..` leaves the root"
    elif any(len(part.encode()) > 255 for part in parts) or len(text) > 1024:
        reason = "too long"
    if reason:
        hint = "paths are relative to `--dir` (or `--root NAME=DIR`) and stay inside"
        raise mistake("E208", f"a path that leaves its root: {node.only.text}", node.span, reason, hint=hint)
    return "/".join(part for part in parts if part not in ("", ".")) or "."


# ---- access -------------------------------------------------------------------------------------------------------


def with_access(context: Context, block: Block, name: Node | None, heads: Iterable[str]) -> Settings:
    """The lines of a block over those of the access it names; of these, the ones that the block takes."""
    lines = list(block.settings)
    if name is not None:
        taken = [line for line in context.noun(name, "access").settings if line.head in heads]
        lines = overlay(taken, lines)
    return Settings(context, block, lines)


def access(settings: Settings, reads: Layout | None) -> Access:
    """How a block reads a data set of the layout `reads`, or (None) how it writes."""
    scope = settings.context.scope
    writing = reads is None
    readers, by = settings.read("readers", lambda node: _readers(settings, node), (-1, "batch"))
    ahead = settings.read("prefetch", lambda node: scope.count(node.only, 1, 1 << 20), 0)
    if readers < 0:
        readers = 1 if ahead else 0
    prefetch = 0 if readers == 0 else ahead or 2
    per_sample = reads is not None and reads.kind == "file per sample"
    opened: Literal["each sample", "once"] = "each sample" if per_sample else "once"
    world: Communicator = "world"
    communicator = settings.read("communicator", lambda node: _communicator(settings, node), world)
    together = ranks_together(communicator, scope.job)
    hints = settings.read("hints", lambda node: hint_set(node, scope, together), Hints())
    cache, memory = settings.read("cache", lambda node: _cache(settings, node), ("page", 0))
    engine, depth = settings.read("engine", lambda node: _engine(settings, node), ("preadv", 0))
    posix: Api = "posix"
    api = settings.read("api", lambda node: node.kind.replace("_", "-"), posix)
    usual: Order = "by offset" if api == "mpi-collective" else "as planned"
    return Access(
        api=api,
        transfer=settings.read(
            "transfer",
            lambda node: None if node.kind == "whole_sample" else scope.size(node.only, 1, (1 << 31) - 1),
            WRITE_TRANSFER if writing else None,
        ),
        readers=readers,
        by=cast(Literal["batch", "sample"], by),
        prefetch=prefetch,
        open=settings.read(
            "open", lambda node: cast(Literal["each sample", "each epoch", "once"], node.kind.replace("_", " ")), opened
        ),
        cache=cast(Literal["page", "off", "memory"], cache),
        memory=memory,
        hints=with_hints(hints, tuple(settings.convert(line, _hint, ("", "")) for line in settings.all("hint"))),
        hint_set=hints.name,
        order=settings.read("order", lambda node: cast(Order, node.kind.replace("_", " ")), usual),
        communicator=communicator,
        scatter=settings.read("scatter", lambda node: node.kind == "by_node", False),
        engine=cast(Engine, engine),
        depth=depth,
    )


def _readers(settings: Settings, node: Node) -> tuple[int, str]:
    if node.find("PROCESSES") is not None:
        raise mistake(
            "E003",
            "`readers K processes` is kept for a later version of the language",
            node.span,
            "not in version 1",
            hint="readers are threads: `readers 4 by batch`",
        )
    count = settings.context.scope.count(node.children[0], 0, 1024)
    return count, "sample" if node.find("by_sample") is not None else "batch"


def _cache(settings: Settings, node: Node) -> tuple[str, int]:
    if node.kind == "memory":
        if settings.block.kind in ("prepare", "checkpoint"):
            raise mistake(
                "E210", f"`{settings.block.kind}` does not take `cache memory`", node.span, "keeps what is read"
            )
        return "memory", settings.context.scope.size(node.only, 1)
    return node.kind, 0


def _communicator(settings: Settings, node: Node) -> Communicator:
    if node.kind == "neighbours":
        return settings.context.scope.count(node.only, 1, MAX_RANKS)
    return "node" if node.kind == "node" else "world"


def _engine(settings: Settings, node: Node) -> tuple[str, int]:
    if node.kind != "queued":
        return node.kind, 0
    return "queued", settings.context.scope.count(node.only, 1, MAX_DEPTH) if node.children else DEPTH


def _hint(node: Node) -> tuple[str, str]:
    key, value = (child.text[1:-1] for child in node.children)
    if not key.strip():
        raise mistake("E003", "a hint needs a key", node.children[0].span, "empty")
    return key, value


# ---- checkpoints --------------------------------------------------------------------------------------------------


def checkpoint_settings(context: Context, block: Block) -> Settings:
    """The lines of a checkpoint over those of the access it names."""
    name = block.header["with"].only if "with" in block.header else None
    return with_access(context, block, name, vocabulary.WRITING)


def checkpoint(settings: Settings, seed: int, ranks: int) -> Checkpoint | None:
    """The checkpoint of a block, or None where a mistake was reported."""
    context, scope = settings.context, settings.context.scope
    before = len(context.found)
    settings.require(("part", "path"))
    if settings.block.broken:
        return None
    if settings.read("async", lambda node: node.kind == "on", False):
        hint = "a checkpoint blocks; leave the line out"
        context.report(
            mistake(
                "E003",
                "`async on` is kept for a later version of the language",
                settings.place("async"),
                "not in version 1",
                hint=hint,
            )
        )
    built = Checkpoint(
        name=settings.block.name,
        seed=seed,
        parts=tuple(
            part
            for line in settings.all("part")
            if (part := settings.convert(line, lambda node: _part(settings, node), None))
        ),
        writers=settings.read("writers", lambda node: _writers(settings, node, ranks), Writers("file per rank")),
        access=access(settings, None),
        path=settings.read("path", _path, "data"),
        root=settings.read("root", lambda node: node.only.text, "data"),
        fsync=settings.read("fsync", lambda node: node.kind == "on", True),
        keep=settings.read("keep", lambda node: None if node.kind == "all" else scope.count(node.only), None),
    )
    if any(found.is_error for found in context.found[before:]):
        return None
    try:
        check_saved(built, ranks, settings.place("part"))
    except Mistake as error:
        context.report(error)
        return None
    return built


def check_saved(checkpoint: Checkpoint, ranks: int, place: Span) -> None:
    """E113 at `place` where a checkpoint that `ranks` ranks write is too large for any file."""
    total = sum(part.size * (ranks if part.scope == "per rank" else 1) for part in checkpoint.parts)
    if total > MAX_TOTAL:
        message = f"checkpoint `{checkpoint.name}` of {ranks:_} ranks would have {total:.3g} B, over 2^62"
        raise mistake("E113", message, place, "too large")


def _part(settings: Settings, node: Node) -> Part | None:
    scope = "total" if node.kind == "total" else "per rank"
    return Part(
        node.children[0].text,
        settings.context.scope.size(node.children[1], 1),
        cast(Literal["total", "per rank"], scope),
    )


def _writers(settings: Settings, node: Node, ranks: int) -> Writers:
    scope = settings.context.scope
    if node.kind == "one_per":
        return Writers("one per", scope.count(node.only))
    if node.kind == "rank":
        rank = scope.count(node.only, 0)
        if rank >= ranks:
            raise mistake(
                "E209",
                f"rank {rank} does not exist",
                node.only.span,
                "the job has one rank, 0" if ranks == 1 else f"the job has {ranks} ranks, 0 to {ranks - 1}",
                hint="`writers rank 0` works for every number of ranks",
            )
        return Writers("rank", rank)
    return Writers("shared file" if node.kind == "shared_file" else "file per rank")


def guarded_settings(context: Context, block: Block) -> Settings | None:
    """The settings of a noun, or None where a name in its head is wrong, which is reported."""
    try:
        return dataset_settings(context, block) if block.kind == "dataset" else checkpoint_settings(context, block)
    except Mistake as error:
        context.report(error)
        return None
