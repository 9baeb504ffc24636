"""The first screen of an analysis: insights, then where the time went; and all tables below it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from dliosim.analyze.figures.job import Figures, Job
from dliosim.analyze.insights.jobs import Changes
from dliosim.analyze.insights.rules import INSIGHTS, Finding, is_costly
from dliosim.analyze.report.tables import brief_functions_table, changes_tables, list_tables, split_table
from dliosim.model.access import write_readers
from dliosim.readable import count, printable, seconds, size
from dliosim.report.text_table import SCREEN, format_table, wrap_text

#: Lines of a first screen, and insights and sentences of the reader that it shows in full.
LINES: Final = 40
_MOST_INSIGHTS, _MOST_NOTES = 4, 2

_INDENT = " " * 9

#: Insights about times of ranks, in which waits for a core are, too.
_RANKS_DIFFER: Final = ("straggler", "uneven-time")

#: Readers that are advised if a run has fewer, and its cores are not known.
_READERS = 4

_UNION = "The union over all ranks hides a rank that waits while others work."
_NO_COMPUTE = "The trace has no compute, so nothing can be said about I/O that is hidden behind it."
_WORKERS = (
    "Compute and I/O are in different processes that the trace assigns to no rank: only the union says what is hidden."
)


def format_analysis(figures: Figures, findings: Sequence[Finding], full: bool) -> str:
    """Return the analysis of a job as text: a screen, or with `full` all tables."""
    met = [one for one in findings if one.is_met]
    costly = [one for one in met if is_costly(one, figures)]
    shown = costly if full else costly[:_MOST_INSIGHTS]
    head = [*describe_job(figures.job, figures), *_wrap(core_warnings(figures.job)), ""]
    head += _insight_lines(shown, met, findings, figures)
    if full:
        notes = [*figures.job.incomplete[1:], *figures.job.notes, split_note(figures)]
        tables = map(format_table, list_tables(figures, findings))
        return "\n".join([*head, "", *_wrap(notes), "", "\n\n".join(tables)]) + "\n"
    split = format_table(split_table(figures.split, figures.epochs), SCREEN).splitlines()
    notes = _wrap([split_note(figures), *figures.job.notes[:_MOST_NOTES]])
    room = LINES - len(head) - len(split) - len(notes) - 9
    functions = brief_functions_table(figures, max(room, 1))
    below = format_table(functions, SCREEN).splitlines() if functions.rows and room > 0 else []
    more = ["", "All tables: --full. One insight: --explain NAME. Pictures: --html page.html."]
    lines = [*head, "", *split, *notes, *(["", *below] if below else []), *more]
    return "\n".join(lines) + "\n"


def describe_job(job: Job, figures: Figures) -> list[str]:
    """Return the source of a trace: its place, the tool that wrote it, and its size."""
    moved = [size(sum(getattr(one, side) for one in figures.ranks), 3) for side in ("read", "written")]
    parts = [
        count(job.ranks, "rank") if job.ranks else "",
        count(job.processes, "process", "processes") if job.processes != job.ranks else "",
        count(job.nodes, "node") if job.nodes else "",
        seconds(job.seconds, 4),
        f"{moved[0]} read, {moved[1]} written",
        f"{count(job.operations, 'operation')} on {count(figures.access.files, 'file')}",
    ]
    left = [f"{number} {what}" for what, number in job.left_out.items()]
    events = count(job.events, "event") + (f", besides {', '.join(left)}" if left else "")
    return _wrap([f"{job.path} ({job.source}, {events})", ", ".join(filter(None, parts))])


def core_warnings(job: Job) -> list[str]:
    """Return the warning that ranks or readers of a run of dliosim waited for cores; none if they did not."""
    return [f"warning: {job.core_wait}: all times include such waits"] if job.core_wait else []


def split_note(figures: Figures) -> str:
    """Return the note on the time split."""
    split = figures.split
    return _NO_COMPUTE if not split.has_compute else _UNION if split.is_by_rank else _WORKERS


def cure_lines(one: Finding, figures: Figures) -> list[str]:
    """Return the remedy: in words, and for a run of dliosim the option to add to its command line."""
    option, words = _own_option(one, figures.job), (one.found.cure if one.found else "") or one.insight.cure
    waited = figures.job.core_wait
    if waited and "{readers}" in one.insight.own:
        crowd = "use fewer ranks or readers, or more cores"
        words = f"{words}; no more than have a core: {waited}" if option else f"{crowd}: {waited}"
    if waited and one.insight.name in _RANKS_DIFFER:
        words = f"first give each rank and reader a core, as {waited}; then {words}"
    return [words, option] if option else [words]


def _own_option(one: Finding, job: Job) -> str:
    """Return the option of an insight for a run of dliosim; empty for other jobs, and if the run has it already."""
    if job.source != "dliosim" or not one.insight.own:
        return ""
    now = job.settings
    if "{checkpoint}" in one.insight.own and not now.get("checkpoint"):
        return ""
    number = min(job.reader_cores or _READERS, _READERS)
    many, _, kind = now.get("readers", "").partition(" ")
    readers = f'"{write_readers(number, True)}"' if kind == "processes" else number
    option = one.insight.own.format(loop=job.loop, checkpoint=now.get("checkpoint", ""), readers=readers)
    name, _, value = option.partition("=")
    # Of `memory 8 GB` and `queued depth 4` the first word says whether the run does that.
    present, wanted = now.get(name.rpartition(".")[2], ""), value.strip('"')
    # More readers than that may want more cores than the node has.
    has_readers = "{readers}" in one.insight.own and many.isdecimal() and int(many) >= number
    return "" if has_readers or present in (wanted, wanted.split(" ")[0]) else option


def _insight_lines(
    shown: Sequence[Finding], met: Sequence[Finding], findings: Sequence[Finding], figures: Figures
) -> Iterator[str]:
    """Yield the insights, or what was looked at without finding any."""
    if not met:
        known = [one for one in findings if one.found is not None]
        yield f"NO INSIGHT: {len(known)} of {len(INSIGHTS)} were looked at, and none is beyond its threshold:"
        yield from _wrap([", ".join(one.insight.name for one in known)])
        return
    if not any(is_costly(one, figures) for one in met):
        yield "NOTHING COSTLY: each finding concerns less than 1 % of the job's time:"
        yield from _wrap([", ".join(one.insight.name for one in met)])
        return
    yield "INSIGHTS, the most costly first: time of a mean rank that each concerns, at most"
    cures: dict[str, str] = {}
    for one in shown:
        assert one.found is not None
        cost = "unknown" if one.found.cost is None else seconds(one.found.cost, 3)
        text = f"{one.insight.name}: {one.found.words} (threshold {one.insight.threshold})"
        yield from _wrap([text], f"{cost:>7}  ", _INDENT)
        same = cures.setdefault(one.insight.cure, one.insight.name)
        words, *lines = cure_lines(one, figures) if same == one.insight.name else [f"as for {same}"]
        yield from _wrap([f"TRY {words}"], _INDENT, _INDENT)
        yield from (f"{_INDENT}{printable(line)}" for line in lines)
    rest = [one for one in met if one not in shown]
    costly = [
        f"{one.insight.name} ({seconds(one.found.cost, 3)})"
        for one in rest
        if one.found and one.found.cost and is_costly(one, figures)
    ]
    little = [one.insight.name for one in rest if not is_costly(one, figures)]
    if costly:
        yield from _wrap([f"Also: {', '.join(costly)}."])
    if little:
        yield from _wrap([f"Little to gain (below 1 % of the job's time): {', '.join(little)}."])


def explain_insight(name: str) -> str:
    """Return definition, threshold, source and cure of an insight; KeyError for a name that none has."""
    one = {one.name: one for one in INSIGHTS}[name]
    rows = [("figure", one.figure), ("found if", one.threshold), ("from", one.source), ("try", one.cure)]
    if one.own:
        rows.append(("dliosim", one.own.format(loop="train", checkpoint="model", readers=_READERS)))
    lines = [f"{one.name}: {one.about}"]
    for label, text in rows:
        lines += textwrap.wrap(text, SCREEN, initial_indent=f"  {label:<10}", subsequent_indent=" " * 12)
    return "\n".join(lines) + "\n"


def format_changes(changes: Changes, names: Sequence[str]) -> str:
    """Return what changed from one job to another, as text."""
    lines = _wrap([f"From {names[0]} to {names[1]}:"])
    differs = ", ".join(one.what for one in changes.others)
    verdict = f"not the same I/O: other {differs}" if differs else "the same I/O, as far as both traces say"
    lines += _wrap([f"{verdict}; within 5 %: {', '.join(changes.same) or 'nothing'}"])
    for word, found in (("new", changes.appeared), ("gone", changes.gone)):
        lines += _wrap([f"{word}: {one.insight.name}: {one.found.words}" for one in found if one.found])
    if not changes.times:
        lines.append("No time changed by 0.5 % of the job.")
    tables = [format_table(one, SCREEN) for one in changes_tables(changes, names)]
    return "\n\n".join(["\n".join(lines), *tables]) + "\n"


def _wrap(texts: Sequence[str], first: str = "", others: str = "") -> list[str]:
    return [line for text in texts for line in wrap_text(printable(text), first, others, SCREEN).splitlines()]
