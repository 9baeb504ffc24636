"""Results next to each other: a column each, a row a figure; the same tables for terminals and for pages."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Sequence

from dliosim.measure.figures import aggregate
from dliosim.measure.figures.declaration import ResultFigure, latency_kinds, name_part, result_figures, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.rank.records import CAUSES
from dliosim.measure.results.checkpoint_overhead import loop_overheads, save_times
from dliosim.measure.results.run_summary import RunSummary, Spread
from dliosim.measure.results.verdicts import NO_STORAGE
from dliosim.plan.forecast.checkpoint_interval import Costs, best_interval, compute_waste
from dliosim.readable import ABSENT, hash_text, long_time, number, percent, seconds, size
from dliosim.report.cells import percent_cell, rate_cell
from dliosim.report.compare.tables import comparison_sections
from dliosim.report.pattern_diff import line_rows, list_kinds, override_rows, pattern_names
from dliosim.report.phase_titles import group_by, group_phases, name_epochs, title_of
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun, loop_titles
from dliosim.report.run.answer_lines import answer_lines, device_share
from dliosim.report.run.checkpoint_costs import checkpoint_costs
from dliosim.report.run.conditions import cache_state, copy_notes
from dliosim.report.run.loops import name_cause
from dliosim.report.run.warnings import format_warnings, warnings_of
from dliosim.report.text_table import LINE, WIDTH, Table, format_table

# Answers of more results than this are not shown: the tables compare them.
_MOST_ANSWERS = 4

# Longer cells are cut; labels above a column have several lines.
_BRIEF = 26
_HEADING = 20
_LONGEST_VALUE = 60

#: Title of the table of conditions.
CONDITIONS = "conditions"

# Rows in which all results have these say nothing, and are left out.
_USUAL = {"moved / asked": "1.000", "more ranks than cores": "no", "finished": "yes"} | {
    one.words: number(one.usual) for one in result_figures(EpochSummary, "checks")
}

# A figure in a warning, with its unit.
_FIGURE = re.compile(r"(?<![\w.\"])\d[\d.]*(?: (?:%|[kMGTP]?B(?:/s)?|[num]?s|min|h)(?!\w))?")

# Patterns that differ in more lines are not shown.
_MOST_LINES = 24


def format_side_by_side(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return all tables and warnings of results as text, at most 120 columns wide except for long paths."""
    runs = [one for one in results if isinstance(one, SavedRun)]
    sections = ["\n".join(label_places(results)), *answers_of_runs(runs), *map(format_table, tables_of_runs(runs))]
    copies = (copy_notes(one.run, WIDTH, f"{one.label}: " if len(runs) > 1 else "") for one in runs)
    sections += ["\n".join(filter(None, copies)), format_warnings(warnings_of_runs(runs), WIDTH)]
    for one in results:
        if isinstance(one, SavedComparison):
            sections += comparison_sections(one.comparison, one.label, one.comparison.notes)
    return "\n\n".join(filter(None, sections)) + "\n"


def answers_of_runs(runs: Sequence[SavedRun]) -> list[str]:
    """Return the first lines of each run, below its label if there are several runs; none for too many runs."""
    if len(runs) > _MOST_ANSWERS:
        return []
    return [f"{one.label}:\n{answer_lines(one.run)}" if len(runs) > 1 else answer_lines(one.run) for one in runs]


def tables_of_runs(runs: Sequence[SavedRun]) -> list[Table]:
    """Return the conditions, a table for each loop that any run has, then the verbs and the saves."""
    summaries = [one.run for one in runs]
    tables = {CONDITIONS: _condition_rows(summaries), "lines that not all patterns have": _pattern_rows(summaries)}
    loops = [{loop.title: loop for loop in one.loops} for one in runs]
    for title in loop_titles(runs):
        tables[f"{title}: {_ABOUT_LOOPS}"] = _loop_rows([of_run.get(title) for of_run in loops])
    tables["files: mean time until a run of the verb was complete, and its rate"] = _verb_rows(summaries)
    tables[_ABOUT_BACKGROUND] = _background_rows(summaries)
    tables[_ABOUT_HELD] = _share_rows(summaries)
    tables[_ABOUT_INTERVALS] = _interval_rows(summaries)
    headings = ["", *(textwrap.fill(one.label, _HEADING) for one in runs)]
    return [_make_table(title, headings, rows) for title, rows in tables.items() if runs and rows]


def _make_table(title: str, headings: Sequence[str], rows: _Rows) -> Table:
    """Return a table without the results that have nothing in it."""
    shown = [0, *(place for place in range(1, len(headings)) if any(row and row[place] != ABSENT for row in rows))]
    cells = [tuple(row[place] for place in shown) if row else row for row in rows]
    return Table(title, tuple(headings[place] for place in shown), tuple(cells))


