"""The paragraph of a paper's set-up section: machine, storage, data, access and repetitions, from results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final

from dliosim.audit.verdict import find_repetitions, is_same_job
from dliosim.dlio import ENDINGS, OVERRIDE_MARKS
from dliosim.errors import DliosimError, UsageError
from dliosim.language.compile import compile_text
from dliosim.language.unparse import list_phrases
from dliosim.measure.figures import aggregate
from dliosim.measure.results.machine import LINK_SPEED, MEMORY_KINDS
from dliosim.measure.results.run_summary import RunSummary, SavePhase, Spread
from dliosim.model import Job, Loop, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.readable import count, number, percent, seconds, size
from dliosim.report.cells import percent_cell, rate_cell
from dliosim.report.phase_titles import group_by, group_phases, name_epochs, title_of
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun
from dliosim.report.run.conditions import cache_state
from dliosim.report.run.warnings import describe_partial
from dliosim.report.text_table import SCREEN, wrap_text

#: Settings of a loop that a paper names.
_NAMED: Final = "batch steps shuffle compute sync api engine through transfer readers prefetch cache hints hint"


def describe_setup(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return the paragraph on one run, or on repetitions of it; UsageError for anything else.

    Warm-ups, copies and partial results are left out next to whole runs.
    """
    saved = [one for one in results if isinstance(one, SavedRun) and not one.run.null]
    if len(saved) < len(results) or not all(is_same_job(saved[0].run, one.run) for one in saved):
        raise UsageError("--text describes one run with I/O, or repetitions of it: these results are others")
    counted = find_repetitions(saved[0], saved) or saved[:1]
    runs = [one.run for one in counted]
    workload, machines = _compile_again(runs[0]), [list(_describe_machine(run)) for run in runs]
    parts = [*_describe_job(runs), *machines[0], *_describe_data(runs, workload)]
    if any(one != machines[0] for one in machines):
        parts.insert(0, "Machines, libraries or mounts of the runs differ: these are those of one run.")
    for loops in group_by((loop for one in counted for loop in one.loops), lambda loop: loop.title).values():
        parts += _describe_loop(loops, workload)
    return wrap_text(" ".join([*parts, *_describe_checkpoints(runs)]), "", "", SCREEN) + "\n"


def _show_mean(values: Sequence[float | None], show: Callable[[float], str], interval: Spread | None = None) -> str:
    """Return the mean of a figure, with the least and the greatest; of a single one with its `interval`."""
    known = [one for one in values if one is not None]
    if not known or len(known) < len(values):
        return "unknown"
    if len(known) > 1:
        return f"{show(fmean(known))} (mean of {len(known)}, from {show(min(known))} to {show(max(known))})"
    return show(known[0]) + (f" (95 % interval {show(interval.low)} to {show(interval.high)})" if interval else "")


def _describe_job(runs: Sequence[RunSummary]) -> Iterator[str]:
    run = runs[0]
    if run.modelled:
        yield f"No file was read or written: calls waited as the description of storage {run.modelled} says."
    if run.partial is not None:
        yield f"The run was interrupted: {describe_partial(run.partial)}."
    keys = [word for word in run.arguments if word.startswith(OVERRIDE_MARKS)]
    given = [*keys, *(f"{name}={value}" for name, value in run.overrides if not name.startswith(OVERRIDE_MARKS))]
    imported = next((f", imported from {Path(word).name}" for word in run.arguments if word.endswith(ENDINGS)), "")
    settings = f"settings {', '.join(given)}" if given else "settings as in the pattern"
    yield f"We ran workload {run.name}{imported} (digest {run.digest}; {settings})"
    yield f"with {count(run.ranks, 'rank')} on {count(run.nodes, 'node')}, {count(len(runs), 'time')},"
    yield f"first at {min(one.started for one in runs)}."
    if run.verify:
        yield "Steps also compared what they read (--verify), which the figures include."


