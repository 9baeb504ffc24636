"""Data sets: compile a block into the dataclass of the model."""

from __future__ import annotations

from typing import Final, Literal, cast

from dliosim.language.blocks import external_datasets, storage_settings
from dliosim.language.diagnostics import Label, mistake
from dliosim.language.settings.block_settings import Settings
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.model import Dataset, Layout
from dliosim.model.dataset import MAX_TOTAL

#: Settings, and their fields, without which nothing can be said about files.
_SIZES: Final = {"samples": "samples", "size": "size", "shape": "shape", "datasets": "parts", "columns": "columns"}


def compile_dataset(settings: Settings, seed: int, ranks: int) -> Dataset | None:
    """Return the data set of a block, or None if a mistake was reported."""
    if settings.find_line("from files") is not None:
        return external_datasets.compile_existing(settings, seed)
    context = settings.context
    before = len(context.found)
    sized = settings.find_line("columns") is not None
    settings.require(("samples",), *([] if sized else [("size", "shape")]), ("path",))
    if settings.block.broken:
        return None
    fields = storage_settings.read_dataset(settings)
    size = storage_settings.sample_size(settings, fields)
    if not all(field in fields or settings.find_line(head) is None for head, field in _SIZES.items()):
        return None  # a mistake is reported, and nothing can be said about files
    if "samples" in fields:
        layout = _layout(settings, fields["samples"], ranks)
    if context.has_errors(before):
        return None
    if "columns" in fields:
        fields["parts"] = sum(one.number for one in fields["columns"])
    built = Dataset(name=settings.block.name, seed=seed, layout=layout, **(fields | {"size": size}))
    for check in (_check_total, _check_sizes, storage_settings.check_format, storage_settings.check_chunk):
        if not context.has_errors(before):
            check(settings, built)
    return None if context.has_errors(before) else built


def _layout(settings: Settings, samples: int, ranks: int) -> Layout:
    scope = settings.context.scope
    line = settings.find_line("layout")
    writers = settings.find_line("prepared by")
    prepared_by = settings.read("prepared by", lambda node: scope.count(node.only_child), ranks)

    def convert(node: SyntaxNode) -> Layout:
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
                more=[Label(settings.setting_span("samples"), f"{samples:_} samples")],
            )
        if samples % files and samples * files >= MAX_TOTAL:
            text = f"{files:_} files that differ in how many of {samples:_} samples they hold"
            raise mistake("E113", text, place, "too many, unless every file holds as many samples")
        folders = node.find("folders")
        dealt = scope.count(folders.only_child, 1, files) if folders is not None else 1
        return Layout(cast(Literal["file per sample", "files", "file per rank"], kind), files, dealt)

    layout = settings.read("layout", convert, Layout("file per sample", samples))
    if writers is not None and layout.kind != "file per rank":
        settings.report(
            "E210",
            "`prepared by` counts with `layout file per rank` only",
            "leave the line out: other layouts are the same for any number of preparing ranks",
            [Label(writers.place, "no meaning here")],
            ("layout", "the layout", "the layout is file per sample"),
        )
    return layout


def _check_sizes(settings: Settings, built: Dataset) -> None:
    if built.sizes == "by file" and built.size.is_constant:
        hint = "leave `sizes` out, or write `size normal(1 MB, 100 kB) clipped to 1 kB and 2 MB`"
        fixed = ("size" if built.shape is None else "shape", "all samples have this one")
        settings.report("E211", "`sizes by file` of one size", hint, ("sizes", "nothing is drawn"), fixed)


def _check_total(settings: Settings, built: Dataset) -> None:
    # Draws below 1 B become 1 B, so the mean of the sizes may be far above the mean that the pattern gives.
    largest = built.size.high if built.size.high is not None else built.size.nonnegative_mean() + 1
    if built.samples * (largest + built.align) + built.header * built.layout.files > MAX_TOTAL:
        message = f"{built.samples:_} samples of about {largest:.3g} B are over 2^62 bytes"
        size = settings.setting_span("size" if built.shape is None else "shape")
        settings.report("E113", message, "", [Label(size, "too large"), Label(settings.setting_span("samples"))])
    if built.size.high is not None and built.size.high < 1:
        place = [Label(settings.setting_span("size"), "at least 1 B")]
        settings.report("E113", "every sample would be smaller than a byte", "", place)