def label_places(results: Sequence[SavedRun | SavedComparison]) -> list[str]:
    """Return the directory of each label, if there are several."""
    return [f"{one.label}: {one.place}" for one in results if len(results) > 1]


def warnings_of_runs(runs: Sequence[SavedRun]) -> list[str]:
    """Return the warnings of runs; one that several runs share appears once, with their names and differing figures."""
    lines = [(one.label, line) for one in runs for line in warnings_of(one.run)]
    groups = group_by(lines, lambda labelled: _FIGURE.sub("", labelled[1]))
    return [_join_warnings(found, len(runs)) for found in groups.values()]


def _join_warnings(found: Sequence[tuple[str, str]], runs: int) -> str:
    """Return one warning of several runs, by label: lines that differ in figures only."""
    figures = [_FIGURE.findall(line) for _, line in found]
    differing = [len(set(some)) > 1 for some in zip(*figures, strict=True)]
    places = iter(differing)
    text = _FIGURE.sub(lambda figure: "..." if next(places) else figure[0], found[0][1])
    if len(found) == runs and not any(differing):
        return text if runs == 1 else f"{text}. In all {runs} results"
    named = []
    for (label, _), some in zip(found, figures, strict=True):
        own = ", ".join(figure for figure, differs in zip(some, differing, strict=True) if differs)
        named.append(f"{label} ({own})" if own else label)
    return f"{text}. In {'; '.join(named)}"


def _shorten(text: str, longest: int = _BRIEF) -> str:
    """Return the beginning and the end of a text, at most `longest` characters."""
    half = (longest - 3) // 2
    return text if len(text) <= longest else f"{text[:half]}...{text[-(longest - 3 - half) :]}"


_Rows = list[tuple[str, ...]]


def _condition_rows(runs: Sequence[RunSummary]) -> _Rows:
    rows = [(name, *(_shorten(show(run)) for run in runs)) for name, show in _CONDITIONS]
    rows = [row for row in rows if set(row[1:]) != {_USUAL.get(row[0], ABSENT)}]
    names = pattern_names(runs)
    differing = [("pattern", *names)] if len(set(names)) > 1 else []
    # Values may differ only at their end, so they are cut at a larger length.
    overrides = [(f"-D {name}", *cells) for name, *cells in override_rows(runs)]
    differing += [tuple(_shorten(cell, _LONGEST_VALUE) for cell in row) for row in overrides]
    return [*rows[:1], *differing, *rows[1:]]


def _pattern_rows(runs: Sequence[RunSummary]) -> _Rows:
    """Return the lines in which patterns differ; nothing for more than `_MOST_LINES`: these are other workloads."""
    rows = [(_shorten(line, _LONGEST_VALUE), *cells) for line, *cells in line_rows(runs)]
    return rows if len(rows) <= _MOST_LINES else []


_CONDITIONS: list[tuple[str, Callable[[RunSummary], str]]] = [
    ("workload", lambda run: run.name),
    ("ranks", lambda run: str(run.ranks)),
    ("nodes", lambda run: str(run.nodes)),
    ("ranks / cores, fullest node", lambda run: f"{run.environment.ranks_per_node} / {run.environment.cores_per_node}"),
    ("more ranks than cores", lambda run: "yes" if run.environment.is_oversubscribed else "no"),
    ("load average before", lambda run: number(run.environment.load_average, 3)),
    ("MPI library", lambda run: run.environment.mpi_library),
    ("file systems", lambda run: list_kinds(run) or ABSENT),
    ("options", lambda run: ", ".join(f"--{name}" for name in ("null", "verify") if getattr(run, name)) or ABSENT),
    ("described storage", lambda run: run.modelled or ABSENT),
    ("finished", lambda run: ", ".join(filter(None, ("no", run.partial.signal))) if run.partial else "yes"),
    ("order hash", lambda run: hash_text(run.order_hash)),
    ("extent hash", lambda run: hash_text(run.extent_hash)),
    ("digest", lambda run: run.digest),
    ("whole run", lambda run: seconds(run.seconds)),
]

_ABOUT_LOOPS = (
    "over the epochs that count for the answer, without saves: latencies of these epochs together; utilization is "
    "their mean, without first steps"
)


