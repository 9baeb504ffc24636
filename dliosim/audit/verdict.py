"""The audit of results: each rule on each result, what it found as text or as JSON, and the set-up for a paper."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from dliosim.audit.rules import OBJECTION, RULES, Rule
from dliosim.errors import DliosimError, UsageError
from dliosim.language.compile import compile_pattern
from dliosim.measure.answers.advice import command_line
from dliosim.measure.figures import aggregate
from dliosim.measure.results.file_phases import SavePhase
from dliosim.measure.results.machine import LINK_SPEED
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model import Job, Workload
from dliosim.readable import count, percent, size
from dliosim.report.answer_sentences import sentence
from dliosim.report.files.results import copy_members
from dliosim.report.phase_titles import group_by, group_phases, name_epochs, title_of
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun
from dliosim.report.run.conditions import cache_state
from dliosim.report.run.repeats import main_figures
from dliosim.report.text_table import SCREEN, wrap_text


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a rule found."""

    rule: Rule  #: the rule
    text: str  #: sentence with values
    mend: str  #: what to type or do


@dataclass(frozen=True, slots=True)
class Audit:
    """A result and the findings of all rules."""

    result: SavedRun | SavedComparison  #: the result
    findings: tuple[Finding, ...]  #: objections first
    is_limit: bool = False  #: True for a run without I/O that shows the limit of the tool in the job of another run

    @property
    def objections(self) -> int:
        """Return the number of objections."""
        return sum(one.rule.severity == OBJECTION for one in self.findings)

    @property
    def verdict(self) -> str:
        """Return the verdict in a few words."""
        if self.is_limit:
            return "not judged: shows the limit of the tool"
        found = count(self.objections, "objection") if self.objections else "fit to publish: no objection"
        return f"{found}, {count(len(self.findings) - self.objections, 'note')}"


def audit_results(results: Sequence[SavedRun | SavedComparison]) -> list[Audit]:
    """Return the audit of each result; a run without I/O is not judged next to a run of its job with I/O."""
    runs = [one for one in results if isinstance(one, SavedRun)]
    return [_audit_run(one, runs) if isinstance(one, SavedRun) else _audit_comparison(one) for one in results]


def _audit_comparison(saved: SavedComparison) -> Audit:
    found = saved.comparison
    return Audit(saved, _apply_rules({"machine": [(found,)], "comparison": [(found, found.answer)]}))


def _audit_run(saved: SavedRun, runs: Sequence[SavedRun]) -> Audit:
    run, repetitions = saved.run, _find_repetitions(saved.run, [one.run for one in runs])
    if run.null and repetitions:
        return Audit(saved, (), is_limit=True)
    nulls = [one for one in runs if one.run.null and _job_of(one.run) == _job_of(run)]
    loops = [one for one in saved.loops if one.answer is not None and one.answer.source != "null"]
    subjects: dict[str, list[tuple[Any, ...]]] = {
        "run": [(run,)],
        "machine": [(run,)],
        "loop": [(one, one.answer) for one in loops],
        "limit": [(one, _null_share(one, nulls)) for one in loops],
        "job": [] if run.null else [(repetitions,)],
    }
    return Audit(saved, _apply_rules(subjects, command_line(run, without=("--null", "--with-null"))))


def _find_repetitions(run: RunSummary, runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs of the same job with I/O on the same file systems; of one without I/O on any file systems."""
    again = [one for one in runs if _job_of(one) == _job_of(run) and not one.null]
    return again if run.null else [one for one in again if _list_places(one) == _list_places(run)]


def _job_of(run: RunSummary) -> tuple[str | int, ...]:
    return run.digest, run.ranks, run.nodes, run.modelled


def _list_places(run: RunSummary) -> list[tuple[str, str, str]]:
    return [(place.root, place.kind, place.directory) for place in run.environment.file_systems]


def _null_share(loop: LoopResult, nulls: Sequence[SavedRun]) -> float | None:
    """Return the time of a loop without I/O / with I/O; None if it is not known."""
    known = [(one.null_seconds, one.seconds) for one in loop.answer_epochs if one.null_seconds and one.seconds]
    if len(known) == len(loop.answer_epochs):
        return sum(null for null, _ in known) / sum(whole for _, whole in known)
    without = [one for null in nulls for one in null.loops if one.title == loop.title]
    rate, *rates = (aggregate.samples_per_second(one.answer_epochs) or 0.0 for one in (loop, *without))
    return rate / fmean(rates) if any(rates) else None


def _apply_rules(subjects: Mapping[str, Sequence[tuple[Any, ...]]], command: str = "") -> tuple[Finding, ...]:
    """Return the faults that the rules find in subjects, by the names of `Rule.subject`; `command` is that of a run."""
    found = []
    for rule in RULES:
        for subject in subjects.get(rule.subject, ()):
            title = f"{subject[0].title}: " if rule.subject in ("loop", "limit") else ""
            answer = getattr(subject[0], "answer", None)
            advice = [f"{sentence(one)}: {one.command}".removesuffix(": ") for one in (answer.advice if answer else ())]
            mend = rule.mend.format(command=command, advice=[*advice, "read more data than memory holds"][0])
            found += [Finding(rule, title + text, mend) for text in rule.check(*subject)]
    return tuple(found)


def audit_text(audits: Sequence[Audit]) -> str:
    """Return the verdict on each result, then each finding: once, if several results of a workload have it."""
    found = [(one.result, finding) for one in audits for finding in one.findings]
    groups = group_by(sorted(found, key=lambda pair: RULES.index(pair[1].rule)), _shared_key)
    text = "".join(f"{one.result.place}: {one.verdict}\n" for one in audits)
    for pairs in groups.values():
        (result, first), results = pairs[0], len({one.place for one, _ in pairs})
        which = f", {count(results, 'result')}, first {result.place}" if len(audits) > 1 else ""
        text += f"\n{first.rule.severity}: {first.rule.name} ({first.rule.source}{which})\n"
        text += f"{wrap_text(first.text, '    ', '    ')}\n    -> {first.mend}\n"
    return text


def _shared_key(pair: tuple[SavedRun | SavedComparison, Finding]) -> tuple[str, ...]:
    """Return what several results share in a fault: its rule, the workload, the loop that it names."""
    result, finding = pair
    name = result.run.name if isinstance(result, SavedRun) else result.comparison.name
    return finding.rule.name, name, re.sub(r"\d[\d.]*", "", finding.text.partition(":")[0])


def audit_json(audit: Audit) -> str:
    """Return the audit of a result as a line of JSON."""
    content = {"results": audit.result.place, "verdict": audit.verdict, "objections": audit.objections}
    names = ("name", "severity", "source")
    found = [copy_members(one.rule, *names) | copy_members(one, "text", "mend") for one in audit.findings]
    return json.dumps({**content, "findings": found}) + "\n"


def describe_setup(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return the paragraph on one run, or on repetitions of it; UsageError for anything else."""
    saved = [one for one in results if isinstance(one, SavedRun)]
    runs = [one.run for one in saved]
    if len(runs) < len(results) or len(_find_repetitions(runs[0], runs)) < len(runs):
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
