"""The commands about results, without MPI.

`dliosim report` shows them side by side as a table, as a page, or as pictures. `dliosim audit` says if they are fit to
publish, and makes a text on their set-up, or a bundle of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from dliosim.commands.job.terminal import print_text
from dliosim.errors import HELP, ExpectationMissed, UsageError, install_hint
from dliosim.readable import count, printable
from dliosim.report.compare.results import comparison_json
from dliosim.report.files.results import answer_json, write_atomic
from dliosim.report.reader.load import SavedComparison, SavedRun, load_results
from dliosim.report.run.screen import run_report
from dliosim.report.side_by_side import format_side_by_side


def report_command(parsed: SimpleNamespace) -> int:
    """Print the table of results, or write a page or pictures of them. Raises UsageError and OSError."""
    if parsed.html is None and parsed.png is None:
        results = load_results(parsed.results, with_arrays=False)
        show = _show_json if parsed.json else _show_all if parsed.full else format_side_by_side
        print_text(show(results))
        return 0
    check_matplotlib()
    if parsed.html is not None:
        check_page(Path(parsed.html))
    from dliosim.pictures.catalogue import draws_each, write_pictures

    results = load_results(parsed.results, with_arrays=draws_each(parsed.results))
    if parsed.html is not None:
        from dliosim.pictures.html_report import page

        write_atomic(Path(parsed.html), page(results).encode())
        print_text(f"page: {printable(str(Path(parsed.html)))}\n")
    if parsed.png is not None:
        place = Path(parsed.png)
        names, left_out = write_pictures(results, place)
        made = f"{count(len(names), 'picture')}, each as PNG and SVG, in {printable(str(place))}"
        print_text("".join(f"{line}\n" for line in (*left_out, f"pictures: {made}")))
    return 0


def audit_command(parsed: SimpleNamespace) -> int:
    """Print what a reviewer would object to, or do what an option asks. Raises UsageError and ExecutionError."""
    from dliosim.audit import setup_text, verdict  # `report` needs none of it
    from dliosim.report.reader.bundle import write_bundle

    results = load_results(parsed.results, with_arrays=parsed.bundle is not None)  # a bundle takes no damaged arrays
    if parsed.bundle is not None:
        write_bundle(Path(parsed.bundle), list(map(Path, parsed.results)))
        print_text(f"bundle: {parsed.bundle}\n")
    elif parsed.text:
        print_text(setup_text.describe_setup(results))
    else:
        audits = verdict.audit_results(results)
        print_text("".join(map(verdict.audit_json, audits)) if parsed.json else verdict.audit_text(audits))
        if parsed.strict and (objections := sum(one.objections for one in audits)):
            sys.stderr.write(f"error: {count(objections, 'objection')}\n")
            return ExpectationMissed.exit_code
    return 0


def _show_json(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return a line of JSON for each result, as `dliosim run --json` and `dliosim compare --json` print it."""
    return "".join(
        answer_json(one.run, Path(one.place).absolute())
        if isinstance(one, SavedRun)
        else comparison_json(one.comparison.name, one.comparison.answer, Path(one.place).absolute())
        for one in results
    )


def _show_all(results: Sequence[SavedRun | SavedComparison]) -> str:
    """Return all tables of each result, one after the other."""
    texts = [
        run_report(one.run, {loop.title: loop.latencies for loop in one.loops})
        if isinstance(one, SavedRun)
        else format_side_by_side([one])
        for one in results
    ]
    heads = [f"{one.label}: {one.place}\n\n" if len(results) > 1 else "" for one in results]
    return "\n".join(map(str.__add__, heads, texts))


def check_matplotlib() -> None:
    """Check that pictures can be drawn; UsageError with the extra to install if not."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"pictures need matplotlib, which cannot be imported ({error}); the table alone does not"
            f"{HELP}{install_hint('report')}"
        ) from error


def check_page(path: Path) -> None:
    """Raise UsageError for a page that might overwrite a result or a trace, in any order of arguments."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html {path}: name a file that ends in .html")
