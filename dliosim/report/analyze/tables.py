"""Tables of an analysis, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from dliosim.analyze.access import BIN_NAMES, Access, Direction
from dliosim.analyze.changes import Change, Changes
from dliosim.analyze.figures import Figures
from dliosim.analyze.fleet import FleetRow
from dliosim.analyze.insights import Finding
from dliosim.analyze.layers import Layer
from dliosim.analyze.over_time import Bandwidth
from dliosim.analyze.ranks import Rank, Straggler
from dliosim.analyze.time_split import Split, TimeSplit
from dliosim.readable import ABSENT, number, percent, printable, seconds, size
from dliosim.report.text_table import Table, shorten_name

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


def list_tables(figures: Figures, findings: Sequence[Finding]) -> Iterator[Table]:
    """Yield all tables of one job that have rows, the time split first."""
    tables = [
        split_table(figures.split, figures.epochs),
        functions_table(figures),
        _sizes_table(figures),
        _layers_table(figures.layers),
        *_access_tables(figures.access),
        _files_table(figures),
        _ranks_table(figures.ranks, figures.straggler),
        _bandwidth_table(figures.bandwidth),
        findings_table(findings),
    ]
    yield from (one for one in tables if one.rows)


def split_table(split: TimeSplit, epochs: TimeSplit | None = None) -> Table:
    """Return the time split, by rank and of the union of all ranks; and that of the epochs of loops."""
    rows = [
        (label, *(_time(getattr(split.ranks[one.name], of)) for one in fields(Split)))
        for label, of in (("a rank, mean", "mean"), ("a rank, least", "min"), ("a rank, most", "max"))
    ]
    union = ("union of all ranks", *(_time(getattr(split.union, one.name)) for one in fields(Split)))
    within = epochs and ("a rank, mean, in epochs", *(_time(epochs.ranks[one.name].mean) for one in fields(Split)))
    return Table(
        "time, by unions of intervals", ("", *_SPLIT_HEADINGS.values()), (*rows, *([within] if within else []), union)
    )


def functions_table(figures: Figures, most: int = _MOST_FUNCTIONS) -> Table:
    """Return the functions, those that took longest first."""
    rows = []
    for one in figures.functions[:most]:
        times = (_time(value) for value in (one.seconds, one.p50, one.p99, one.max))
        moved = _bytes(one.bytes) if one.sizes or one.bytes else ABSENT
        rows.append((shorten_name(printable(one.name)), one.layer, str(one.count), *times, moved))
    more = len(figures.functions) - len(rows)
    note = f"; {more} more took less" if more else ""
    headings = ("function", "layer", "calls", "all ranks", "p50", "p99", "max", "bytes")
    return Table(f"functions: time of all ranks and of one call; bytes of all calls{note}", headings, tuple(rows))


def _sizes_table(figures: Figures) -> Table:
    rows = []
    for one in figures.functions[:_MOST_FUNCTIONS]:
        if one.sizes:
            sizes = (_bytes(getattr(one.sizes, part.name)) for part in fields(one.sizes))
            rows.append((shorten_name(printable(one.name)), one.layer, *sizes))
    headings = ("function", "layer", "least", "25 %", "mean", "median", "75 %", "most")
    return Table("functions: bytes of one call", headings, tuple(rows))


def brief_functions_table(figures: Figures, most: int) -> Table:
    """Return the functions that took longest, in the columns that a terminal has room for."""
    calls = tuple(one for one in figures.functions if one.kind not in ("phase", "epoch", "other"))
    whole = functions_table(replace(figures, functions=calls), most)
    chosen = (0, 2, 3, 4, 5, 7)
    return Table(
        "functions that took longest: time of all ranks, of one call; bytes",
        tuple(whole.headings[column] for column in chosen),
        tuple(tuple(row[column] for column in chosen) for row in whole.rows),
    )


def _layers_table(layers: Sequence[Layer]) -> Table:
    rows = []
    depth = {"": -1}
    for one in layers:
        depth[one.name] = depth[one.parent] + 1
        name = "  " * depth[one.name] + one.name
        rate = f"{_bytes(one.bytes_per_second)}/s" if one.bytes_per_second else ABSENT
        cells = (
            str(one.events),
            _time(one.seconds),
            number(one.per_second, 3),
            _bytes(one.bytes),
            rate,
            percent(one.overlap, 3),
        )
        rows.append((name, *(cells if one.events else ("absent", *[ABSENT] * 5))))
    headings = ("layer", "events", "a rank", "events/s", "bytes", "bandwidth", "within\nits parent")
    has_any = any(one.events for one in layers)
    return Table(
        "layers: time of a mean rank; rates over the union of all ranks", headings, tuple(rows) if has_any else ()
    )


def _access_tables(access: Access) -> Iterator[Table]:
    sides = [one for one in (("reads", access.read), ("writes", access.write)) if one[1].count]
    if not sides:
        return
    headings = ("", *(name for name, _ in sides))
    rows: list[tuple[str, ...]] = [
        ("calls", *(str(one.count) for _, one in sides)),
        ("bytes", *(ABSENT if one.mean is None else _bytes(one.bytes) for _, one in sides)),
        ("first of a process on a file", *(_share(one.first, one) for _, one in sides)),
        ("consecutive", *(_share(one.consecutive, one) for _, one in sides)),
        ("sequential, with consecutive", *(_share(one.sequential, one) for _, one in sides)),
        ("random", *(_share(one.random, one) for _, one in sides)),
        ("not aligned to 4 KiB", *(_share(one.misaligned, one) for _, one in sides)),
        ("below 1 MiB", *(percent(one.small / one.sized, 3) if one.sized else ABSENT for _, one in sides)),
        ("on shared files", *(percent(one.shared / one.count, 3) for _, one in sides)),
        ("bytes moved again", *(_bytes(one.again) if one.placed else ABSENT for _, one in sides)),
        (
            "... within one epoch",
            *(ABSENT if one.again_in_epoch is None else _bytes(one.again_in_epoch) for _, one in sides),
        ),
    ]
    order = (
        f"{access.switches} times the direction changes on a file; {access.shared_files} of {access.files} files shared"
    )
    yield Table(f"access, by process and file: {order}", headings, tuple(rows))
    bins = [(name, *(str(one.bins[at]) for _, one in sides)) for at, name in enumerate(BIN_NAMES)]
    common = [
        (
            f"commonest, {at + 1}",
            *(
                f"{_bytes(one.common[at][0])}: {one.common[at][1]}" if at < len(one.common) else ABSENT
                for _, one in sides
            ),
        )
        for at in range(max(len(one.common) for _, one in sides))
    ]
    yield Table(
        "sizes of calls, in Darshan's bins; the commonest sizes, with their calls", headings, (*bins, (), *common)
    )


def _files_table(figures: Figures) -> Table:
    rows = [
        (
            one.purpose,
            printable(one.suffix) or ABSENT,
            str(one.files),
            str(one.opens),
            str(one.metadata),
            _bytes(one.read),
            _bytes(one.written),
            _time(one.seconds),
        )
        for one in figures.files[:_MOST_FILES]
    ]
    more = len(figures.files) - len(rows)
    note = f"; {more} more kinds took less" if more else ""
    headings = ("files", "name ends", "files", "opens", "calls\nwithout bytes", "read", "written", "all ranks")
    return Table(f"files by purpose and ending: calls, bytes, time of all ranks{note}", headings, tuple(rows))


def _ranks_table(ranks: Sequence[Rank], straggler: Straggler | None) -> Table:
    """Return the ranks, and which of them the others wait for longest."""
    slowest = sorted(ranks, key=lambda one: -one.io)
    half = _MOST_RANKS // 2
    shown = slowest if len(ranks) <= _MOST_RANKS else [*slowest[:half], *slowest[-half:]]
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            printable(one.host) or ABSENT,
            _bytes(one.read),
            _bytes(one.written),
            str(one.operations),
            _time(one.io),
            _time(one.metadata),
        )
        for one in shown
    ]
    if len(shown) < len(ranks):
        rows.insert(half, ())
    note = "" if len(shown) == len(ranks) else f" (of {len(ranks)} the slowest {half} and the fastest {half})"
    headings = ("rank", "node", "read", "written", "operations", "I/O", "calls\nwithout bytes")
    if straggler:
        where = f"last in {straggler.last} of {straggler.steps} steps" if straggler.by == "step" else "by its I/O"
        behind, cost = _time(straggler.behind), _time(straggler.cost)
        note += (
            f"; the others wait longest for {straggler.name}: {where}, then {behind} behind their median, {cost} in all"
        )
    return Table(f"ranks, the longest I/O first{note}", headings, tuple(rows))


def _bandwidth_table(bandwidth: Bandwidth) -> Table:
    """Return the bandwidth of all ranks in a twelfth of the job each."""
    size = max(len(bandwidth.read) // _MOST_TIMES, 1)
    rows = []
    # A job that took no time, as the trace of one event may have, has no bandwidth.
    has_any = bandwidth.bin_seconds > 0 and (any(bandwidth.read) or any(bandwidth.written))
    for first in range(0, len(bandwidth.read), size) if has_any else ():
        moved = [sum(side[first : first + size]) for side in (bandwidth.read, bandwidth.written)]
        length = bandwidth.bin_seconds * len(bandwidth.read[first : first + size])
        rows.append((_time(first * bandwidth.bin_seconds), *(f"{_bytes(one / length)}/s" for one in moved)))
    highest = f"highest in one of {len(bandwidth.read)} bins: {_bytes(bandwidth.highest)}/s"
    return Table(f"bandwidth of all ranks over time; {highest}", ("from", "read", "written"), tuple(rows))


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return all insights that were looked at."""
    rows = []
    for one in findings:
        insight, found = one.insight, one.found
        value = ABSENT if found is None else insight.unit(found.value)
        cost = ABSENT if found is None or found.cost is None else _time(found.cost)
        rows.append(
            (insight.name, "yes" if one.is_met else "no" if found else "cannot be said", value, insight.threshold, cost)
        )
    headings = ("insight", "found", "figure", "threshold", "time of a\nmean rank")
    return Table("insights that were looked at", headings, tuple(rows))


