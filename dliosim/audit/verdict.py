"""The audit of results: each rule on each result, and what it found as text or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dliosim.audit import repetitions, rules
from dliosim.audit.rules import OBJECTION, Rule
from dliosim.measure.answers.advice import command_line
from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import count
from dliosim.report.answer_sentences import sentence
from dliosim.report.files.results import copy_members
from dliosim.report.phase_titles import group_by
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun
from dliosim.report.text_table import wrap_text

#: All rules, objections first.
RULES: Final = tuple(sorted((*rules.RULES, *repetitions.RULES), key=lambda rule: rule.severity != OBJECTION))


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
        notes = count(len(self.findings) - self.objections, "note")
        verdict = count(self.objections, "objection") if self.objections else "fit to publish: no objection"
        return "not judged: shows the limit of the tool" if self.is_limit else f"{verdict}, {notes}"


def audit_results(results: Sequence[SavedRun | SavedComparison]) -> list[Audit]:
    """Return the audit of each result; a run without I/O is not judged next to a run of its job with I/O."""
    return [_audit_result(one, [each for each in results if isinstance(each, SavedRun)]) for one in results]


def _audit_result(saved: SavedRun | SavedComparison, runs: Sequence[SavedRun]) -> Audit:
    if isinstance(saved, SavedComparison):
        found = saved.comparison
        return Audit(saved, tuple(_apply_rules({"machine": [(found,)], "comparison": [(found, found.answer)]})))
    run, job = saved.run, repetitions.find_job(saved, runs)
    if run.null and job.repetitions:
        return Audit(saved, (), is_limit=True)
    loops = [(one, one.answer) for one in repetitions.list_loops(saved)]
    subjects = {"run": [(run,)], "machine": [(run,)], "loop": loops, "job": [] if run.null else [(job,)]}
    return Audit(saved, tuple(_apply_rules(subjects, run)))


def _apply_rules(subjects: dict[str, Any], run: RunSummary | None = None) -> Iterator[Finding]:
    """Yield the faults that the rules find in subjects; those with an answer have it as the second argument."""
    for rule in RULES:
        for subject in subjects.get(rule.subject, ()):
            title = f"{subject[0].title}: " if isinstance(subject[0], LoopResult) else ""
            advice = [f"{sentence(one)}: {one.command}" for answer in subject[1:] for one in answer.advice]
            mend = {"advice": advice[0].removesuffix(": ") if advice else "read more data than memory holds"}
            mend |= _list_commands(run, subject[0]) if run else {}
            yield from (Finding(rule, title + text, rule.mend.format_map(mend)) for text in rule.check(*subject))


def _list_commands(run: RunSummary, subject: object) -> dict[str, str]:
    """Return the commands of `Rule.mend`: about the loop of a subject, else about the first one."""
    phases = subject.phases if isinstance(subject, LoopResult) else run.loops
    uncached = f"{phases[0].name}.cache=off" if phases else ""
    overrides = {"command": "", "uncached": uncached, "whole": "scale=1"}
    return {name: command_line(run, one, without=("--null", "--with-null")) for name, one in overrides.items()}


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
