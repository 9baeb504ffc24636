"""Figures of an analysis: tables for a terminal and for a page, JSON for scripts (docs/analysis.schema.json)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, replace
from itertools import zip_longest
from typing import Any, Final, TypeVar

from dliosim.analyze.figures.access import BIN_NAMES, Access, Direction
from dliosim.analyze.figures.breakdown import FileKind, Function, Layer
from dliosim.analyze.figures.job import Figures
from dliosim.analyze.figures.ranks import Rank, Straggler
from dliosim.analyze.figures.time_split import Bandwidth, TimeSplit
from dliosim.analyze.insights.jobs import Change, Changes, FleetRow
from dliosim.analyze.insights.rules import Finding
from dliosim.boundedjson import drop_nonfinite
from dliosim.readable import ABSENT, number, printable, size
from dliosim.report.cells import percent_cell, text_cell, time_cell
from dliosim.report.text_table import LINE, Column, Table, shorten_name

T = TypeVar("T")

#: Rows of tables that could have one for each rank, function, kind of files, change or bin of time.
_MOST_RANKS, _MOST_FUNCTIONS, _MOST_FILES, _MOST_CHANGES, _MOST_TIMES = 16, 40, 24, 20, 12

#: Letters of a job's name in the table of several.
_LONGEST_JOB = 32

_SPLIT_HEADINGS = {
    "total": "total",
    "io": "I/O",
    "compute": "compute",
    "overlapped": "both",
    "unoverlapped_io": "I/O\nalone",
    "unoverlapped_compute": "compute\nalone",
}


def _bytes(value: float | None) -> str:
    return size(value, 3)


def _name(name: str) -> str:
    return shorten_name(printable(name))


def _share(some: int, of: int) -> float | None:
    return some / of if of else None


def list_tables(figures: Figures, findings: Sequence[Finding]) -> Iterator[Table]:
    """Yield all tables of one job that have rows, the time split first."""
    tables = [
        split_table(figures.split, figures.epochs),
        _draw_longest(_ALL_FUNCTIONS, "more", _FUNCTIONS, figures.functions, _MOST_FUNCTIONS),
        _sizes_table(figures.functions),
        _layers_table(figures.layers),
        *_access_tables(figures.access),
        _draw_longest(_ALL_FILES, "more kinds", _FILES, figures.files, _MOST_FILES),
        _ranks_table(figures.ranks, figures.straggler),
        _bandwidth_table(figures.bandwidth),
        _draw("insights that were looked at", _FINDINGS, findings),
    ]
    yield from (one for one in tables if one.rows)


def split_table(split: TimeSplit, epochs: TimeSplit | None = None) -> Table:
    """Return the time split, by rank and of the union of all ranks; and that of the epochs of loops."""
    times: dict[str, list[float]] = {
        label: [getattr(split.ranks[name], of) for name in _SPLIT_HEADINGS]
        for label, of in (("a rank, mean", "mean"), ("a rank, least", "min"), ("a rank, most", "max"))
    }
    if epochs:
        times["a rank, mean, in epochs"] = [epochs.ranks[name].mean for name in _SPLIT_HEADINGS]
    times["union of all ranks"] = [getattr(split.union, name) for name in _SPLIT_HEADINGS]
    rows = tuple((label, *map(time_cell, values)) for label, values in times.items())
    return Table("time, by unions of intervals", ("", *_SPLIT_HEADINGS.values()), rows)


def _draw(title: str, columns: Sequence[Column[T]], rows: Iterable[T]) -> Table:
    """Return a table with a row of cells for each of `rows`."""
    cells = tuple(tuple(column.cell(row) for column in columns) for row in rows)
    return Table(title, tuple(column.heading for column in columns), cells)


def _draw_longest(title: str, others: str, columns: Sequence[Column[T]], rows: Sequence[T], most: int) -> Table:
    """Return a table of those rows that took longest, which are first."""
    more = len(rows) - most
    return _draw(f"{title}; {more} {others} took less" if more > 0 else title, columns, rows[:most])


_ALL_FUNCTIONS: Final = "functions: time of all ranks and of one call; bytes of all calls"
_ALL_FILES: Final = "files by purpose and ending: calls, bytes, time of all ranks"

_FUNCTIONS: Final[tuple[Column[Function], ...]] = (
    Column("function", lambda one: one.name, _name),
    Column("layer", lambda one: one.layer, str),
    Column("calls", lambda one: one.count, str),
    Column("all ranks", lambda one: one.seconds, time_cell),
    Column("p50", lambda one: one.p50, time_cell),
    Column("p99", lambda one: one.p99, time_cell),
    Column("max", lambda one: one.max, time_cell),
    Column("bytes", lambda one: one.bytes if one.sizes or one.bytes else None, _bytes),
)


def _sizes_table(functions: Sequence[Function]) -> Table:
    rows = [
        (_name(one.name), one.layer, *map(_bytes, astuple(one.sizes)))
        for one in functions[:_MOST_FUNCTIONS]
        if one.sizes
    ]
    headings = ("function", "layer", "least", "25 %", "mean", "median", "75 %", "most")
    return Table("functions: bytes of one call", headings, tuple(rows))


def brief_functions_table(figures: Figures, most: int) -> Table:
    """Return the functions that took longest, in the columns that a terminal has room for."""
    calls = [one for one in figures.functions if one.kind not in ("phase", "epoch", "other")]
    columns = [one for one in _FUNCTIONS if one.heading not in ("layer", "max")]
    return _draw("functions that took longest: time of all ranks, of one call; bytes", columns, calls[:most])


_LAYERS: Final[tuple[Column[Layer], ...]] = (
    Column("layer", lambda one: one.name, str),
    Column("events", lambda one: one.events or "absent", str),
    Column("a rank", lambda one: one.seconds if one.events else None, time_cell),
    Column("events/s", lambda one: number(one.per_second, 3), str),
    Column("bytes", lambda one: one.bytes if one.events else None, _bytes),
    Column("bandwidth", lambda one: f"{_bytes(one.bytes_per_second)}/s" if one.bytes_per_second else ABSENT, str),
    Column("within\nits parent", lambda one: one.overlap, percent_cell),
)


def _layers_table(layers: Sequence[Layer]) -> Table:
    depth = {"": -1}
    for one in layers:
        depth[one.name] = depth[one.parent] + 1
    named = [replace(one, name="  " * depth[one.name] + one.name) for one in layers]
    has_any = any(one.events for one in layers)
    return _draw("layers: time of a mean rank; rates over the union of all ranks", _LAYERS, named if has_any else ())


#: Rows of the table of access.
_ACCESS: Final[tuple[Column[Direction], ...]] = (
    Column("calls", lambda one: one.count, str),
    Column("bytes", lambda one: None if one.mean is None else one.bytes, _bytes),
    Column("first of a process on a file", lambda one: _share(one.first, one.placed), percent_cell),
    Column("consecutive", lambda one: _share(one.consecutive, one.placed), percent_cell),
    Column("sequential, with consecutive", lambda one: _share(one.sequential, one.placed), percent_cell),
    Column("random", lambda one: _share(one.random, one.placed), percent_cell),
    Column("not aligned to 4 KiB", lambda one: _share(one.misaligned, one.placed), percent_cell),
    Column("below 1 MiB", lambda one: _share(one.small, one.sized), percent_cell),
    Column("on shared files", lambda one: _share(one.shared, one.count), percent_cell),
    Column("bytes moved again", lambda one: one.again if one.placed else None, _bytes),
    Column("... within one epoch", lambda one: one.again_in_epoch, _bytes),
)


def _access_tables(access: Access) -> Iterator[Table]:
    sides = {name: one for name, one in (("reads", access.read), ("writes", access.write)) if one.count}
    if not sides:
        return
    headings, both = ("", *sides), sides.values()
    order = f"{access.switches} times the direction changes on a file"
    shared = f"{access.shared_files} of {access.files} files shared"
    rows = tuple((row.heading, *map(row.cell, both)) for row in _ACCESS)
    yield Table(f"access, by process and file: {order}; {shared}", headings, rows)
    bins = [(name, *(str(one.bins[at]) for one in both)) for at, name in enumerate(BIN_NAMES)]
    common = [[f"{_bytes(size)}: {calls}" for size, calls in one.common] for one in both]
    places = enumerate(zip_longest(*common, fillvalue=ABSENT), 1)
    commonest = [(f"commonest, {place}", *cells) for place, cells in places]
    title = "sizes of calls, in Darshan's bins; the commonest sizes, with their calls"
    yield Table(title, headings, (*bins, LINE, *commonest))


_FILES: Final[tuple[Column[FileKind], ...]] = (
    Column("files", lambda one: one.purpose, str),
    Column("name ends", lambda one: printable(one.suffix), text_cell),
    Column("files", lambda one: one.files, str),
    Column("opens", lambda one: one.opens, str),
    Column("calls\nwithout bytes", lambda one: one.metadata, str),
    Column("read", lambda one: one.read, _bytes),
    Column("written", lambda one: one.written, _bytes),
    Column("all ranks", lambda one: one.seconds, time_cell),
)


_RANKS: Final[tuple[Column[Rank], ...]] = (
    Column("rank", lambda one: one.name, str),
    Column("node", lambda one: printable(one.host), text_cell),
    Column("read", lambda one: one.read, _bytes),
    Column("written", lambda one: one.written, _bytes),
    Column("operations", lambda one: one.operations, str),
    Column("I/O", lambda one: one.io, time_cell),
    Column("calls\nwithout bytes", lambda one: one.metadata, time_cell),
)


def _ranks_table(ranks: Sequence[Rank], straggler: Straggler | None) -> Table:
    """Return the ranks, and which of them the others wait for longest."""
    slowest = sorted(ranks, key=lambda one: -one.io)
    half = _MOST_RANKS // 2
    note, is_whole = "", len(ranks) <= _MOST_RANKS
    if not is_whole:
        note = f" (of {len(ranks)} the slowest {half} and the fastest {half})"
        slowest = [*slowest[:half], *slowest[-half:]]
    if straggler:
        where = f"last in {straggler.last} of {straggler.steps} steps" if straggler.by == "step" else "by its I/O"
        amount = f"{time_cell(straggler.behind)} behind their median, {time_cell(straggler.cost)} in all"
        note += f"; the others wait longest for {straggler.name}: {where}, then {amount}"
    table = _draw(f"ranks, the longest I/O first{note}", _RANKS, slowest)
    return table if is_whole else replace(table, rows=(*table.rows[:half], LINE, *table.rows[half:]))


def _bandwidth_table(bandwidth: Bandwidth) -> Table:
    """Return the bandwidth of all ranks in a twelfth of the job each."""
    size = max(len(bandwidth.read) // _MOST_TIMES, 1)
    rows = []
    # A job that took no time, as the trace of one event may have, has no bandwidth.
    has_any = bandwidth.bin_seconds > 0 and (any(bandwidth.read) or any(bandwidth.written))
    for first in range(0, len(bandwidth.read), size) if has_any else ():
        moved = [side[first : first + size] for side in (bandwidth.read, bandwidth.written)]
        length = bandwidth.bin_seconds * len(moved[0])
        rows.append((time_cell(first * bandwidth.bin_seconds), *(f"{_bytes(sum(one) / length)}/s" for one in moved)))
    highest = f"highest in one of {len(bandwidth.read)} bins: {_bytes(bandwidth.highest)}/s"
    return Table(f"bandwidth of all ranks over time; {highest}", ("from", "read", "written"), tuple(rows))


_FINDINGS: Final[tuple[Column[Finding], ...]] = (
    Column("insight", lambda one: one.insight.name, str),
    Column("found", lambda one: "yes" if one.is_met else "no" if one.found else "cannot be said", str),
    Column("figure", lambda one: one.insight.unit(one.found.value) if one.found else "", text_cell),
    Column("threshold", lambda one: one.insight.threshold, str),
    Column("time of a\nmean rank", lambda one: one.found.cost if one.found else None, time_cell),
)


def changes_tables(changes: Changes, names: Sequence[str]) -> Iterator[Table]:
    """Yield the tables of what changed from one job to another."""
    columns: tuple[Column[Change], ...] = (
        Column("", lambda one: shorten_name(printable(one.what), 36), str),
        Column(shorten_name(printable(names[0]), 20), lambda one: _amount(one, one.first), str),
        Column(shorten_name(printable(names[1]), 20), lambda one: _amount(one, one.second), str),
        Column("change", _difference, str),
        Column("of the first", lambda one: f"{number(one.second / one.first, 3)} x" if one.first else "new", str),
    )
    for title, found in (
        ("times of a mean rank, the largest change first", changes.times),
        ("other figures, the largest relative change first", changes.others),
    ):
        if found:
            yield _draw(title, columns, found[:_MOST_CHANGES])


_FLEET: Final[tuple[Column[FleetRow], ...]] = (
    Column("job", lambda one: one.name + (" (incomplete)" if one.incomplete else ""), str),
    Column("time", lambda one: one.seconds, time_cell),
    Column("ranks", lambda one: one.ranks, str),
    Column("bytes", lambda one: one.bytes, _bytes),
    Column("slowest\nrank's I/O", lambda one: one.time_by_slowest, time_cell),
    Column("bytes / that", lambda one: f"{_bytes(one.perf_by_slowest)}/s" if one.perf_by_slowest else "", text_cell),
    Column("first insight", lambda one: one.insight, text_cell),
)


def fleet_table(rows: Sequence[FleetRow]) -> Table:
    """Return a row for each of several jobs."""
    names = _shorten_names([one.name for one in rows])
    named = [replace(one, name=name) for one, name in zip(rows, names, strict=True)]
    return _draw("jobs, the longest I/O of a rank first", _FLEET, named)


def _shorten_names(names: Sequence[str]) -> list[str]:
    """Return names of jobs, each as long as it must be to differ from all others: both ends, or its begin."""
    shown = list(map(printable, names))
    for longest in range(_LONGEST_JOB, max(map(len, shown), default=0), 8):
        for short in (
            [shorten_name(one, longest) for one in shown],
            [one if len(one) <= longest else f"{one[: longest - 3]}..." for one in shown],
        ):
            if len(set(short)) == len(set(shown)):
                return short
    return shown


def _amount(one: Change, value: float) -> str:
    if one.unit == "count":
        return f"{value:.0f}"
    return {"s": time_cell, "B": _bytes, "share": percent_cell}[one.unit](value)


def _difference(one: Change) -> str:
    amount = _amount(one, abs(one.cost))
    return f"{'+' if one.cost > 0 else '-'}{amount.replace('%', 'points') if one.unit == 'share' else amount}"


#: Version of the names and their meaning.
SCHEMA_VERSION = 1


def analysis_json(figures: Figures, findings: Sequence[Finding]) -> str:
    """Return all figures and insights of a job as a line of JSON."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(figures), "insights": list(map(_finding, findings))}
    for side in ("read", "write"):
        one = content["access"][side]
        one["bins"] = dict(zip(BIN_NAMES, one["bins"], strict=True))
    return _line(content)


def changes_json(changes: Changes, names: Sequence[str]) -> str:
    """Return what changed between two jobs as a line of JSON."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "jobs": names,
        **{side: [asdict(one) for one in getattr(changes, side)] for side in ("times", "others")},
        "same": changes.same,
        **{side: list(map(_finding, getattr(changes, side))) for side in ("appeared", "gone")},
    }
    return _line(content)


def fleet_json(rows: Sequence[Any]) -> str:
    """Return a line of JSON for each of several jobs."""
    return "".join(_line({"schema_version": SCHEMA_VERSION, **asdict(one)}) for one in rows)


def _finding(one: Finding) -> dict[str, Any]:
    found = one.found
    return {
        "name": one.insight.name,
        "met": one.is_met,
        "value": found.value if found else None,
        "threshold": one.insight.limit,
        "count": found.count if found else None,
        "least_count": one.insight.least,
        "cost_seconds": found.cost if found else None,
        "words": found.words if found else None,
        "cure": one.insight.cure,
    }


def _line(content: Any) -> str:
    return json.dumps(drop_nonfinite(content), allow_nan=False) + "\n"