def _loop_rows(loops: Sequence[LoopResult | None]) -> _Rows:
    """Return the answer and figures over the epochs that count for it, without rows that say nothing."""
    rows: _Rows = []
    for group in _LOOP_FIGURES:
        some = [(name, *(ABSENT if loop is None else show(loop) for loop in loops)) for name, show in group]
        some = [row for row in some if not set(row[1:]) <= {ABSENT, _USUAL.get(row[0], ABSENT)}]
        rows += [LINE, *some] if rows and some else some
    return rows


_LoopFigure = tuple[str, Callable[[LoopResult], str]]


def _quantile(kind: str, tail: str) -> Callable[[LoopResult], str]:
    return lambda loop: seconds(getattr(loop.latencies.get(kind), tail, None), 3)


def _share(part: str) -> Callable[[LoopResult], str]:
    return lambda loop: _percent(aggregate.time_shares(loop.answer_epochs).get(part))


def _check(one: ResultFigure) -> Callable[[LoopResult], str]:
    """Return the text of an amount over the epochs, or of the mean of a ratio."""
    if one.kind == "int":
        return lambda loop: str(sum(getattr(epoch, one.name) for epoch in loop.answer_epochs) or ABSENT)
    return lambda loop: number(aggregate.mean_by_bytes(one.name, loop.answer_epochs))


def _reader_share(loop: LoopResult) -> str:
    """Return the share of their time that readers decoded and preprocessed; without readers it is in processing."""
    readers = loop.phases[0].readers
    return _percent(aggregate.processing_share(loop.answer_epochs, readers) if readers else None)


def _gigabyte_rate(loop: LoopResult) -> str:
    rate = aggregate.bytes_per_second(loop.answer_epochs)
    return number(rate and rate / 1e9)


def _reader_core_wait(loop: LoopResult) -> str:
    return _percent(aggregate.reader_core_wait_share(loop.answer_epochs, loop.phases[0].readers))


def _mean_of(loop: LoopResult, figure: str, show: Callable[[float], str]) -> str:
    """Return the mean of a figure of the answer; if it is not about storage, there is only what the loop got."""
    if loop.answer is None or (loop.answer.verdict == NO_STORAGE and figure != "got_bytes_per_second"):
        return ABSENT
    found: Spread | None = getattr(loop.answer, figure)
    return show(found.mean) if found else ABSENT


def _main_cause(epochs: Sequence[EpochSummary]) -> str:
    """Return what took most of the time of the last ranks of steps, in most steps, with the share of these."""
    known = [epoch.bound_by for epoch in epochs if epoch.bound_by]
    if not known:
        return ABSENT
    share, cause = max((statistics.fmean(getattr(one, cause) for one in known), cause) for cause in CAUSES)
    return f"{name_cause(cause)}, {percent(share, 2)} of steps"


def _transfer_ratio(loop: LoopResult) -> str:
    asked = sum(one.bytes for one in loop.answer_epochs)
    return number(sum(one.bytes_moved for one in loop.answer_epochs) / asked) if asked else ABSENT


def _count_epochs(loop: LoopResult) -> str:
    """Return the numbers of the epochs that count; partial results have no answer, for which epochs would count."""
    return name_epochs([one.epoch for one in loop.answer_epochs]).partition(" ")[2] if loop.answer else ABSENT


def _cache(loop: LoopResult) -> str:
    phase = loop.phases[0]
    is_read = phase.api != "null" and not phase.reads_nothing
    return cache_state(phase).removeprefix("page cache ") if is_read else ABSENT


def _percent(share: float | None) -> str:
    """Return a share; nothing for 0, too."""
    return percent(share or None, 3)


#: Name and text of each figure of a loop, in groups: parts of the time, latencies and checks as they are declared.
_LOOP_FIGURES: list[list[_LoopFigure]] = [
    [
        ("ranks", lambda loop: str(loop.run.ranks)),
        ("api", lambda loop: loop.phases[0].api or ABSENT),
        ("page cache at first", _cache),
        ("epochs", lambda loop: str(len(loop.epochs))),
        ("epochs that count", _count_epochs),
        ("steps an epoch", lambda loop: str(max(one.steps for one in loop.epochs))),
    ],
    [
        ("answer", lambda loop: loop.answer.verdict if loop.answer else ABSENT),
        ("storage-limited utilization", lambda loop: _mean_of(loop, "storage_utilization", percent_cell)),
        ("needs", lambda loop: _mean_of(loop, "needs_bytes_per_second", rate_cell)),
        ("got", lambda loop: _mean_of(loop, "got_bytes_per_second", rate_cell)),
        ("from", lambda loop: loop.answer.source if loop.answer else ABSENT),
    ],
    [
        ("utilization with all waits", lambda loop: _percent(aggregate.utilization(loop.answer_epochs))),
        ("samples/s with all waits", lambda loop: number(aggregate.samples_per_second(loop.answer_epochs))),
        ("GB/s asked with all waits", _gigabyte_rate),
        ("device / asked", lambda loop: number(aggregate.mean_by_bytes("storage_amplification", loop.answer_epochs))),
    ],
    [(f"{kind} {tail}", _quantile(kind, tail)) for kind in latency_kinds(EpochSummary) for tail in ("p50", "p99")],
    [
        *((f"time in {one}", _share(one)) for one in map(name_part, time_parts(EpochSummary)) if one != "checkpoint"),
        ("of these waiting for a core", lambda loop: _percent(aggregate.core_wait_share(loop.answer_epochs))),
        ("readers waiting for a core", _reader_core_wait),
        ("readers' time decoding", _reader_share),
        ("most steps' last rank spent most in", lambda loop: _main_cause(loop.answer_epochs)),
    ],
    [("moved / asked", _transfer_ratio), *((one.words, _check(one)) for one in result_figures(EpochSummary, "checks"))],
]


