"""Data sets `from files`: the files exist, and the pattern describes only what they do not tell."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from dliosim.errors import HELP, DliosimError, UsageError
from dliosim.language.blocks import storage_settings
from dliosim.language.diagnostics import Mistake, mistake
from dliosim.language.settings.block_settings import Settings
from dliosim.language.settings.phrases import path_below_root
from dliosim.language.source import Span
from dliosim.language.syntax.declarations import list_settings
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.model import Dataset, FileSurvey, Finder, Layout, constant
from dliosim.model.dataset import UNKNOWN_SIZE

#: Formats whose files need not say how large their samples are, or which of their axes counts samples.
_MAY_SAY: Final = {"size": ("raw", "npy", "indexed"), "shape": ("raw", "npy", "npz", "indexed")}
#: Formats by the endings of files; files of any other ending are raw.
FORMAT_OF_ENDING: Final = {
    ".h5": "hdf5", ".hdf5": "hdf5", ".he5": "hdf5", ".nc4": "hdf5", ".tfrecord": "tfrecord", ".tfrecords": "tfrecord",
    ".npy": "npy", ".npz": "npz", ".csv": "csv", ".bin": "indexed", ".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png",
    ".parquet": "parquet", ".tar": "tar",
}  # fmt: skip


def missing_finder(dataset: Dataset) -> FileSurvey:
    """Raise UsageError [R403]: the finder of callers that cannot inspect files."""
    text = f"reading existing files is not possible here, so those of `{dataset.name}` are not found"
    cure = "describe them: `dliosim new mine --from FILES --generated` writes a pattern with data like them"
    raise UsageError(f"{text}{HELP}{cure}", "R403")


def compile_existing(settings: Settings, seed: int) -> Dataset | None:
    """Return the data set of a block with `from files`, or None if a mistake was reported.

    Facts that only the files have (samples, layout, sizes) are placeholders until `inspect_files`.
    """
    context = settings.context
    before = len(context.found)
    if settings.block.broken:
        return None
    fixed = [one for one in list_settings(Dataset, "dataset") if one.phrase.fixed]
    unread = dict.fromkeys(one.field for one in fixed)
    fields = storage_settings.read_dataset(
        settings, **unread, parts=_names, source=partial(_file_pattern, context.scope)
    )
    source = fields.get("source", "")
    suffix = PurePosixPath(source).suffix.lower()
    if source and settings.find_line("format") is None and not re.search("[a-z]", suffix):
        message, place = "these names do not say which format the files have", settings.setting_span("from files")
        hint = f"name it: `format raw`, or {', '.join(sorted(set(FORMAT_OF_ENDING.values())))}"
        context.report(mistake("E215", message, place, "no ending", hint=hint))
    form = fields.setdefault("format", FORMAT_OF_ENDING.get(suffix, "raw"))
    refused = {head: "" for head in ("size", "shape") if form not in _MAY_SAY[head]}
    refused |= {one.keyword: one.phrase.fixed for one in fixed}
    for head, reason in refused.items():
        if settings.find_line(head) is not None:
            said = (head, f"the files say this: {reason}" if reason else "the files say this")
            message = f"`{head}` with `from files`"
            settings.report("E215", message, f"leave `{head}` out", said, ("from files", "these files"))
    shaped = fields.get("shape")
    storage_settings.check_size_and_shape(settings, shaped)
    if context.has_errors(before):
        return None
    fields |= {"samples": 1, "layout": Layout("shared file", 1), "path": "."}
    fields["size"] = constant(float(shaped.size)) if shaped else fields.get("size", UNKNOWN_SIZE)
    built = Dataset(name=settings.block.name, seed=seed, **fields)
    storage_settings.check_format(settings, built)
    return None if context.has_errors(before) else built


def inspect_files(settings: Settings, built: Dataset, finder: Finder) -> Dataset | None:
    """Return the data set with the facts of its files; None if they cannot be found or read, which is reported.

    UsageError if the command line does not say where the files are.
    """
    place = settings.setting_span("from files")
    try:
        found = finder(built)
    except DliosimError as error:
        if isinstance(error, UsageError) and error.code is None:
            raise  # an error in the command line, not in the pattern
        message, _, hint = error.message.partition(HELP)
        settings.context.report(mistake(error.code or "R401", message, place, "these files", hint=hint))
        return None
    if found.samples < 1 or found.files < 1:
        message = f"no samples in the files of `{built.name}`"
        settings.context.report(mistake("R401", message, place, "these files"))
        return None
    layout = Layout("files", found.files)
    if found.files == 1:
        layout = Layout("shared file", 1)
    elif found.files == found.samples and found.counts is None:
        layout = Layout("file per sample", found.files)
    size = built.size if found.size == UNKNOWN_SIZE else found.size
    return replace(built, samples=found.samples, layout=layout, size=size, found=found.digest, counts=found.counts)


def prepare_refusal(settings: Settings, place: Span) -> Mistake:
    """Return the E215 for `prepare` of files that exist already."""
    message = f"`{settings.block.name}` is read from files that are there already"
    more = settings.labels("from files", "these files")
    return mistake("E215", message, place, "nothing to write", more=more, hint="leave the line out")


def _file_pattern(scope: Scope, node: SyntaxNode) -> str:
    text = path_below_root(scope, node.only_child, "from files")
    for part in text.split("/"):
        if "**" in part and part != "**":
            hint = f'write `from files "{re.sub(r"(?<!/)[*]{2,}|[*]{2,}(?!/)", "*", text)}"`'
            raise mistake("E003", f"`**` inside of `{part}`", node.span, "stands for whole folders", hint=hint)
    if text == "." or text.endswith("**"):
        hint = f'write `from files "{"" if text == "." else text + "/"}*.h5"`'
        raise mistake("E003", "a folder, and no files", node.span, "names no files", hint=hint)
    return text


def _names(node: SyntaxNode) -> dict[str, tuple[str, ...]]:
    if node.kind == "number":
        hint = 'write their names: `datasets "image", "label"`'
        raise mistake("E215", "a number of data sets with `from files`", node.span, "the files say this", hint=hint)
    names: list[str] = []
    kept = dict.fromkeys(child.text for child in node.children if child.text[1:-1].strip())
    hint = f"write `datasets {', '.join(kept)}`" if kept else "name them, or leave the line out"
    for child in node.children:
        name = child.text[1:-1]
        if not name.strip():
            raise mistake("E003", "a data set needs a name", child.span, "empty", hint=hint)
        if name in names:
            raise mistake("E102", f"data set {child.text} is named twice", child.span, "again here", hint=hint)
        names.append(name)
    return {"names": tuple(names)}
