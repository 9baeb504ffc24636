"""The first lines that a comparison prints: which variant to use and by how much, or why nothing can be said."""

from __future__ import annotations

from collections.abc import Iterator

from dliosim.compare.answer import EITHER, USE
from dliosim.compare.result import ComparisonAnswer
from dliosim.measure.results.run_summary import CANNOT_SAY
from dliosim.readable import count, number
from dliosim.report.answer_sentences import advice_rows, sentence
from dliosim.report.first_lines import (
    FirstRows,
    Row,
    directory_forms,
    first_lines,
    first_rows,
    fit_rows,
    fit_title,
    name_forms,
    name_nodes,
)
from dliosim.report.reader.results import ComparisonResult

_FROM = {
    "device": "from the device",
    "unknown": "source not counted",
    "mixed": "partly from memory",
    "memory": "from memory, not from storage",
}
#: Of saves, which have no caches.
_TO = {
    "device": "to storage, synced",
    "unknown": "destination not counted",
    "mixed": "not all variants sync what they save",
    "memory": "to memory, not to storage",
}
_CACHES = {"cold": "caches dropped before", "warm": "caches filled before"}


def comparison_lines(found: ComparisonResult) -> str:
    """Return the first lines, at most 8: a title, and a line for each question that the comparison can answer."""
    return first_lines(*comparison_rows(found))


def comparison_rows(found: ComparisonResult) -> FirstRows:
    """Return the title and the rows of the first lines."""
    kind, directory = next(((one.kind, one.directory) for one in found.environment.file_systems), ("", ""))
    title = fit_title(
        [f"{name}: {found.what}" for name in name_forms(found.name)],
        [f"{count(found.ranks, 'rank')} on {name_nodes(found.nodes)}"],
        [kind],
        directory_forms(directory),
    )
    return fit_rows(title, list(_rows(found)), advice_rows(found.answer.advice))


def more_limits(found: ComparisonResult) -> list[Row]:
    """Return the limits for which the first lines have no room."""
    shown = comparison_rows(found)[1]
    return [row for row in _rows(found) if row[0] == "LIMIT" and row not in shown]


def limits_below(found: ComparisonResult) -> str:
    """Return the limits for which the first lines have no room, as lines below them; empty if there are none."""
    return first_rows(more_limits(found))


def name_target(what: str) -> str:
    """Return the target of a comparison with its kind: `loop NAME`; `save NAME` has it already."""
    return what if " " in what else f"loop {what}"


def _rows(found: ComparisonResult) -> Iterator[tuple[str, str]]:
    answer = found.answer
    lead = _lead(answer, found.is_stall_comparison)
    if answer.verdict == USE:
        yield "ANSWER", f"use {answer.use}: {lead}"
    elif answer.verdict == EITHER:
        yield "ANSWER", f"{answer.verdict}: {sentence(answer.reasons[0])}"
    else:
        verdict = "" if answer.verdict == CANNOT_SAY else f"{answer.verdict}: "
        yield "ANSWER", f"{verdict}cannot say what to use"
        yield "WHY", sentence(answer.reasons[0])
        if answer.use:
            yield "MEASURED", f"{answer.use}: {lead}"
    if answer.tied:
        tied = (f"{one} (ahead, maybe by chance)" if one in answer.ahead else one for one in answer.tied)
        yield "EQUAL", f"not shown to differ from it: {'; '.join(tied)}"
    source = _FROM[answer.source] if found.caches else _TO[answer.source]
    without = "no checkpoints" if found.without_saves else ""
    parts = [source, _CACHES.get(found.caches, "") if answer.source != "memory" else "", without]
    yield "MEMORY" if answer.source == "memory" else "STORAGE", "; ".join(filter(None, parts))
    yield from (("LIMIT", sentence(one)) for one in answer.limits)


def _lead(answer: ComparisonAnswer, is_stall: bool) -> str:
    """Return by how much the variant to use is better than another, with the interval before the long name."""
    times = f"{number(answer.ratio, 3)} times"
    if answer.ratio_low is not None and answer.ratio_high is not None:
        times += f" (95 %: {number(answer.ratio_low, 3)} to {number(answer.ratio_high, 3)})"
    return f"stalls {times} less than {answer.against}" if is_stall else f"{times} as fast as {answer.against}"