def _verb_rows(runs: Sequence[RunSummary]) -> _Rows:
    """Return time and rate of each verb that writes or reads files, over all its runs."""
    groups = [{title_of(group[0]): group for group in group_phases(run.files)} for run in runs]
    rows: _Rows = []
    for title in dict.fromkeys(title for of_run in groups for title in of_run):
        cells = []
        for of_run in groups:
            phases = of_run.get(title, [])
            wall, content = sum(one.verb.seconds for one in phases), sum(one.verb.bytes_once for one in phases)
            rate = f", {size(content / wall, 3)}/s{device_share(phases)}" if wall > 0 and content else ""
            is_kept = phases and phases[0].kind == "prepare" and not content
            time = "there already" if is_kept else seconds(wall / len(phases), 3) if phases else ABSENT
            cells.append(f"{time}{rate}")
        rows.append((_shorten(title), *cells))
    return rows


_ABOUT_BACKGROUND = "saves in the background: time that one held the slowest rank (mean), and of its flush (median)"
_ABOUT_INTERVALS = "best interval between saves (--mtbf), of the full checkpoint even if a part was saved"
_ABOUT_HELD = "saves: share of the time of all epochs, saves included, in which they held the ranks"


def _background_rows(runs: Sequence[RunSummary]) -> _Rows:
    """Return stall and flush of each checkpoint saved in the background, and the stall of the job's other runs."""
    rows: _Rows = []
    saves = [{each.checkpoint: each for each in save_times(run)} for run in runs]
    for name in dict.fromkeys(name for by_name in saves for name in by_name):
        times = [by_name.get(name) for by_name in saves]
        jobs = {run.name for run, one in zip(runs, times, strict=True) if one and one.flush}
        stalls = [one.held if one and run.name in jobs else None for run, one in zip(runs, times, strict=True)]
        if jobs:  # else it is the time of the save, as in the table of files
            flushes = [one.flush or None if one else None for one in times]
            rows.append((f"stall of {_shorten(name)}", *(seconds(one, 3) for one in stalls)))
            rows.append((f"flush of {_shorten(name)}", *(seconds(one, 3) for one in flushes)))
    return rows


def _interval_rows(runs: Sequence[RunSummary]) -> _Rows:
    """Return the best interval between saves of each checkpoint and what it follows from, if jobs fail."""
    known = [{one.checkpoint: one for one in checkpoint_costs(run)} for run in runs]
    rows: _Rows = []
    for name in dict.fromkeys(name for of_run in known for name in of_run):
        found = [of_run.get(name) for of_run in known]
        for title, show in _INTERVAL_FIGURES:
            rows.append((f"{_shorten(name)}: {title}", *(ABSENT if one is None else show(one.costs) for one in found)))
    return rows


_INTERVAL_FIGURES: list[tuple[str, Callable[[Costs], str]]] = [
    ("save every", lambda costs: long_time(best_interval(costs), 3)),
    ("lost in all", lambda costs: percent(compute_waste(best_interval(costs), costs).total, 3)),
    ("stall", lambda costs: seconds(costs.stall, 3)),
    ("restart", lambda costs: seconds(costs.restart, 3)),
]


def _share_rows(runs: Sequence[RunSummary]) -> _Rows:
    """Return the share of each loop that saves held."""
    shares = [{each.loop: each.share for each in loop_overheads(run)} for run in runs]
    return [
        (f"share of {_shorten(loop)} held", *(percent(of_run.get(loop), 3) for of_run in shares))
        for loop in dict.fromkeys(loop for of_run in shares for loop in of_run)
    ]
