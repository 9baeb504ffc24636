"""One page of all results: first next to each other, then each result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dliosim.pictures import html
from dliosim.pictures.catalogue import Gallery, comparison_gallery, draw_pictures, loop_gallery, runs_gallery
from dliosim.pictures.style import render_figure
from dliosim.readable import count
from dliosim.report.compare.answer_lines import comparison_lines
from dliosim.report.compare.saved_table import legend_of_comparison, not_run_lines, tables_of_comparison
from dliosim.report.conditions import conditions, environment_rows
from dliosim.report.reader.load import SavedComparison, SavedRun, loop_titles
from dliosim.report.run_report import expectation_line
from dliosim.report.side_by_side import answers_of_runs, label_places, tables_of_runs, warnings_of_runs
from dliosim.report.warnings import warnings_of

_HOW = (
    "Colours mean the same everywhere. Figures are over the epochs after the first (the only one, if there is one) "
    "where nothing else is said. docs/report.md of dliosim says how to read each picture, docs/metrics.md has every "
    "formula."
)


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
    sections = [_overview_section(runs)] if runs else []
    for i, one in enumerate(results):
        anchor = f"result-{i + 1}"
        sections.append(_run_section(one, anchor) if isinstance(one, SavedRun) else _comparison_section(one, anchor))
    labels = ", ".join(one.label for one in results)
    body = [
        html.heading(1, f"dliosim: {labels}" if len(labels) < 80 else f"dliosim: {count(len(results), 'result')}"),
        *map(html.lines, answers_of_runs(runs)),
        html.paragraph(_HOW, "faint"),
        html.contents([(one.title, one.anchor, one.parts) for one in sections]),
    ]
    for section in sections:
        body += [html.heading(2, section.title, section.anchor), *section.pieces]
    return html.document(f"dliosim: {labels}"[:120], body)


def _overview_section(runs: Sequence[SavedRun]) -> _Section:
    section = _Section("Results side by side" if len(runs) > 1 else "Figures", "side-by-side")
    section.pieces.append(html.items(label_places(runs)))
    section.pieces += [html.table(one) for one in tables_of_runs(runs)]
    said = [f"{label}: {line}" if len(runs) > 1 else line for label, line in warnings_of_runs(runs)]
    section.pieces.append(html.items([f"Warning: {line}" for line in said], "warnings"))
    for title in loop_titles(runs):
        gallery = runs_gallery(runs, title)
        if gallery.pictures:
            section.add_part(title)
            section.pieces += _format_pictures(gallery)
    return section


def _run_section(saved: SavedRun, anchor: str) -> _Section:
    run = saved.run
    command = [("command", shlex.join(("dliosim", *run.arguments)))] if run.arguments else []
    section = _Section(saved.label, anchor)
    section.pieces += [
        html.definitions([("directory", saved.place), *conditions(run), ("started", run.started), *command]),
        html.items([f"Warning: {line}" for line in warnings_of(run)], "warnings"),
        html.items([expectation_line(one) for one in run.expectations]),
    ]
    for loop in saved.loops:
        section.add_part(loop.title)
        section.pieces += [
            html.paragraph(note) for note in dict.fromkeys(note for one in loop.phases for note in one.notes)
        ]
        section.pieces += _format_pictures(loop_gallery(saved, loop))
    if not saved.loops:
        section.pieces.append(html.paragraph("This run has no loop, and so no pictures.", "faint"))
    section.pieces.append(html.collapse_text("The pattern", run.pattern))
    return section


def _comparison_section(saved: SavedComparison, anchor: str) -> _Section:
    found = saved.comparison
    section = _Section(saved.label, anchor)
    section.pieces.append(html.paragraph(f"{found.name}: {found.title}" if found.title else found.name))
    section.pieces.append(html.lines(comparison_lines(found, found.answer)))
    section.pieces.append(html.items(found.notes))
    section.pieces.append(html.items(legend_of_comparison(saved)))
    section.pieces += [html.table(one) for one in tables_of_comparison(saved)]
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
