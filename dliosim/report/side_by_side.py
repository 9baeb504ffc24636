"""Results next to each other: a column each, a row a figure; the same tables for terminals and for pages."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dliosim.measure import aggregate
from dliosim.measure.checkpoint_overhead import loop_overheads, save_times
from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.histogram import Quantiles
from dliosim.measure.run_summary import RunSummary
from dliosim.measure.validity import doubt_of_core_waits, doubt_of_times, doubt_of_utilization
from dliosim.readable import ABSENT, count, number, percent, seconds, size
from dliosim.report.conditions import cache_state
from dliosim.report.loops import time_shares
from dliosim.report.pattern_diff import line_rows, override_rows, pattern_names
from dliosim.report.phase_titles import group_phases, title_of
from dliosim.report.reader.comparison import ComparisonResult, SavedVariant
from dliosim.report.reader.labels import variant_legend, variant_names
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun, loop_titles
from dliosim.report.text_table import LINE, WIDTH, grid
from dliosim.report.warnings import warnings_of

# Longer cells are cut.
_BRIEF = 26
_LONGEST_VALUE = 60

# Patterns that differ in more lines are not shown.
_MOST_LINES = 24


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text."""

    title: str  #: text above the table
    headings: tuple[str, ...]  #: headings of the columns, the first one of the rows' names
    rows: tuple[tuple[str, ...], ...]  #: cells of each row; `LINE` is drawn as a line

    @property
    def groups(self) -> list[int]:
        """Columns that belong together, as in `grid`: here the table may be broken before each column."""
        return [1] * (len(self.headings) - 1)


