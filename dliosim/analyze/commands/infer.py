"""The pattern of `dliosim new --from TRACE`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.pattern import infer_pattern
from dliosim.analyze.read.open_trace import group_jobs, open_trace
from dliosim.errors import HELP, UsageError
from dliosim.readable import count, percent

#: The share of a trace below which a pattern does not stand for it.
_ENOUGH: Final = 0.9


def make_pattern(trace: Path, keep_names: bool) -> tuple[str, list[str], int]:
    """Return the pattern of a job by its trace, what to know of it, and the ranks of the job.

    Raises UsageError for several jobs, TraceError for a trace that is damaged or incomplete.
    """
    jobs = group_jobs([trace])
    if len(jobs) != 1:
        raise UsageError(f"--from {trace}: {len(jobs)} jobs{HELP}name the trace of one, such as {jobs[0][0]}")
    found = infer_pattern(View(open_trace(jobs[0])), keep_names)
    notes = [
        f"it stands for only {percent(share, 2)} of the {what} of the trace"
        for what, share in found.explained.items()
        if share < _ENOUGH
    ]
    if found.doubts:
        notes.append(f"{count(found.doubts, 'value')} marked `?` or `unknown`: compare them with the job")
    return found.text, notes, found.ranks
