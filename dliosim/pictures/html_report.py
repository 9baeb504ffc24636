"""One page of all results: answers, pictures side by side and of each result, then tables, and conditions last."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dliosim.compare.answer import EITHER, NO_DIFFERENCE, USE
from dliosim.measure.results.verdicts import CANNOT_SAY, FEEDS, STARVES, TOO_CLOSE
from dliosim.pictures import catalogue, html
from dliosim.pictures.style import render_figure
from dliosim.readable import count
from dliosim.report.answer_sentences import sentence
from dliosim.report.compare.tables import comparison_rows, comparison_tables, more_limits, not_run_lines
from dliosim.report.reader.load import SavedComparison, SavedRun, loop_titles
from dliosim.report.run.answer_lines import answer_rows, describe_answer
from dliosim.report.run.conditions import conditions, environment_rows
from dliosim.report.run.screen import expectation_line
from dliosim.report.side_by_side import CONDITIONS, label_places, tables_of_runs, warnings_of_runs

_HOW = (
    "Colours mean the same in all pictures. docs/report.md of dliosim says how to read each picture, docs/metrics.md "
    "has every formula."
)

#: Classes of verdicts in the style of the page.
_KINDS = {
    **dict.fromkeys((FEEDS, USE, EITHER), "good"),
    STARVES: "bad",
    **dict.fromkeys((TOO_CLOSE, CANNOT_SAY, NO_DIFFERENCE), "open"),
}

_LONGEST_TITLE = 100


def page(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return the page as HTML, complete in itself; the same for the same results."""
    runs = [one for one in results if isinstance(one, SavedRun)]
    comparisons = [one for one in results if isinstance(one, SavedComparison)]
    is_only = len(results) == 1
    side_by_side = tables_of_runs(runs)
    tables = [html.table(one) for one in side_by_side if one.title != CONDITIONS]
    differing = [html.table(one) for one in side_by_side if one.title == CONDITIONS and not is_only]
    places = [html.items(label_places(results))]
    details = [(one.label, list(_condition_pieces(one))) for one in results if catalogue.draws_each(results)]
    sections = [
        *_picture_sections(results, runs),
        html.Section("Warnings", [html.items([f"Warning: {line}" for line in warnings_of_runs(runs)], "warnings")]),
        html.Section("Tables", [*tables, *(piece for one in comparisons for piece in _table_pieces(one))]),
        html.Section("Conditions", details[0][1] if is_only else [*places, *differing], () if is_only else details),
    ]
    answer = _answer_pieces(results[0]) if is_only else _verdict_pieces(results)
    return html.page(_title(results), [*answer, html.paragraph(_HOW, "faint")], sections)


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
        title, rows = comparison_rows(found)
        rows += more_limits(found)
        yield html.answer(title, rows, found.answer.verdict, _kind(found.answer.verdict))
        return
    verdict = one.run.answers[0].verdict if one.run.answers else ""
    yield html.answer(*answer_rows(one.run), verdict, _kind(verdict))
    for kind, is_missed in (("missed", True), ("", False)):
        yield html.items([expectation_line(each) for each in one.run.expectations if each.is_missed == is_missed], kind)


def _verdict_pieces(results: Sequence[SavedRun | SavedComparison]) -> Iterator[str]:
    """Yield the verdict of each comparison and on each loop of each run, then what runs missed; of many only counts."""
    rows: list[tuple[str, str, str]] = []
    missed: list[str] = []
    for one in results:
        if isinstance(one, SavedComparison):
            found = one.comparison.answer
            rows.append((one.label, found.verdict, f": {found.use or sentence(found.reasons[0])}"))
            continue
        for answer in one.run.answers:
            text = describe_answer(answer)
            rows.append((f"{one.label}, {answer.loop}", answer.verdict, f": {text}" if text else ""))
        missed += [f"{one.label}: {expectation_line(each)}" for each in one.run.expectations if each.is_missed]
    if not catalogue.draws_each(results):
        counts = Counter(verdict for _, verdict, _ in rows)
        rows = [(f"{many} of {len(rows)} answers", verdict, "") for verdict, many in counts.items()]
        if more := missed[catalogue.MOST_DRAWN :]:
            missed[catalogue.MOST_DRAWN :] = [f"and {count(len(more), 'line')} more"]
    yield html.verdicts([(label, verdict, _kind(verdict), text) for label, verdict, text in rows])
    yield html.items(missed, "missed")


