"""The answer of `dliosim saturate`: how many accelerators a storage feeds, and a row for each number that was tried."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dliosim.measure.answers.advice import command_line
from dliosim.measure.results.run_summary import Answer, RunSummary
from dliosim.measure.results.verdicts import NO_STORAGE
from dliosim.measure.saturation import Point, Saturation
from dliosim.readable import count, percent
from dliosim.report.answer_sentences import sentence
from dliosim.report.cells import percent_cell, rate_cell
from dliosim.report.first_lines import Row, first_lines, fit_rows, name_forms, title_results
from dliosim.report.text_table import SCREEN, Column, format_columns

#: Version of what `--json` prints.
_VERSION: Final = 1

#: Where bytes came from, in words.
_SOURCES: Final = {"modelled": "the described storage", "unknown": "storage or memory", "mixed": "storage and memory"}


def saturation_report(begun: RunSummary, found: Saturation, place: Path) -> str:
    """Return the first lines, the table, and where the results are."""
    lines = [saturation_lines(begun, found), saturation_table(found)]
    lines.append(f"side by side: {shlex.join([begun.program, 'report'])} {shlex.quote(str(place))}/*")
    return "\n\n".join(lines) + "\n"


def saturation_lines(begun: RunSummary, found: Saturation) -> str:
    """Return the first lines of a search: `begun` is the run on all ranks before its first verb."""
    shown = found.main_point.answer
    is_memory = shown.source == "memory"
    places = {one.root: one for one in begun.environment.file_systems}
    place = None if begun.modelled else places.get("data")
    forms = [f"MODELLED storage {begun.modelled}"] if begun.modelled else [""]
    title = title_results(name_forms(begun.name), begun.ranks, begun.nodes, place, forms)
    ran, source = count(found.main_point.accelerators, "accelerator"), "memory" if is_memory else "storage"
    doubt = found.doubt
    rows = [
        ("ANSWER", f"{'memory ' if is_memory else ''}{_verdict(found)}, goal {percent(shown.goal, 2)}"),
        *([("WHY", sentence(doubt.reasons[0]))] if doubt is not None and doubt.reasons else []),
        ("NOTE" if found.limit == "ranks" or doubt is not None else "WHY", _explain(found, source)),
        (source.upper(), f"{ran} got {_rate(shown)} from {_name_source(shown)}"),
    ]
    if shown.verdict == NO_STORAGE and shown.reasons:
        rows.append(("LIMIT", f"{shown.verdict}: {sentence(shown.reasons[0])}"))
    advice: list[Row] = []
    if doubt is not None:
        advice += [("TRY", sentence(one)) for one in doubt.advice[:1]]
    elif found.limit == "ranks":
        line = command_line(begun, without=("--most",), ranks=2 * begun.ranks)
        advice.append(("TRY", f"start more ranks; each is an accelerator:\n{line}"))
    return first_lines(*fit_rows(title, rows, advice))


def _verdict(found: Saturation) -> str:
    """Return how many accelerators are fed, with the interval of this number."""
    busy = f"busy {_busy(found.main_point)}"
    if found.doubt is not None or (found.limit == "client" and not found.most):
        number = count(found.main_point.accelerators, "accelerator")
        return f"cannot say{_spread(found)}: {number} {busy}"
    if not found.most:
        return f"does not feed 1 accelerator{_spread(found)}: it is {busy}"
    if found.limit != "storage" and found.low == found.most:
        return f"feeds at least {count(found.most, 'accelerator')}: {busy}"
    return f"feeds {count(found.most, 'accelerator')}{_spread(found)}: {busy}"


def _spread(found: Saturation) -> str:
    return f" ({found.low} to {found.high})" if found.low < found.high else ""


def _explain(found: Saturation, source: str) -> str:
    """Return what ended the search; `source` is what the bytes came from."""
    number, idle = max(found.without_io.items())
    read = "reads nothing is" if number == 1 else "read nothing are"
    alone = f"{count(number, 'accelerator')} that {read} busy {percent(idle, 2)}"
    if found.limit == "client":
        return f"these ranks are the limit: {alone}; take more cores or nodes, or a pattern with longer steps"
    above = found.point_above
    if above is None:
        return f"{source} has no limit up to here; {alone}"
    limit = f"{source} is the limit" if found.doubt is None else f"{source} may be the limit"
    if not found.most:
        return f"{limit}; {alone}"
    tried = (
        f"{count(above.accelerators, 'accelerator')} {'is' if above.accelerators == 1 else 'are'} busy {_busy(above)}"
    )
    return f"{limit}: {tried}{'' if above.is_sure else ', too close to say'}; {alone}"


def _busy(one: Point) -> str:
    """Return the storage-limited utilization, with its interval if that decides."""
    alone = one.answer.storage_utilization
    if alone is None:
        return "-"
    spread = f" ({percent(alone.low, 2)} to {percent(alone.high, 2)})" if not one.is_sure else ""
    return percent(alone.mean, 2) + spread


def _rate(answer: Answer) -> str:
    return rate_cell(answer.got_bytes_per_second.mean if answer.got_bytes_per_second else None)


def _name_source(answer: Answer) -> str:
    return _SOURCES.get(answer.source, f"the {answer.source}" if answer.source == "device" else answer.source)


def saturation_table(found: Saturation) -> str:
    """Return a row for each number of accelerators that was tried."""
    rows = [(str(one.accelerators), one) for one in found.points]
    title = "accelerators tried; busy: only storage counted, with its 95 % interval"
    return format_columns(title, "accelerators", rows, [[one] for one in _COLUMNS], SCREEN)


def _end(one: Point, end: str) -> float | None:
    alone = one.answer.storage_utilization
    return None if alone is None else float(getattr(alone, end))


_COLUMNS: Final[list[Column[Point]]] = [
    Column("busy", lambda one: _end(one, "mean"), percent_cell),
    Column("at least", lambda one: _end(one, "low"), percent_cell),
    Column("at most", lambda one: _end(one, "high"), percent_cell),
    Column("busy with\nall waits", lambda one: one.answer.utilization and one.answer.utilization.mean, percent_cell),
    Column("got", lambda one: one.answer.got_bytes_per_second and one.answer.got_bytes_per_second.mean, rate_cell),
    Column("from", lambda one: one.answer.source, str),
    Column("passes", lambda one: one.passes, str),
]


def saturation_content(begun: RunSummary, found: Saturation) -> dict[str, Any]:
    """Return the object for `--json`."""
    return {
        "schema_version": _VERSION,
        "name": begun.name,
        "loop": found.main_point.answer.loop,
        "goal": found.main_point.answer.goal,
        "storage": begun.modelled or None,
        "accelerators": {"most": found.most, "low": found.low, "high": found.high},
        "limited_by": found.limit,
        "utilization_without_io": {str(number): share for number, share in sorted(found.without_io.items())},
        "points": [_point_content(one) for one in found.points],
    }


def _point_content(one: Point) -> dict[str, Any]:
    answer = one.answer
    return {
        "accelerators": one.accelerators,
        "nodes": one.nodes,
        "verdict": answer.verdict,
        "source": answer.source,
        "storage_utilization": answer.storage_utilization and asdict(answer.storage_utilization),
        "utilization": answer.utilization and asdict(answer.utilization),
        "bytes_per_second": answer.got_bytes_per_second and asdict(answer.got_bytes_per_second),
        "passes": one.passes,
    }
