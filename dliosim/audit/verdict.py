"""The audit of results: each rule on each result, and what it found as text or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from dliosim.audit.rules import OBJECTION, RULES, Rule
from dliosim.measure.answers.advice import command_line
from dliosim.measure.figures import aggregate
from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import count
from dliosim.report.answer_sentences import sentence
from dliosim.report.files.results import copy_members
from dliosim.report.pattern_diff import line_rows, override_rows
from dliosim.report.phase_titles import group_by
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun
from dliosim.report.text_table import wrap_text


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
    unjudged: str = ""  #: why a run is not judged next to other runs of its job; empty for one that is

    @property
    def objections(self) -> int:
        """Return the number of objections."""
        return sum(one.rule.severity == OBJECTION for one in self.findings)

    @property
    def verdict(self) -> str:
        """Return the verdict in a few words."""
        if self.unjudged:
            return f"not judged: {self.unjudged}"
        found = count(self.objections, "objection") if self.objections else "fit to publish: no objection"
        return f"{found}, {count(len(self.findings) - self.objections, 'note')}"


def audit_results(results: Sequence[SavedRun | SavedComparison]) -> list[Audit]:
    """Return the audit of each result; warm-ups, copies and runs without I/O are not judged next to others."""
    runs = [one for one in results if isinstance(one, SavedRun)]
    return [_audit_run(one, runs) if isinstance(one, SavedRun) else _audit_comparison(one) for one in results]


def _audit_comparison(saved: SavedComparison) -> Audit:
    found = saved.comparison
    return Audit(saved, _apply_rules({"machine": [(found,)], "comparison": [(found, found.answer)]}))


def _audit_run(saved: SavedRun, runs: Sequence[SavedRun]) -> Audit:
    run, repetitions = saved.run, find_repetitions(saved, runs)
    if (why := _explain_unjudged(saved, runs)) and repetitions:
        return Audit(saved, (), why)
    nulls = [one for one in runs if one.run.null and _job_of(one.run) == _job_of(run)]
    loops = [one for one in saved.loops if one.answer is not None and one.answer.source != "null"]
    subjects: dict[str, list[tuple[Any, ...]]] = {
        "run": [(run,)],
        "machine": [(run,)],
        "loop": [(one, one.answer) for one in loops],
        "limit": [] if run.modelled else [(one, null_share(one, nulls)) for one in loops],
        "order": [(one, sequential_rate(one, runs)) for one in loops],
        "job": [] if run.null or run.partial is not None else [([one.run for one in repetitions],)],
    }
    return Audit(saved, _apply_rules(subjects, command_line(run, without=_NOT_AGAIN)))


#: Options of a run that the command to run its job again leaves out.
_NOT_AGAIN = ("--null", "--with-null", "--storage", "--repeat", "--warm-up")


def find_repetitions(saved: SavedRun, runs: Sequence[SavedRun]) -> list[SavedRun]:
    """Return the whole runs of the same job with I/O on the same file systems, each once, without warm-ups.

    Of a job without I/O they are those on any file systems.
    """
    again = [one for one in runs if one.run.partial is None and not _explain_unjudged(one, runs)]
    return [one for one in again if is_same_job(saved.run, one.run)]


def is_same_job(run: RunSummary, other: RunSummary) -> bool:
    """Return whether a run has the job of another one, with I/O on the same file systems if it has I/O."""
    return _job_of(run) == _job_of(other) and (run.null or _list_places(run) == _list_places(other))


def _explain_unjudged(saved: SavedRun, runs: Sequence[SavedRun]) -> str:
    """Return why a run is no repetition of its job, though it is whole; empty if it is one.

    The folders of warm-ups have the name that `dliosim run` gives them, in a bundle after a number.
    """
    moment = saved.run.started, saved.run.seconds  # to the nanosecond: no other run has it
    first = next(one for one in runs if (one.run.started, one.run.seconds) == moment)
    if first is not saved:
        return f"the same run as {first.place}"
    warms_up = re.fullmatch(r"(\d{3}-)?warm_up_\d+", Path(saved.place).name)
    return "shows the limit of the tool" if saved.run.null else "a run to warm up" if warms_up else ""


def _job_of(run: RunSummary) -> tuple[str | int, ...]:
    return run.digest, run.ranks, run.nodes, run.modelled


def _list_places(run: RunSummary) -> list[tuple[str, str, str]]:
    return [(place.root, place.kind, place.directory) for place in run.environment.file_systems]


def null_share(loop: LoopResult, nulls: Sequence[SavedRun]) -> float | None:
    """Return the time of a loop without I/O / with I/O; None if it is not known."""
    known = [(one.null_seconds, one.seconds) for one in loop.answer_epochs if one.null_seconds and one.seconds]
    if len(known) == len(loop.answer_epochs):
        return sum(null for null, _ in known) / sum(whole for _, whole in known)
    without = [one for null in nulls for one in null.loops if one.title == loop.title]
    rate, *rates = (aggregate.samples_per_second(one.answer_epochs) or 0.0 for one in (loop, *without))
    return rate / fmean(rates) if any(rates) else None


def sequential_rate(loop: LoopResult, runs: Sequence[SavedRun]) -> float | None:
    """Return samples/s of the same loop in runs that differ in reading in order alone; None for no shuffled loop."""
    if not _is_shuffled(loop.run):
        return None
    others = [other for one in runs if _reads_in_order(loop.run, one.run) for other in one.loops]
    rates = [aggregate.samples_per_second(one.answer_epochs) or 0.0 for one in others if one.title == loop.title]
    return fmean(rates) if rates else None


def _is_shuffled(run: RunSummary) -> bool:
    """Return whether a -D of `shuffle`, else a line of the pattern, asks for an order that is not `off`."""
    given = [value for name, value in run.overrides if name.rpartition(".")[2] == "shuffle"]
    lines = [line.partition("#")[0].split() for line in run.pattern.splitlines()]
    return any(value != "off" for value in given or [" ".join(line[1:]) for line in lines if line[:1] == ["shuffle"]])


def _reads_in_order(run: RunSummary, other: RunSummary) -> bool:
    """Return whether another run differs from a shuffled one in reading in order, and in nothing else."""
    names = [row[0].rpartition(".")[2] for row in override_rows([run, other])]
    names += [row[0].partition(" ")[0] for row in line_rows([run, other])]
    is_same_job = (run.name, run.ranks, run.nodes, run.null) == (other.name, other.ranks, other.nodes, other.null)
    return is_same_job and set(names) == {"shuffle"} and not _is_shuffled(other)


def _apply_rules(subjects: Mapping[str, Sequence[tuple[Any, ...]]], command: str = "") -> tuple[Finding, ...]:
    """Return the faults that the rules find in subjects, by the names of `Rule.subject`; `command` is that of a run."""
    found = []
    for rule in RULES:
        for subject in subjects.get(rule.subject, ()):
            title = f"{subject[0].title}: " if rule.subject in ("loop", "limit", "order") else ""
            answer = getattr(subject[0], "answer", None)
            advice = [f"{sentence(one)}: {one.command}".removesuffix(": ") for one in (answer.advice if answer else ())]
            other = (
                "repeat it on a quiet machine" if rule.subject == "comparison" else "read more data than memory holds"
            )
            mend = rule.mend.format(command=command, advice=[*advice, other][0])
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