def _kind(verdict: str) -> str:
    """Return the class of a verdict in the style of the page."""
    return _KINDS.get(verdict, "plain")


def _picture_sections(
    results: Sequence[SavedRun | SavedComparison], runs: Sequence[SavedRun]
) -> Iterator[html.Section]:
    """Yield the pictures of the only result, or of all together, then the answer and pictures of each if few."""
    if len(results) == 1:
        yield _picture_section(results[0], catalogue.scales_by_title(runs))
        return
    together = [(title, _format_pictures(catalogue.runs_gallery(runs, title))) for title in loop_titles(runs)]
    left_out = [] if catalogue.draws_each(results) else [html.paragraph(catalogue.LEFT_OUT)]
    yield html.Section("Results side by side", left_out, together)
    if catalogue.draws_each(results):
        scales = catalogue.scales_by_title(runs)
        for one in results:
            section = _picture_section(one, scales)
            yield html.Section(one.label, [*_answer_pieces(one), *section.pieces], section.parts)


def _picture_section(one: SavedRun | SavedComparison, scales: Mapping[str, catalogue.TimeScales]) -> html.Section:
    """Return the pictures of one result: of the comparison, or of each loop, of saves and restores."""
    if isinstance(one, SavedComparison):
        return html.Section("Pictures", _format_pictures(catalogue.comparison_gallery(one.comparison)))
    galleries = [(loop.title, catalogue.loop_gallery(one, loop, scales[loop.title])) for loop in one.loops]
    galleries.append(("Saves and restores", catalogue.files_gallery(one)))
    parts = [(title, _format_pictures(gallery)) for title, gallery in galleries]
    without = html.paragraph("A run without loops, saves and restores has no pictures.", "faint")
    return html.Section("Pictures", () if any(pieces for _, pieces in parts) else [without], parts)


def _table_pieces(saved: SavedComparison) -> Iterator[str]:
    """Yield the tables of a comparison, and its notes."""
    found = saved.comparison
    yield from map(html.table, comparison_tables(found, saved.label, [one.label for one in found.variants]))
    yield html.items([*not_run_lines(found), *found.notes])


def _condition_pieces(one: SavedRun | SavedComparison) -> Iterator[str]:
    """Yield under which conditions a result was made, with its notes and its pattern."""
    if isinstance(one, SavedComparison):
        found = one.comparison
        overrides = [("override", f"-D {name}={value}") for name, value in found.overrides]
        caches = [("caches", f"{found.caches} before each pass")] if found.caches else []
        machine = environment_rows(found.environment, found.ranks, found.nodes)
        yield html.definitions([("directory", one.place), *overrides, *caches, *machine])
        return
    run = one.run
    launcher = ("mpiexec", "-n", str(run.ranks)) if run.ranks > 1 else ()
    command = [("command", shlex.join((*launcher, run.program, *run.arguments)))] if run.arguments else []
    notes = dict.fromkeys((f"note {loop.title}", note) for loop in one.loops for p in loop.phases for note in p.notes)
    known = sorted(conditions(run), key=lambda pair: pair[0] == "digest")  # hashes last
    yield html.definitions([("directory", one.place), ("started", run.started), *command, *notes, *known])
    yield html.collapse_text("The pattern", run.pattern)


def _format_pictures(gallery: catalogue.Gallery) -> list[str]:
    drawn = catalogue.draw_pictures(gallery.pictures)
    pictures = [html.picture(one.title, one.caption, render_figure(figure, "svg")) for one, figure in drawn]
    return pictures + [html.paragraph(line, "faint") for line in gallery.left_out]
