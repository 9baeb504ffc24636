"""The paragraph of a paper's set-up section: machine, storage, data, access and repetitions, from results alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

from dliosim.audit.verdict import find_repetitions
from dliosim.errors import DliosimError, UsageError
from dliosim.language.compile import compile_pattern
from dliosim.measure.results.file_phases import SavePhase
from dliosim.measure.results.machine import LINK_SPEED
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model import Job, Workload
from dliosim.readable import count, percent, size
from dliosim.report.phase_titles import group_phases, name_epochs, title_of
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun
from dliosim.report.run.conditions import cache_state
from dliosim.report.run.repeats import main_figures
from dliosim.report.text_table import SCREEN, wrap_text


def describe_setup(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return the paragraph on one run, or on repetitions of it; UsageError for anything else."""
    saved = [one for one in results if isinstance(one, SavedRun)]
    runs = [one.run for one in saved]
    if len(runs) < len(results) or len(find_repetitions(runs[0], runs)) < len(runs):
        raise UsageError("--text describes one run with I/O, or repetitions of it: these results are others")
    run, loops = runs[0], [text for loop in saved[0].loops for text in _describe_loop(loop)]
    parts = [*_describe_machine(run), *_describe_data(run), *loops, *_describe_saves(run)]
    parts.append(f"The job ran {count(len(runs), 'time')}, first at {min(one.started for one in runs)}.")
    for title, values in main_figures(runs).items():
        if len(runs) > 1 and (mean := fmean(values)):
            deviation = percent(stdev(values) / mean, 2)
            parts.append(f"Their figure of {title} had a standard deviation of {deviation} of its mean.")
    return wrap_text(" ".join(parts), "", "", SCREEN) + "\n"


def _describe_machine(run: RunSummary) -> Iterator[str]:
    machine, details = run.environment, dict(run.environment.details)
    memory = size(machine.whole_memory_per_node, 3) if machine.whole_memory_per_node else "an unknown amount"
    ranks, cores = count(machine.ranks_per_node, "rank"), count(machine.cores_per_node, "core")
    given = ", ".join(f"{name}={value}" for name, value in run.overrides) or "as in the pattern"
    yield f"We ran workload {run.name} (digest {run.digest}; settings: {given}) on {count(run.ranks, 'rank')} and"
    yield f"{count(run.nodes, 'node')}: {ranks} on {cores} of a node with {memory} of memory (processor model unknown;"
    yield f"{details.get('kernel', 'kernel unknown')}; network links {details.get(LINK_SPEED, 'unknown')}), with"
    yield f"{details.get('versions', 'unknown versions')}, {machine.mpi_library}, {machine.mpi_io or 'MPI-IO unknown'}."
    for place in machine.file_systems:
        known = f"mount options {place.options or 'unknown'}; striping {place.striping or 'unknown'}"
        yield f"Root {place.root} was on {place.kind} ({known})."


def _describe_data(run: RunSummary) -> Iterator[str]:
    workload = _compile_again(run)
    if workload is None:
        yield "Files, samples, format and layout of the data are unknown: the pattern in the results is not all of it."
        return
    written = {phase.name: phase.verb.bytes_moved for phase in run.files if phase.kind == "prepare"}
    for one in workload.datasets:
        amount = f"{count(one.samples, 'sample')} in {count(one.layout.files, 'file')} ({one.layout.kind})"
        stored = size(written[one.name]) if written.get(one.name) else "bytes unknown, as an earlier run wrote them"
        packed = f", compressed by {one.compress.codec}" if one.compress else ""
        yield f"Data set {one.name} had {amount}, {stored}, in format {one.format}{packed}."


def _compile_again(run: RunSummary) -> Workload | None:
    """Return the workload of the pattern in the results; None if it has other files, or is not the one that ran."""
    with TemporaryDirectory() as place:
        pattern = Path(place, "pattern.dlio")
        pattern.write_text(run.pattern, encoding="utf-8")
        try:
            workload, _ = compile_pattern(pattern, run.overrides, Job(run.ranks, run.nodes))
        except (DliosimError, OSError):
            return None
    return workload if workload.digest() == run.digest else None


def _describe_loop(loop: LoopResult) -> Iterator[str]:
    phase = loop.phases[0]
    ahead = f"{count(phase.readers, 'reader')} a rank, {count(phase.prefetch, 'batch', 'batches')} ahead"
    caches = f"cache {phase.cache or 'unknown'}, {cache_state(phase)}"
    yield f"{loop.title} read by {phase.api or 'an unknown api'} ({caches}; {ahead})."
    answer = loop.answer
    if answer is None:
        return
    counted = f"{name_epochs(answer.epochs)} of {len(loop.epochs)}"
    yield f"Figures are those of {counted}; source of the bytes: {answer.source}."
    if alone := answer.storage_utilization:
        interval = f"95 % interval {percent(alone.low, 3)} to {percent(alone.high, 3)}"
        yield f"Storage-limited utilization was {percent(alone.mean, 3)} ({interval}; goal {percent(answer.goal, 2)})."
    if got := answer.got_bytes_per_second:
        yield f"Storage gave {size(got.mean, 3)}/s (95 % interval {size(got.low, 3)}/s to {size(got.high, 3)}/s)."


def _describe_saves(run: RunSummary) -> Iterator[str]:
    for first, *others in group_phases([*run.saves, *run.restores]):
        synced = f", fsync {'on' if first.fsync else 'off'}" if isinstance(first, SavePhase) else ""
        times = count(1 + len(others), "time")
        yield f"{title_of(first)} ran {times}, {size(first.verb.bytes, 3)} by {first.api}{synced}."
