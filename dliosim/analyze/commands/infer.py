"""The pattern of `dliosim new --from TRACE`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.facts import list_settings, write_lines
from dliosim.analyze.infer.pattern import explain_work, infer_pattern
from dliosim.analyze.infer.scaling import add_scale, merge_lines
from dliosim.analyze.read.open_trace import group_jobs, open_trace
from dliosim.errors import HELP, UsageError
from dliosim.language.compile import compile_text
from dliosim.language.diagnostics import PatternError
from dliosim.model import Job
from dliosim.readable import count, percent

#: The share of a trace below which a pattern does not stand for it.
_ENOUGH: Final = 0.9


def make_pattern(traces: Sequence[Path], keep_names: bool) -> tuple[str, list[str], int, Sequence[Path], bool]:
    """Return the pattern of a job by its traces, what to know of it, the most ranks of a trace, and that trace.

    The last value says whether that trace has the writes that made its data.

    Several traces are of one job on other numbers of ranks. Raises UsageError for a folder of several jobs, TraceError
    for a trace that is damaged or incomplete, and for jobs that differ.
    """
    jobs = group_jobs(traces)
    if len(jobs) > len(traces):
        raise UsageError(f"--from {traces[0]}: {len(jobs)} jobs{HELP}name the trace of one, such as {jobs[0][0]}")
    made = [(infer_pattern(View(open_trace(job)), keep_names), job) for job in jobs]
    made.sort(key=lambda one: one[0].ranks)
    found, (last, files) = [one for one, _ in made], made[-1]
    trace = traces if len(made) == 1 else files
    if twice := {one.ranks for one, other in pairwise(found) if one.ranks == other.ranks}:
        text = f"--from {' --from '.join(map(str, traces))}: two traces of {min(twice)} ranks"
        raise UsageError(f"{text}{HELP}give several of one job on different numbers of ranks, or one")
    lines = merge_lines({one.ranks: one.lines for one in found}) if len(found) > 1 else [*add_scale(last.lines)]
    text = write_lines(lines)
    try:
        each = [explain_work(one.work, compile_text(text, [], Job(one.ranks))[0]) for one in found]
    except PatternError as error:
        notes = [f"change this first: {one.message}" for one in error.diagnostics if one.is_error]
        return text, notes, last.ranks, trace, last.makes_data
    explained = {what: min(one[what] for one in each) for what in each[0]}
    shares = ", ".join(f"{percent(share, 3)} of its {what}" for what, share in explained.items())
    whose = "This does" if len(each) == 1 else f"Of each of {len(each)} traces this does at least"
    notes = [
        f"it does only {percent(share, 2)} of the {what} of the trace"
        for what, share in explained.items()
        if share < _ENOUGH
    ]
    if doubts := sum(not (one.fact.is_sure and one.fact.value) for one in list_settings(lines)):
        notes.append(f"{count(doubts, 'value')} marked `?` or `unknown`: compare them with the job")
    text += f"\n# {whose} {shares}; writes that made its data are left out.\n"
    return text, notes, last.ranks, trace, last.makes_data