def _describe_machine(run: RunSummary) -> Iterator[str]:
    machine, details = run.environment, dict(run.environment.details)
    memory = size(machine.whole_memory_per_node, 3) if machine.whole_memory_per_node else "an unknown amount"
    ranks, cores = count(machine.ranks_per_node, "rank"), count(machine.cores_per_node, "core")
    yield f"A node had {memory} of memory and {cores} for {ranks} (processor model unknown;"
    yield f"{details.get('kernel', 'kernel unknown')}; network links {details.get(LINK_SPEED, 'unknown')}), with"
    yield f"{details.get('versions', 'unknown versions')}, {machine.mpi_library}, {machine.mpi_io or 'MPI-IO unknown'}."
    for place in machine.file_systems if not run.modelled else ():
        known = f"mount options {place.options or 'unknown'}; striping {place.striping or 'unknown'}"
        kind = f"{place.kind}, in memory" if place.kind in MEMORY_KINDS else place.kind
        yield f"Root {place.root} was on {kind} ({known})."


def _describe_data(runs: Sequence[RunSummary], workload: Workload | None) -> Iterator[str]:
    if workload is None:
        yield "Files, samples, format and layout of the data are unknown: the pattern in the results is not all of it."
        return
    written = {one.name: one.verb.bytes_moved for run in runs for one in run.files if one.kind == "prepare"}
    for one in workload.datasets:
        each = dict(list_phrases("dataset", one)).get("size")
        amount = f"{count(one.samples, 'sample')}{f' of {each}' if each else ''} in {count(one.layout.files, 'file')}"
        stored = f", {size(written[one.name], 3)}" if written.get(one.name) else ""
        packed = f", compressed by {one.compress.codec}" if one.compress else ""
        yield f"Data set {one.name} had {amount} ({one.layout.kind}){stored}, in format {one.format}{packed}."


def _compile_again(run: RunSummary) -> Workload | None:
    """Return the workload of the pattern in the results; None if it has other files, or is not the one that ran."""
    try:
        workload, _ = compile_text(run.pattern, run.overrides, Job(run.ranks, run.nodes))
    except (DliosimError, OSError):
        return None
    return workload if workload.digest() == run.digest else None


def _describe_loop(loops: Sequence[LoopResult], workload: Workload | None) -> Iterator[str]:
    """Yield what a loop did and its figures; `loops` has it in each run."""
    loop, phase, answer = loops[0], loops[0].phases[0], loops[0].answer
    verbs = [one for one, _ in flatten_verbs(workload.verbs) if isinstance(one, Loop)] if workload else []
    pairs = [pair for one in verbs if one.name == phase.name for pair in list_phrases(one.kind, one)]
    given = [f"{keyword} {phrase}" for keyword, phrase in pairs if keyword in _NAMED.split()]
    yield f"{loop.title} ran {count(len(loop.epochs), 'epoch')} of {size(loop.epochs[0].bytes, 3)}"
    yield f"with {', '.join(given) or f'api {phase.api}, cache {phase.cache}'} ({cache_state(phase)})."
    if answer is None:
        return
    rates = [aggregate.bytes_per_second(one.answer_epochs) for one in loops]
    yield f"Figures are those of {name_epochs(answer.epochs)} (source of the bytes: {answer.source})."
    yield f"It read {_show_mean(rates, rate_cell)}."
    if alone := answer.storage_utilization:
        shares = [one.answer and one.answer.storage_utilization for one in loops]
        text = _show_mean([one.mean if one else None for one in shares], percent_cell, alone)
        yield f"Storage-limited utilization was {text}; the goal was {percent(answer.goal, 2)}."


def _describe_checkpoints(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Yield what each save and restore did, with the means of its time and rate over all runs."""
    files = [phase for run in runs for phase in (*run.saves, *run.restores)]
    for group in group_phases(files):
        title, first = title_of(group[0]), group[0]
        if isinstance(first, SavePhase):
            of = f", 1/{number(first.whole_times, 3)} of a checkpoint of {count(first.whole_ranks, 'rank')}"
            how = f"fsync {'on' if first.fsync else 'off'}{f'{of} ({first.part_of})' if first.part_of else ''}"
        else:
            before = [one.kind for run in runs for one, then in pairwise(run.phases) if title_of(then) == title]
            how = f"caches {'dropped' if {*before} == {'drop caches'} else 'not dropped'} before"
        times = _show_mean([one.verb.seconds for one in group], seconds)
        rates = _show_mean([one.verb.bytes_per_second for one in group], rate_cell)
        yield f"{title} moved {size(first.verb.bytes, 3)} by {first.api}, {how}, in {times}, at {rates}."
