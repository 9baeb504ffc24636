"""The pattern of `dliosim new --from FILES --generated`: data like existing files, which `prepare` makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dliosim.commands.job.terminal import user_terminal
from dliosim.errors import UsageError
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.datasets.lookalike import Lookalike, describe_files
from dliosim.language.compile import compile_text
from dliosim.language.diagnostics import PatternError
from dliosim.language.unparse import list_phrases
from dliosim.model import Job
from dliosim.readable import count, percent, size
from dliosim.report.progress.progress_line import ProgressLine

#: Settings whose value says nothing, unless it is another one.
_USUAL: Final = {
    "root": "data",
    "header": "0 B",
    "align": "1 B",
    "compress": "off",
    "compressible": "off",
    "sizes": "by sample",
    "datasets": "1",
}
#: The share of the files' bytes below which samples do not stand for them.
_MOST: Final = 0.9

#: The pattern: `SOURCE`, `NAME`, `SAMPLES` and `LINES` stand for what the files say.
_TEMPLATE: Final = Path(__file__).with_name("like_files.dlio")


def make_lookalike(pattern: str, folder: Path) -> tuple[str, list[str]]:
    """Return a pattern of data like the files that a pattern reads below a folder, and what to know of it.

    Raises UsageError for files that cannot be read.
    """
    finder = FileFinder({"data": folder}, ProgressLine(user_terminal()))
    try:
        found = compile_text(pattern, [], Job(1), finder)[0].datasets[0]
    except PatternError as error:
        first = error.diagnostics[0]
        raise UsageError("\n  = help: ".join([f"--generated: {first.message}", *first.help])) from error
    files = finder.sources[found.found]
    made = describe_files(found, files, folder, "NAME/data")
    lines = "\n".join(_list_lines(made))
    where = f"{count(len(files.names), 'file')} of {size(sum(one.size for one in files.indexes), 3)} in all"
    text = (
        _TEMPLATE.read_text(encoding="utf-8")
        .replace("SOURCE", where)
        .replace("SAMPLES", f"{found.samples:_}")
        .replace("LINES", lines)
    )
    notes = list(made.notes)
    if made.described < _MOST:
        notes.insert(0, f"samples are {percent(made.described, 2)} of the bytes of these files: the rest is not made")
    return text, notes


def _list_lines(made: Lookalike) -> Iterator[str]:
    """Yield the lines of the data set, each with how sure it is."""
    dataset = made.dataset
    said = _explain(made)
    for head, value in list_phrases("dataset", dataset):
        if _USUAL.get(head) != value:
            shown = "$samples" if head == "samples" else value
            line = f"    {head:<12} {shown}"
            yield f"{line:<46} # {said[head]}" if head in said else line


def _explain(made: Lookalike) -> dict[str, str]:
    """Return where each setting comes from."""
    dataset = made.dataset
    by = f"by {dataset.compress.codec}" if dataset.compress is not None else "by gzip 1, if storage compresses"
    error = f"the share of samples up to a size differs by {percent(made.size_error, 2)} at most"
    return {
        "samples": "counted",
        "size": "all samples have it" if dataset.size.is_constant else error,
        "shape": "as in the first file; all samples have this size",
        "layout": "counted",
        "chunk": "as in the first file",
        "compress": "as in the first file",
        "compressible": f"these files compress {made.ratio:.3g} : 1 {by}",
    }
