"""The pattern of `dliosim new --from TRACE`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.pattern import explain_work, infer_pattern
from dliosim.analyze.read.open_trace import group_jobs, open_trace
from dliosim.errors import HELP, UsageError
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.model import Job
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
    with TemporaryDirectory() as aside:
        file = Path(aside, "inferred.dlio")
        file.write_text(found.text, encoding="utf-8")
        try:
            explained = explain_work(found.work, compile_pattern(file, [], Job(found.ranks))[0])
        except PatternError as error:
            notes = [f"change this first: {one.message}" for one in error.diagnostics if one.is_error]
            return found.text, notes, found.ranks
    shares = ", ".join(f"{percent(share, 3)} of its {what}" for what, share in explained.items())
    notes = [
        f"it does only {percent(share, 2)} of the {what} of the trace"
        for what, share in explained.items()
        if share < _ENOUGH
    ]
    if found.doubts:
        notes.append(f"{count(found.doubts, 'value')} marked `?` or `unknown`: compare them with the job")
    text = f"{found.text}\n# This does {shares}; writes that made its data are left out.\n"
    return text, notes, found.ranks