def format_side_by_side(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return all tables and warnings of results as text, at most 120 columns wide except for long paths."""
    runs = [one for one in results if isinstance(one, SavedRun)]
    sections = ["\n".join(label_places(results))] if label_places(results) else []
    sections += [_format_table(table) for table in tables_of_runs(runs)]
    warned = [
        textwrap.fill(f"warning: {label}: {line}", WIDTH, subsequent_indent=" " * 9)
        for label, line in warnings_of_runs(runs)
    ]
    sections += ["\n".join(warned)] if warned else []
    for one in results:
        if isinstance(one, SavedComparison):
            sections += ["\n".join(_wrap_lines(legend_of_comparison(one)))] if legend_of_comparison(one) else []
            sections += [_format_table(table) for table in tables_of_comparison(one)]
            for lines in (not_run_lines(one.comparison), one.comparison.verdict):
                sections += ["\n".join(_wrap_lines(lines))] if lines else []
    return "\n\n".join(sections) + "\n"


def tables_of_runs(runs: Sequence[SavedRun]) -> list[Table]:
    """Return the conditions, a table for each loop that any run has, then the verbs and the saves."""
    if not runs:
        return []
    loops = [_loop_table(title, [_find_loop(one, title) for one in runs], runs) for title in loop_titles(runs)]
    return [_conditions(runs), *_patterns(runs), *loops, *_verbs(runs), *_saves(runs)]


def label_places(results: Sequence[SavedRun | SavedComparison]) -> list[str]:
    """Return the directory of each label that is not the name of its directory."""
    return [f"{one.label}: {one.place}" for one in results if one.label != Path(one.place).absolute().name]


def warnings_of_runs(runs: Sequence[SavedRun]) -> list[tuple[str, str]]:
    """Return label and text of each warning; one that several runs share is there once, with all their labels."""
    labels_by_line: dict[str, list[str]] = {}
    for one in runs:
        for line in warnings_of(one.run):
            labels_by_line.setdefault(line, []).append(one.label)
    return [(", ".join(labels), line) for line, labels in labels_by_line.items()]


def tables_of_comparison(saved: SavedComparison) -> list[Table]:
    """Return the results of a comparison, a row for each variant."""
    found = saved.comparison
    labels = [one.label for one in found.variants]
    names = variant_names(labels)
    reference = names[labels.index(found.reference)] if found.reference in labels else found.reference
    title = (
        f"{saved.label}: {found.what} of {found.name}, {count(found.ranks, 'rank')} on "
        f"{count(found.nodes, 'node')}, {count(found.repetitions, 'repetition')}; "
        + (
            f"ratios of the stall of {reference} to others"
            if found.is_stall_comparison
            else f"ratios of rates to {reference}"
        )
    )
    columns = [
        (heading, show)
        for heading, show, key in (_STALL_COLUMNS if found.is_stall_comparison else _LOOP_COLUMNS)
        if key is None or any(one.figures[key] for one in found.variants)
    ]
    headings = ("", "verdict", *(heading for heading, _ in columns))
    rows = [
        (
            name,
            "reference" if one.label == found.reference else one.verdict,
            *(show(one) for _, show in columns),
        )
        for name, one in zip(names, found.variants, strict=True)
    ]
    return [Table(title, headings, tuple(rows))] if rows else []


def legend_of_comparison(saved: SavedComparison) -> list[str]:
    """Return the variant of each number in its tables; empty where the tables have the labels."""
    return variant_legend([one.label for one in saved.comparison.variants])


def not_run_lines(found: ComparisonResult) -> list[str]:
    """Return the variants that were not run, and why."""
    return [f"not run: {label}: {reason}" for label, reason in found.not_run]


def _wrap_lines(lines: Sequence[str]) -> list[str]:
    return [textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines]


def _format_table(table: Table) -> str:
    return grid(table.title, table.headings, table.rows, table.groups)


def _shorten(text: str, longest: int = _BRIEF) -> str:
    """Return the beginning and the end of a text, at most `longest` characters."""
    half = (longest - 3) // 2
    return text if len(text) <= longest else f"{text[:half]}...{text[-(longest - 3 - half) :]}"


def _find_loop(one: SavedRun, title: str) -> LoopResult | None:
    return next((loop for loop in one.loops if loop.title == title), None)


def _conditions(runs: Sequence[SavedRun]) -> Table:
    rows = [(name, *(_shorten(show(one.run)) for one in runs)) for name, show in _CONDITIONS]
    summaries = [one.run for one in runs]
    names = pattern_names(summaries)
    differing = [("pattern", *names)] if len(set(names)) > 1 else []
    # Values may differ only at their end, so they are cut at a larger length.
    differing += [tuple(_shorten(cell, _LONGEST_VALUE) for cell in row) for row in override_rows(summaries)]
    at = 1 + _CONDITIONS.index(_DIGEST)
    return Table("conditions", ("", *(one.label for one in runs)), (*rows[:at], *differing, *rows[at:]))


def _patterns(runs: Sequence[SavedRun]) -> list[Table]:
    """Return the lines in which patterns differ; nothing for more than `_MOST_LINES`: these are other workloads."""
    rows = [(_shorten(line, _LONGEST_VALUE), *cells) for line, *cells in line_rows([one.run for one in runs])]
    title = "lines that not all patterns have"
    return [Table(title, ("", *(one.label for one in runs)), tuple(rows))] if 0 < len(rows) <= _MOST_LINES else []


def _kinds(run: RunSummary) -> str:
    return ", ".join(dict.fromkeys(place.kind for place in run.environment.file_systems)) or ABSENT


def _option_marks(run: RunSummary) -> str:
    return ", ".join(filter(None, ["--null" if run.null else "", "--verify" if run.verify else ""])) or ABSENT


_DIGEST: tuple[str, Callable[[RunSummary], str]] = ("digest", lambda run: run.digest)

_CONDITIONS: list[tuple[str, Callable[[RunSummary], str]]] = [
    ("workload", lambda run: run.name),
    _DIGEST,
    ("ranks", lambda run: str(run.ranks)),
    ("nodes", lambda run: str(run.nodes)),
    ("ranks / cores, fullest node", lambda run: f"{run.environment.ranks_per_node} / {run.environment.cores_per_node}"),
    ("more ranks than cores", lambda run: "yes" if run.environment.is_oversubscribed else "no"),
    ("load average before", lambda run: number(run.environment.load_average, 3)),
    ("MPI library", lambda run: run.environment.mpi_library),
    ("file systems", _kinds),
    ("options", _option_marks),
    ("finished", lambda run: f"no, {run.partial.signal}" if run.partial else "yes"),
    ("order hash", lambda run: f"{run.order_hash:016x}"),
    ("extent hash", lambda run: f"{run.extent_hash:016x}"),
    ("whole run", lambda run: seconds(run.seconds)),
]


def _loop_table(title: str, loops: Sequence[LoopResult | None], runs: Sequence[SavedRun]) -> Table:
    """Return the figures of one loop over the epochs after the first, without rows that no run has."""
    rows: list[tuple[str, ...]] = []
    for group in _LOOP_ROWS:
        some = [
            (name, *(ABSENT if loop is None else show(loop, one.run) for loop, one in zip(loops, runs, strict=True)))
            for name, show in group
        ]
        some = [row for row in some if set(row[1:]) != {ABSENT}]
        rows += [LINE, *some] if rows and some else some
    about = (
        "over the epochs after the first (or the only one), as in the headline of a run: rates are all bytes (samples) "
        "by all time, latencies are those of all these epochs together, utilization is their mean"
    )
    return Table(f"{title}: {about}", ("", *(one.label for one in runs)), tuple(rows))


def _later_epochs(loop: LoopResult) -> tuple[EpochSummary, ...]:
    return loop.epochs[1:] or loop.epochs


def _utilization(loop: LoopResult, run: RunSummary) -> str:
    share = aggregate.utilization(_later_epochs(loop))
    doubtful = doubt_of_times(run, loop.phases) or doubt_of_utilization(loop.phases)
    return ABSENT if share is None else f"{number(100 * share)}{'?' if doubtful else ''}"


def _quantile(kind: str, tail: str) -> Callable[[LoopResult, RunSummary], str]:
    def show(loop: LoopResult, run: RunSummary) -> str:
        found: Quantiles | None = getattr(loop.latencies, kind, None)
        return ABSENT if found is None else seconds(getattr(found, tail), 3)

    return show


def _share(part: str) -> Callable[[LoopResult, RunSummary], str]:
    def show(loop: LoopResult, run: RunSummary) -> str:
        share = time_shares(loop.epochs).get(part)
        return percent(share, 3) if share else ABSENT

    return show


def _reader_share(loop: LoopResult, run: RunSummary) -> str:
    """Return the share of their time that readers decoded and preprocessed; without readers it is in processing."""
    readers = loop.phases[0].readers
    share = aggregate.processing_share(_later_epochs(loop), readers) if readers else 0.0
    return percent(share, 3) if share else ABSENT


def _samples(loop: LoopResult, run: RunSummary) -> str:
    return _mark_rate(aggregate.samples_per_second(_later_epochs(loop)), loop, run)


def _rate(unit: float) -> Callable[[LoopResult, RunSummary], str]:
    def show(loop: LoopResult, run: RunSummary) -> str:
        rate = aggregate.bytes_per_second(_later_epochs(loop))
        return _mark_rate(None if rate is None else rate / unit, loop, run)

    return show


def _core_waits(loop: LoopResult, run: RunSummary) -> str:
    share = aggregate.core_wait_share(_later_epochs(loop))
    return percent(share, 3) if share else ABSENT


def _mark_rate(rate: float | None, loop: LoopResult, run: RunSummary) -> str:
    """Return a rate, with `?` where ranks waited for cores."""
    return (
        ABSENT if rate is None else f"{number(rate)}{'?' if doubt_of_core_waits(run.environment, loop.phases) else ''}"
    )


def _checkpoints(loop: LoopResult, run: RunSummary) -> str:
    took = sum(one.checkpoint_seconds.mean for one in _later_epochs(loop))
    return seconds(took, 3) if took else ABSENT


def _amplification(figure: str) -> Callable[[LoopResult, RunSummary], str]:
    return lambda loop, run: number(aggregate.mean_by_bytes(figure, _later_epochs(loop)))


def _transfer_ratio(loop: LoopResult, run: RunSummary) -> str:
    asked = sum(one.bytes for one in _later_epochs(loop))
    return number(sum(one.bytes_moved for one in _later_epochs(loop)) / asked) if asked else ABSENT


def _cache(loop: LoopResult, run: RunSummary) -> str:
    return ABSENT if loop.phases[0].api == "null" else cache_state(loop.phases[0]).removeprefix("page cache ")


_LOOP_ROWS: list[list[tuple[str, Callable[[LoopResult, RunSummary], str]]]] = [
    [
        ("ranks", lambda loop, run: str(run.ranks)),
        ("api", lambda loop, run: loop.phases[0].api or ABSENT),
        ("page cache at first", _cache),
        ("epochs", lambda loop, run: str(len(loop.epochs))),
        ("steps an epoch", lambda loop, run: str(max(one.steps for one in loop.epochs))),
    ],
    [
        ("samples/s", _samples),
        ("GB/s", _rate(1e9)),
        ("GiB/s", _rate(2**30)),
        ("utilization %", _utilization),
    ],
    [
        ("batch p50", _quantile("batch", "p50")),
        ("batch p99", _quantile("batch", "p99")),
        ("call p50", _quantile("call", "p50")),
        ("call p99", _quantile("call", "p99")),
        ("request p50", _quantile("request", "p50")),
        ("request p99", _quantile("request", "p99")),
    ],
    [
        ("time in data wait", _share("data wait")),
        ("time in arrival wait", _share("arrival wait")),
        ("time in compute", _share("compute")),
        ("time in sync wait", _share("sync wait")),
        ("time in processing", _share("processing")),
        ("time in tool", _share("tool")),
        ("of these waiting for a core", _core_waits),
        ("blocking checkpoints", _checkpoints),
        ("readers' time decoding", _reader_share),
    ],
    [
        ("moved / asked", _transfer_ratio),
        ("read() / asked", _amplification("amplification")),
        ("device / asked", _amplification("storage_amplification")),
    ],
]


def _verbs(runs: Sequence[SavedRun]) -> list[Table]:
    """Return time and rate of each verb that writes or reads files, over all its runs."""
    groups = [{title_of(group[0]): group for group in group_phases(one.run.files)} for one in runs]
    rows: list[tuple[str, ...]] = []
    for title in dict.fromkeys(title for of_run in groups for title in of_run):
        cells = []
        for of_run in groups:
            verbs = [phase.verb for phase in of_run.get(title, [])]
            wall, content = sum(verb.seconds for verb in verbs), sum(verb.bytes_once for verb in verbs)
            rate = f", {size(content / wall, 3)}/s" if wall > 0 and content else ""
            cells.append(f"{seconds(wall / len(verbs), 3)}{rate}" if verbs else ABSENT)
        rows.append((_shorten(title), *cells))
    title = "files: mean time of a run of the verb, and bytes by time"
    return [Table(title, ("", *(one.label for one in runs)), tuple(rows))] if rows else []


def _saves(runs: Sequence[SavedRun]) -> list[Table]:
    """Return stall and flush of each checkpoint, and the share of each loop that saves held."""
    stalls = [{each.checkpoint: each for each in save_times(one.run)} for one in runs]
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(name for of_run in stalls for name in of_run):
        found = [of_run.get(name) for of_run in stalls]
        rows.append((f"stall of {_shorten(name)}", *(seconds(one.held if one else None, 3) for one in found)))
        if any(one and one.flush for one in found):
            rows.append((f"flush of {_shorten(name)}", *(seconds(one.flush if one else None, 3) for one in found)))
    shares = [{each.loop: each.share for each in loop_overheads(one.run)} for one in runs]
    for loop in dict.fromkeys(loop for of_run in shares for loop in of_run):
        rows.append((f"share of {_shorten(loop)} held", *(percent(of_run.get(loop), 3) for of_run in shares)))
    title = "checkpoints: medians over saves of the slowest rank, and the share of a loop's time that saves held"
    return [Table(title, ("", *(one.label for one in runs)), tuple(rows))] if rows else []


def _interval(one: SavedVariant) -> str:
    if one.ratio_low is None or one.ratio_high is None:
        return ABSENT
    return f"{number(one.ratio_low, 3)} .. {number(one.ratio_high, 3)}"


def _tail(tail: str) -> Callable[[SavedVariant], str]:
    return lambda one: ABSENT if one.batch_latency is None else seconds(getattr(one.batch_latency, tail), 3)


def _gigabytes(rate: float | None) -> str:
    return number(None if rate is None else rate / 1e9)


def _time(time: float | None) -> str:
    return seconds(time, 3)


def _count(value: float | None) -> str:
    return f"{value or 0:.0f}"


def _percent(share: float | None) -> str:
    return percent(share, 3)


# Heading, cell, and a figure or None: the column is left out where that figure is 0 or None in all variants.
_VariantColumn = tuple[str, Callable[[SavedVariant], str], str | None]


def _column(
    heading: str, key: str, show: Callable[[float | None], str] = _time, optional: bool = False
) -> _VariantColumn:
    return heading, lambda one: show(one.figures[key]), key if optional else None


_RATIO: _VariantColumn = ("ratio", lambda one: number(one.ratio, 3), None)
_INTERVAL: _VariantColumn = ("interval", _interval, None)

_LOOP_COLUMNS = [
    _column("samples\n/s", "rate_samples_per_second", number),
    _column("GB/s", "rate_bytes_per_second", _gigabytes),
    _RATIO,
    _INTERVAL,
    _column("data\nwait", "data_wait_share", _percent),
    _column("com-\npute", "compute_share", _percent),
    _column("sync\nwait", "sync_wait_share", _percent),
    _column("check-\npoints", "checkpoint_seconds", optional=True),
    _column("proces-\nsing", "processing_share", _percent, optional=True),
    ("batch\np50", _tail("p50"), None),
    ("batch\np99", _tail("p99"), None),
    _column("read() /\nasked", "amplification", number),
    ("two-\nphase", lambda one: one.two_phase or ABSENT, None),
    ("order\nhash", lambda one: one.order_hash[:8], None),
]

_STALL_COLUMNS = [
    _column("stall", "stall_seconds"),
    _RATIO,
    _INTERVAL,
    ("longest\nstall", lambda one: seconds(max(one.seconds), 3), None),
    _column("complete\nafter", "until_complete_seconds"),
    _column("GB/s", "rate_bytes_per_second", _gigabytes),
    _column("files", "files", _count),
    _column("calls", "calls", _count),
    _column("in\ncalls", "call_seconds"),
    _column("open,\nclose", "open_seconds"),
    _column("passed\nto ranks", "send_seconds", optional=True),
    _column("sync", "file_sync_seconds", optional=True),
    _column("com-\nmit", "commit_seconds", optional=True),
    _column("rename", "rename_seconds", optional=True),
]
