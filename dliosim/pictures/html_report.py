"""One page of all results: first next to each other, then each result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dliosim.compare.answer import EITHER, NO_DIFFERENCE, USE
from dliosim.measure.results.run_summary import FEEDS, STARVES, TOO_CLOSE
from dliosim.pictures import html
from dliosim.pictures.catalogue import (
    Gallery,
    TimeScales,
    comparison_gallery,
    draw_pictures,
    files_gallery,
    loop_gallery,
    runs_gallery,
    scales_by_title,
)
from dliosim.pictures.style import render_figure
from dliosim.readable import count
from dliosim.report.compare.answer_lines import comparison_rows, more_limits
from dliosim.report.compare.saved_table import not_run_lines, tables_of_comparison
from dliosim.report.reader.load import SavedComparison, SavedRun, loop_titles
from dliosim.report.run.all_tables import expectation_line
from dliosim.report.run.answer_lines import answer_rows, describe_answer
from dliosim.report.run.conditions import conditions, environment_rows
from dliosim.report.side_by_side import CONDITIONS, label_places, tables_of_runs, warnings_of_runs

_HOW = (
    "Colours mean the same in all pictures. docs/report.md of dliosim says how to read each picture, docs/metrics.md "
    "has every formula."
)

#: Classes of verdicts in the style of the page.
_KINDS = {FEEDS: "good", USE: "good", EITHER: "good", STARVES: "bad", TOO_CLOSE: "open", NO_DIFFERENCE: "open"}

_LONGEST_TITLE = 100


@dataclass(slots=True)
class _Section:
    """A heading with its content."""

    title: str  #: text of the heading
    anchor: str  #: anchor of the heading
    pieces: list[str] = field(default_factory=list)  #: HTML below the heading
    parts: list[tuple[str, str]] = field(default_factory=list)  #: (title, anchor) of headings inside

    def add_part(self, title: str) -> None:
        anchor = f"{self.anchor}-{len(self.parts) + 1}"
        self.parts.append((title, anchor))
        self.pieces.append(html.heading(3, title, anchor))


def page(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return the page as HTML, complete in itself; the same for the same results."""
    runs = [one for one in results if isinstance(one, SavedRun)]
    scales = scales_by_title(runs)
    sections = [_overview_section(runs)] if runs else []
    is_only = len(results) == 1
    for i, one in enumerate(results):
        title, anchor = "Conditions and pictures" if is_only else one.label, f"result-{i + 1}"
        if isinstance(one, SavedRun):
            sections.append(_run_section(one, title, anchor, scales))
        else:
            sections.append(_comparison_section(one, title, anchor))
        sections[-1].pieces[:0] = () if is_only else _answer_pieces(one)
    title = _title(results)
    body = [
        html.heading(1, title),
        *(_answer_pieces(results[0]) if is_only else _verdict_pieces(results)),
        html.contents([(one.title, one.anchor, one.parts) for one in sections]),
        html.paragraph(_HOW, "faint"),
    ]
    for section in sections:
        body += [html.heading(2, section.title, section.anchor), *section.pieces]
    return html.document(title, body)


