"""The command `dliosim analyze`: the analysis of a trace in words, tables and a page; of two jobs, or of many."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from dliosim.analyze.figures.counters import add_counters
from dliosim.analyze.figures.job import Figures, add_run, measure_figures
from dliosim.analyze.figures.view import View
from dliosim.analyze.insights.jobs import FleetRow, find_changes, list_fleet
from dliosim.analyze.insights.rules import INSIGHTS, Finding, judge
from dliosim.analyze.read.open_trace import group_jobs, name_jobs, open_trace
from dliosim.analyze.report.first_screen import explain_insight, format_analysis, format_changes
from dliosim.analyze.report.tables import analysis_json, changes_json, fleet_json, fleet_table
from dliosim.commands.job.terminal import print_text
from dliosim.errors import DliosimError, TraceError, UsageError
from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import count, printable
from dliosim.report.files.results import PARTIAL, RESULTS, write_atomic
from dliosim.report.reader.load import SavedRun, load_results
from dliosim.report.text_table import format_table
from dliosim.trace.events import Trace
from dliosim.trace.file import FILE_NAME


def analyze_command(parsed: SimpleNamespace) -> int:
    """Print the analysis of traces, or write a page. Raises UsageError, TraceError and OSError."""
    if parsed.explain is not None:
        print_text(_explain(parsed.explain))
        return 0
    jobs = group_jobs([Path(path) for path in parsed.traces])
    if parsed.html is not None:
        return _write_page(jobs, Path(parsed.html))
    names = name_jobs(jobs)
    if len(jobs) == 1:
        figures, findings = _analyze(View(open_trace(jobs[0])))
        print_text(analysis_json(figures, findings) if parsed.json else format_analysis(figures, findings, parsed.full))
    elif len(jobs) == 2:
        (first, before), (second, after) = (_analyze(View(open_trace(job))) for job in jobs)
        changes = find_changes(first, second, before, after)
        print_text(changes_json(changes, names) if parsed.json else format_changes(changes, names))
    else:
        rows = _analyze_fleet(names, jobs)
        print_text(fleet_json(rows) if parsed.json else f"{format_table(fleet_table(rows))}\n")
    return 0


def _analyze(view: View) -> tuple[Figures, tuple[Finding, ...]]:
    """Return the figures of a trace, by its events, its counters and the results of its run, and the insights."""
    figures = add_counters(view, measure_figures(view))
    if run := _read_run(view.trace):
        figures = add_run(figures, run)
    return figures, judge(figures)


def _read_run(trace: Trace) -> RunSummary | None:
    """Return the results next to the trace of a run of dliosim; None if there are none that can be read."""
    folder = Path(trace.path).parent
    if Path(trace.path).name != FILE_NAME or not any((folder / name).is_file() for name in (RESULTS, PARTIAL)):
        return None
    try:
        (found,) = load_results([str(folder)], with_arrays=False)
    except DliosimError:
        return None
    return found.run if isinstance(found, SavedRun) else None


def _analyze_fleet(names: Sequence[str], jobs: Sequence[Sequence[Path]]) -> tuple[FleetRow, ...]:
    """Return a row for each job that can be read; each of the others is said on stderr. TraceError if none can."""
    found, read = [], []
    for name, paths in zip(names, jobs, strict=True):
        try:
            found.append(_analyze(View(open_trace(paths))))
            read.append(name)
        except DliosimError as error:
            print(f"left out: {error}", file=sys.stderr)
    if not found:
        raise TraceError(f"none of {count(len(jobs), 'trace')} can be read")
    return list_fleet(read, found)


def _explain(name: str) -> str:
    known = [one.name for one in INSIGHTS]
    if name in known:
        return explain_insight(name)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    cure = f"write `dliosim analyze --explain {near[0]}`" if near else f"insights: {', '.join(known)}"
    raise UsageError(f"no insight is called {name}\n  = help: {cure}")


def _write_page(jobs: Sequence[Sequence[Path]], path: Path) -> int:
    if len(jobs) != 1:
        raise UsageError(f"--html writes the page of one job, and there are {len(jobs)}: name one")
    from dliosim.commands.report import check_matplotlib, check_page

    check_page(path)
    check_matplotlib()
    from dliosim.analyze.report.page import page

    view = View(open_trace(jobs[0]))
    figures, findings = _analyze(view)
    write_atomic(path, page(view, figures, findings).encode())
    print_text(f"{format_analysis(figures, findings, full=False)}\npage: {printable(str(path))}\n")
    return 0
