"""Rules about several results: repetitions of a job, the same job without I/O, and jobs that differ in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from dliosim.audit.rules import NOTE, OBJECTION, rule
from dliosim.measure.figures import aggregate
from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import count, number, percent
from dliosim.report.pattern_diff import line_rows, override_rows
from dliosim.report.phase_titles import group_phases, title_of
from dliosim.report.reader.load import LoopResult, SavedRun

#: Runs of a job that a spread needs. MLPerf Storage asks for five.
_FEWEST: Final = 3
#: Difference between repetitions, by their mean, at most.
_SPREAD: Final = 0.05
#: From this share of the rate without I/O on, the tool is what was measured; from this utilization on, it is compute.
_CEILING: Final = 0.9
#: Random reads may be faster than sequential ones by this, as runs differ.
_FASTER: Final = 1.1


@dataclass(frozen=True, slots=True)
class JobRuns:
    """A run with the others of the same workload, ranks and nodes."""

    run: SavedRun  #: the run
    repetitions: Sequence[SavedRun]  #: runs of its job with I/O on the same file systems, itself included
    nulls: Sequence[SavedRun]  #: runs of its job without I/O
    others: Sequence[SavedRun]  #: all runs given


def find_job(run: SavedRun, runs: Sequence[SavedRun]) -> JobRuns:
    """Return a run with the others of its job."""
    same = [one for one in runs if _job_of(one.run) == _job_of(run.run)]
    again = [one for one in same if not one.run.null and (run.run.null or _places(one.run) == _places(run.run))]
    return JobRuns(run, again, [one for one in same if one.run.null], runs)


def _job_of(run: RunSummary) -> tuple[str | int, ...]:
    return run.digest, run.ranks, run.nodes, run.modelled


def _places(run: RunSummary) -> list[tuple[str, str, str]]:
    return [(place.root, place.kind, place.directory) for place in run.environment.file_systems]


def list_loops(saved: SavedRun) -> list[LoopResult]:
    """Return the loops that read something and have an answer."""
    return [one for one in saved.loops if one.answer is not None and one.answer.source != "null"]


def list_figures(saved: SavedRun) -> dict[str, float]:
    """Return the figure of each loop, and the rate of saves and restores, by title.

    The figure of a loop is its storage-limited utilization; without compute what it got of storage, in bytes/s.
    """
    answers = [(loop.title, loop.answer) for loop in saved.loops if loop.answer]
    spreads = {title: one.storage_utilization or one.got_bytes_per_second for title, one in answers}
    found = {title: spread.mean for title, spread in spreads.items() if spread}
    for phases in group_phases([*saved.run.saves, *saved.run.restores]):
        if seconds := sum(phase.verb.seconds for phase in phases):
            found[title_of(phases[0])] = sum(phase.verb.bytes_once for phase in phases) / seconds
    return found


@rule("job", OBJECTION, "Hoefler 5", "repeat it with another --output, and audit all of them: {command}")
def few_runs(job: JobRuns) -> Iterator[str]:
    """Find fewer than 3 runs."""
    if len(job.repetitions) < _FEWEST:
        yield f"{count(len(job.repetitions), 'run')} of this job: MLPerf Storage asks for five"


@rule("job", OBJECTION, "MLPerf 6.7", "repeat all of them on a quiet machine, for longer")
def wide_spread(job: JobRuns) -> Iterator[str]:
    """Find repetitions that differ by over 5 %."""
    figures = [list_figures(one) for one in job.repetitions]
    for title in figures[0]:
        values = [one[title] for one in figures if title in one]
        if (width := max(values) - min(values)) > _SPREAD * fmean(values):
            yield f"{title}: {count(len(values), 'run')} differ by {percent(width / fmean(values), 2)} of their mean"


@rule("job", OBJECTION, "Hoefler 11", "use larger samples or fewer ranks a node, or quote utilization alone")
def tool_ceiling(job: JobRuns) -> Iterator[str]:
    """Find rates within 10 % of those without I/O."""
    for loop in list_loops(job.run):
        share, busy = _null_share(loop, job.nulls), aggregate.utilization(loop.answer_epochs) or 0.0
        if share is not None and share >= _CEILING > busy:
            yield f"{loop.title}: I/O made it {number(1 / share, 3)} times as long: the tool was measured, not storage"


@rule("job", NOTE, "Hoefler 11", "audit these together with the results of: {command} --null")
def no_null_run(job: JobRuns) -> Iterator[str]:
    """Find loops without a run by --null."""
    if titles := [loop.title for loop in list_loops(job.run) if _null_share(loop, job.nulls) is None]:
        yield f"{', '.join(titles)}: no run without I/O shows the limit of the tool"


@rule("job", NOTE, "IO500 #88", "drop caches before both, or: {uncached}")
def random_faster(job: JobRuns) -> Iterator[str]:
    """Find random reads faster than sequential."""
    for other in job.others if _is_shuffled(job.run.run) else ():
        ordered = {loop.title: _rate(loop) for loop in other.loops} if _differ_in_order(job.run.run, other.run) else {}
        for loop in list_loops(job.run):
            if (rate := _rate(loop)) > _FASTER * ordered.get(loop.title, rate):
                yield f"{loop.title}: {number(rate / ordered[loop.title], 3)} times as fast as in order"


def _rate(loop: LoopResult) -> float:
    return aggregate.samples_per_second(loop.answer_epochs) or 0.0


def _null_share(loop: LoopResult, nulls: Sequence[SavedRun]) -> float | None:
    """Return the time of a loop without I/O / with I/O; None if it is not known."""
    known = [(one.null_seconds, one.seconds) for one in loop.answer_epochs if one.null_seconds and one.seconds]
    if len(known) == len(loop.answer_epochs):
        return sum(null for null, _ in known) / sum(whole for _, whole in known)
    rates = [_rate(one) for null in nulls for one in null.loops if one.title == loop.title]
    return _rate(loop) / fmean(rates) if any(rates) else None


def _is_shuffled(run: RunSummary) -> bool:
    """Return True if a `-D` of `shuffle`, else a line of the pattern, asks for an order that is no `off`."""
    given = [value for name, value in run.overrides if name.rpartition(".")[2] == "shuffle"]
    lines = [line.partition("#")[0].split() for line in run.pattern.splitlines()]
    return any(value != "off" for value in given or [" ".join(line[1:]) for line in lines if line[:1] == ["shuffle"]])


def _differ_in_order(run: RunSummary, other: RunSummary) -> bool:
    """Return True if the other run reads in order, and nothing else differs."""
    names = [row[0].rpartition(".")[2] for row in override_rows([run, other])]
    names += [row[0].partition(" ")[0] for row in line_rows([run, other])]
    is_same_job = (run.name, run.ranks, run.nodes, run.null) == (other.name, other.ranks, other.nodes, other.null)
    return is_same_job and set(names) == {"shuffle"} and not _is_shuffled(other)


#: The rules of this module.
RULES: Final = (few_runs, wide_spread, tool_ceiling, no_null_run, random_faster)