def changes_tables(changes: Changes, names: tuple[str, str]) -> Iterator[Table]:
    """Yield the tables of what changed from one job to another."""
    headings = ("", *(shorten_name(printable(name), 20) for name in names), "change", "of the first")
    for title, found in (
        ("times of a mean rank, the largest change first", changes.times),
        ("other figures, the largest relative change first", changes.others),
    ):
        rows = [
            (
                shorten_name(printable(one.what), 36),
                *(_amount(one, value) for value in (one.first, one.second)),
                _difference(one),
                _ratio(one),
            )
            for one in found[:_MOST_CHANGES]
        ]
        if rows:
            yield Table(title, headings, tuple(rows))


def fleet_table(rows: Sequence[FleetRow]) -> Table:
    """Return a row for each of several jobs."""
    names = _shorten_names([one.name for one in rows])
    cells = [
        (
            name + (" (incomplete)" if one.incomplete else ""),
            _time(one.seconds),
            str(one.ranks),
            _bytes(one.bytes),
            _time(one.time_by_slowest),
            f"{_bytes(one.perf_by_slowest)}/s" if one.perf_by_slowest else ABSENT,
            one.insight or ABSENT,
        )
        for name, one in zip(names, rows, strict=True)
    ]
    headings = ("job", "time", "ranks", "bytes", "slowest\nrank's I/O", "bytes / that", "first insight")
    return Table("jobs, the longest I/O of a rank first", headings, tuple(cells))


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
    if one.unit == "s":
        return _time(value)
    if one.unit == "B":
        return _bytes(value)
    return percent(value, 3) if one.unit == "share" else f"{value:.0f}"


def _difference(one: Change) -> str:
    sign = "+" if one.cost > 0 else "-"
    amount = _amount(one, abs(one.cost))
    return f"{sign}{amount.replace('%', 'points') if one.unit == 'share' else amount}"


def _ratio(one: Change) -> str:
    return f"{number(one.second / one.first, 3)} x" if one.first else "new"


def _share(calls: int, one: Direction) -> str:
    return percent(calls / one.placed, 3) if one.placed else ABSENT


def _time(value: float | None) -> str:
    return seconds(value, 3)


def _bytes(value: float | None) -> str:
    return size(value, 3)
