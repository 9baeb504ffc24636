"""Tables of saves, restores and other verbs that touch files: on the screen, of `--full`, and of background saves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from dliosim.measure.figures.declaration import ResultFigure, result_figures
from dliosim.measure.figures.epoch_summaries import VerbSummary
from dliosim.measure.results.run_summary import FilePhase, RestorePhase, SavePhase
from dliosim.readable import number, seconds, size
from dliosim.report.cells import percent_cell, rate_cell, size_cell, time_cell
from dliosim.report.phase_titles import group_phases, short_titles, title_of
from dliosim.report.run.conditions import format_notes
from dliosim.report.run.loops import latency_cells
from dliosim.report.text_table import Column, format_columns, grid, shorten_name, wrap_name

#: A column of a table: a row is about all runs of a verb.
_VerbColumn: TypeAlias = Column[list[FilePhase]]

#: Characters of the name of a verb on the screen.
_LONGEST_VERB = 24

#: Words for what is left of a verb's time.
_REST = "rest_seconds"


def screen_table(phases: Sequence[FilePhase]) -> str:
    """Return a row for each verb that moved data; one row for all its runs."""
    groups = [group for group in group_phases(phases) if any(one.verb.bytes and one.verb.seconds for one in group)]
    if not groups:
        return ""
    titles = short_titles([group[0] for group in groups])
    named = [(shorten_name(title, _LONGEST_VERB), group) for title, group in zip(titles, groups, strict=True)]
    title = "files: bytes and time of each verb, means over its runs"
    return format_columns(title, "", named, [[one] for one in _SCREEN_COLUMNS])


def full_table(phases: Sequence[FilePhase]) -> str:
    """Return a row for each verb that wrote, read or dropped files; one row for all runs of the same verb."""
    groups = [group for group in group_phases(phases) if any(one.seconds or one.verb.bytes for one in group)]
    if not groups:
        return format_notes(phases)
    verbs = [phase.verb for phase in phases]
    saves = [phase.verb for phase in phases if isinstance(phase, SavePhase)]
    amounts = result_figures(VerbSummary, "amounts")
    amounts = [one for one in amounts if any(getattr(verb, one.name) is not None for verb in verbs)]
    extremes = [_extreme("least", min), _extreme("most", max)] if any(len(group) > 1 for group in groups) else []
    columns: list[list[_VerbColumn]] = [
        [
            Column("runs", len, str),
            Column("time", _mean_seconds, seconds),
            *extremes,
            _mean("files", "files", lambda value: number(value, 1)),
            _mean("bytes", "bytes", size),
            *(_mean(one.heading, one.name, size) for one in amounts),
            Column("GB/s", _gigabytes_per_second, str),
            Column("cached", _resident_share, percent_cell, optional=True, usual=math.nan),
        ],
        *([one] for one in _part_columns(phases)),
        [_completing(one) for one in _times_of(saves, "completing")],
    ]
    title = "files: the time of a run is its slowest rank's; the parts of that rank's time add up to it"
    title += "; GB/s count a byte once per node" if amounts else ""
    text = format_columns(title, "", [(wrap_name(title_of(group[0])), group) for group in groups], columns)
    return "\n\n".join(filter(None, [text, _call_latencies(groups), format_notes(phases)]))


def background_table(saves: Sequence[SavePhase]) -> str:
    """Return a row for each checkpoint that was flushed during the steps, drained or copied to partners."""
    groups = [group for group in group_phases(saves) if any(_has_background(one.verb) for one in group)]
    if not groups:
        return ""
    times = _times_of([one.verb for group in groups for one in group], "background")
    columns: list[Column[list[SavePhase]]] = [
        Column("saves", len, str),
        *(Column(one.heading, partial(_median, one.name), time_cell) for one in times),
        Column("flush\nGB/s", _flush_rate),
    ]
    title = "saves in the background: medians over saves, of the slowest rank in each; steps waited for the stall alone"
    named = [(shorten_name(title_of(group[0])), group) for group in groups]
    return format_columns(title, "", named, [[one] for one in columns])


def _times_of(verbs: Sequence[VerbSummary], group: str) -> list[ResultFigure]:
    """Return the times of a group of figures that some verb took."""
    return [one for one in result_figures(VerbSummary, group) if any(getattr(verb, one.name).max for verb in verbs)]


def _mean_seconds(group: Sequence[FilePhase]) -> float:
    return statistics.fmean(one.seconds for one in group)


def _device_bytes(group: Sequence[FilePhase]) -> float | None:
    known = [one.verb.device_bytes for one in group if isinstance(one, RestorePhase)]
    return statistics.fmean(each for each in known if each is not None) if known and None not in known else None


def _source_bytes(group: Sequence[FilePhase]) -> float | None:
    return statistics.fmean(one.verb.source_bytes for one in group) or None


def _rate(amount: Callable[[VerbSummary], float], group: Sequence[FilePhase]) -> float | None:
    """Return all bytes of an amount / all time; None without either."""
    whole = sum(one.verb.seconds for one in group)
    return sum(amount(one.verb) for one in group) / whole or None if whole > 0 else None


_storage_rate = partial(_rate, lambda verb: verb.bytes_once)
_source_rate = partial(_rate, lambda verb: verb.source_bytes)


def _drain_seconds(group: Sequence[FilePhase]) -> float | None:
    """Return the mean time of the drains of saves, after they were complete; None without drains."""
    drained = [one.verb.drain_seconds.max for one in group if one.verb.drain_bytes]
    return statistics.fmean(drained) if drained else None


_SCREEN_COLUMNS: list[_VerbColumn] = [
    Column("runs", len, str),
    Column("bytes", lambda group: statistics.fmean(one.verb.bytes for one in group), size_cell),
    Column("read", _source_bytes, size_cell, True, math.nan),
    Column("from the\ndevice", _device_bytes, size_cell, True, math.nan),
    Column("time", _mean_seconds, time_cell),
    Column("longest", lambda group: max(one.seconds for one in group) if len(group) > 1 else None, time_cell, True),
    Column("then\ndrained", _drain_seconds, time_cell, True, math.nan),
    Column("bytes /\ntime", _storage_rate, rate_cell),
    Column("read /\ntime", _source_rate, rate_cell, True, math.nan),
]


def _call_latencies(groups: Sequence[Sequence[FilePhase]]) -> str:
    """Return the latencies of calls of each verb; of several runs those of the one that took longest."""
    slowest = [max(group, key=lambda phase: phase.seconds) for group in groups]
    known = [(phase, found) for phase in slowest if (found := phase.verb.call_latency.quantiles())]
    if not known:
        return ""
    names, cells = latency_cells([found for _, found in known])
    rows = [(wrap_name(title_of(phase)), *row) for (phase, _), row in zip(known, cells, strict=True)]
    return grid("files: latency of calls, in the run that took longest", ["", *names], rows)


def _part_columns(phases: Sequence[FilePhase]) -> list[_VerbColumn]:
    """Return the columns of the parts of the slowest rank's time, means over runs, without those that nothing took."""
    headings = {one.name: one.heading for one in result_figures(VerbSummary)} | {_REST: "rest"}
    found = dict.fromkeys(name for phase in phases for name, time in phase.parts.items() if time)

    def make_column(name: str) -> _VerbColumn:
        def cell(group: list[FilePhase]) -> str:
            known = [phase.parts.get(name) for phase in group]
            times = [time for time in known if time is not None]
            return time_cell(statistics.fmean(times)) if any(times) and not _moves_nothing(group) else ""

        return Column(headings[name], cell, str)

    return [make_column(name) for name in headings if name in found]


