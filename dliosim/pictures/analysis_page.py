"""The page of an analysis: insights on top, pictures over time, then all tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dliosim.analyze.figures import Figures
from dliosim.analyze.insights import Finding, is_costly
from dliosim.analyze.view import View
from dliosim.pictures import html
from dliosim.pictures.analysis_pictures import list_pictures
from dliosim.pictures.style import apply_style, render_figure
from dliosim.readable import count, printable, seconds
from dliosim.report.analyze.first_screen import cure_lines, describe_job, split_note
from dliosim.report.analyze.tables import list_tables

_HOW = (
    "Times of insights are those of a mean rank that each concerns: at most this can be gained, and several may "
    "concern the same time. docs/analyze.md of dliosim has every definition and threshold."
)


def page(view: View, figures: Figures, findings: Sequence[Finding]) -> str:
    """Return the page as HTML, complete in itself; the same for the same trace."""
    time, *others = list_tables(figures, findings)
    split = [html.table(time), html.paragraph(split_note(figures))]
    job = html.items([printable(" ".join(describe_job(figures.job, figures)))], "where")
    return html.page(
        printable(f"What {figures.job.path} says"),
        [job, *_insight_pieces(figures, findings)],
        [
            html.Section("Pictures", list(_picture_pieces(view, figures))),
            html.Section("Time", [*split, html.items([printable(note) for note in figures.job.notes])]),
            html.Section("All tables", list(map(html.table, others))),
        ],
    )


def _picture_pieces(view: View, figures: Figures) -> Iterator[str]:
    """Yield the pictures that a trace has something for."""
    with apply_style():
        for name, caption, drawn in list_pictures(view, figures):
            yield html.picture(name, caption, render_figure(drawn, "svg"))


def _insight_pieces(figures: Figures, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield each costly insight with what to try, then the others in a line."""
    met = [one for one in findings if one.is_met]
    costly = [one for one in met if is_costly(one, figures)]
    for one in costly:
        assert one.found is not None
        cost = "all figures are in doubt" if one.found.cost is None else f"up to {seconds(one.found.cost, 3)} a rank"
        text = f"{one.found.words} (threshold {one.insight.threshold})"
        words, *lines = cure_lines(one, figures)
        rows = [("FOUND", text), ("TRY", "\n".join([words, *lines]))]
        yield html.answer(
            f"{one.insight.name}  {cost}", [(name, printable(row, lines=True)) for name, row in rows], "", "bad"
        )
    rest = [one for one in met if one not in costly]
    if rest:
        yield html.paragraph(f"Little to gain: {', '.join(one.insight.name for one in rest)}.", "faint")
    if not met:
        looked = count(sum(one.found is not None for one in findings), "insight")
        yield html.answer(
            "No insight", [("FOUND", f"{looked} were looked at, and none is beyond its threshold.")], "", "good"
        )
    yield html.paragraph(_HOW, "faint")