def _title(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return the workload, with its title if there is one result, else the workloads and the number of results."""
    contents = [one.run if isinstance(one, SavedRun) else one.comparison for one in results]
    if len(contents) == 1:
        return ": ".join(filter(None, [contents[0].name, contents[0].title]))
    names = ", ".join(dict.fromkeys(one.name for one in contents))
    return f"{names[:_LONGEST_TITLE]}: {count(len(results), 'result')}"


def _answer_pieces(one: SavedRun | SavedComparison) -> Iterator[str]:
    """Yield the answer of a result, as on a terminal, then what a run missed."""
    if isinstance(one, SavedComparison):
        found = one.comparison
        title, rows = comparison_rows(found, found.answer)
        rows += more_limits(found, found.answer)
        yield html.answer(title, rows, found.answer.verdict, _kind(found.answer.verdict))
        return
    verdict = one.run.answers[0].verdict if one.run.answers else ""
    yield html.answer(*answer_rows(one.run), verdict, _kind(verdict))
    yield html.items([expectation_line(each) for each in one.run.expectations if each.is_missed], "missed")


def _verdict_pieces(results: Sequence[SavedRun | SavedComparison]) -> Iterator[str]:
    """Yield the verdict of each comparison and on each loop of each run, then what runs missed."""
    rows: list[tuple[str, str, str, str]] = []
    missed: list[str] = []
    for one in results:
        if isinstance(one, SavedComparison):
            found = one.comparison.answer
            rows.append((one.label, found.verdict, _kind(found.verdict), f": {found.use or found.reasons[0]}"))
            continue
        for answer in one.run.answers:
            text = describe_answer(answer)
            rows.append(
                (f"{one.label}, {answer.loop}", answer.verdict, _kind(answer.verdict), f": {text}" if text else "")
            )
        missed += [f"{one.label}: {expectation_line(each)}" for each in one.run.expectations if each.is_missed]
    yield html.verdicts(rows)
    yield html.items(missed, "missed")


def _kind(verdict: str) -> str:
    """Return the class of a verdict in the style of the page."""
    return _KINDS.get(verdict, "plain")


def _overview_section(runs: Sequence[SavedRun]) -> _Section:
    section = _Section("Results side by side" if len(runs) > 1 else "Figures", "side-by-side")
    section.pieces.append(html.items([f"Warning: {line}" for line in warnings_of_runs(runs)], "warnings"))
    section.pieces.append(html.items(label_places(runs)))
    # The conditions of a single run are in its own section.
    tables = [one for one in tables_of_runs(runs) if len(runs) > 1 or one.title != CONDITIONS]
    section.pieces += map(html.table, tables)
    for title in loop_titles(runs):
        gallery = runs_gallery(runs, title)
        if gallery.pictures:
            section.add_part(title)
            section.pieces += _format_pictures(gallery)
    return section


def _run_section(saved: SavedRun, title: str, anchor: str, scales: Mapping[str, TimeScales]) -> _Section:
    run = saved.run
    launcher = ("mpiexec", "-n", str(run.ranks)) if run.ranks > 1 else ()
    command = [("command", shlex.join((*launcher, run.program, *run.arguments)))] if run.arguments else []
    section = _Section(title, anchor)
    section.pieces += [
        html.definitions([("directory", saved.place), *conditions(run), ("started", run.started), *command]),
        html.items([expectation_line(one) for one in run.expectations if not one.is_missed]),
    ]
    for loop in saved.loops:
        section.add_part(loop.title)
        section.pieces += [
            html.paragraph(note) for note in dict.fromkeys(note for one in loop.phases for note in one.notes)
        ]
        section.pieces += _format_pictures(loop_gallery(saved, loop, scales[loop.title]))
    files = files_gallery(saved)
    if files.pictures:
        section.add_part("Saves and restores")
        section.pieces += _format_pictures(files)
    if not section.parts:
        section.pieces.append(html.paragraph("A run without loops, saves and restores has no pictures.", "faint"))
    section.pieces.append(html.collapse_text("The pattern", run.pattern))
    return section


def _comparison_section(saved: SavedComparison, title: str, anchor: str) -> _Section:
    found = saved.comparison
    section = _Section(title, anchor)
    section.pieces.append(html.items(found.notes))
    labels = [one.label for one in found.variants]
    section.pieces += [html.table(one) for one in tables_of_comparison(saved, labels)]
    section.pieces.append(html.items(not_run_lines(found)))
    section.pieces.append(
        html.definitions(
            [
                ("directory", saved.place),
                *(("override", f"-D {name}={value}") for name, value in found.overrides),
                *([("caches", f"{found.caches} before each pass")] if found.caches else []),
                *environment_rows(found.environment, found.ranks, found.nodes),
            ]
        )
    )
    section.pieces += _format_pictures(comparison_gallery(found))
    return section


def _format_pictures(gallery: Gallery) -> Iterator[str]:
    for picture, figure in draw_pictures(gallery.pictures):
        yield html.picture(picture.title, picture.caption, render_figure(figure, "svg"))
    for line in gallery.left_out:
        yield html.paragraph(line, "faint")