def _extreme(heading: str, choose: Callable[[Iterable[float]], float]) -> _VerbColumn:
    """Return the column of the shortest or the longest time; empty if there was one run."""
    return Column(heading, lambda runs: seconds(choose(one.seconds for one in runs)) if len(runs) > 1 else "", str)


def _mean(heading: str, figure: str, show: Callable[[float], str]) -> _VerbColumn:
    """Return the column of a figure's mean over runs; empty if one has none, and if no data are moved."""

    def cell(group: list[FilePhase]) -> str:
        values = [getattr(phase.verb, figure) for phase in group]
        return "" if None in values or _moves_nothing(group) else show(statistics.fmean(values))

    return Column(heading, cell, str)


def _completing(one: ResultFigure) -> _VerbColumn:
    """Return the column of a time of completing saves: of the rank that took longest in it, mean over saves."""

    def cell(group: list[FilePhase]) -> str:
        is_save = isinstance(group[0], SavePhase)
        return time_cell(statistics.fmean(getattr(phase.verb, one.name).max for phase in group)) if is_save else ""

    return Column(one.heading if one.name == "delete_seconds" else f"commit:\n{one.words}", cell, str)


def _gigabytes_per_second(group: list[FilePhase]) -> str:
    """Return the GB/s of all bytes that storage may have given / all time."""
    rate = _storage_rate(group)
    return "" if _moves_nothing(group) else number(rate and rate / 1e9)


def _moves_nothing(group: list[FilePhase]) -> bool:
    return group[0].kind == "drop caches"


def _resident_share(group: list[FilePhase]) -> float | None:
    shares = [phase.resident_share for phase in group if phase.resident_share is not None]
    return statistics.fmean(shares) if shares else None


def _median(figure: str, group: Sequence[SavePhase]) -> float:
    return float(statistics.median(getattr(one.verb, figure).max for one in group))


def _has_background(verb: VerbSummary) -> bool:
    return max(verb.flush_seconds.max, verb.drain_seconds.max, verb.partner_seconds.max) > 0


def _flush_rate(group: Sequence[SavePhase]) -> float | None:
    """Return GB/s of all flushes, by the slowest rank of each."""
    flushed = [one.verb for one in group if one.verb.flush_seconds.max > 0]
    time = sum(verb.flush_seconds.max for verb in flushed)
    return sum(verb.bytes for verb in flushed) / time / 1e9 if time > 0 else None
