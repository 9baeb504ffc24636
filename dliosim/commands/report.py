"""The command `dliosim report`: results side by side as a table, as a page, or as pictures, without MPI."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dliosim.errors import ExecutionError, UsageError
from dliosim.readable import count, printable
from dliosim.report.reader.load import SavedComparison, SavedRun, load_results
from dliosim.report.results import write_atomic
from dliosim.report.side_by_side import format_side_by_side


def report_command(parsed: argparse.Namespace) -> int:
    """Print the table of results, or write a page or pictures of them. Raises UsageError and ExecutionError."""
    if parsed.html is None and parsed.png is None:
        sys.stdout.write(printable(format_side_by_side(load_results(parsed.results, with_arrays=False)), lines=True))
        return 0
    _check_matplotlib()
    if parsed.html is not None and not parsed.html.lower().endswith((".html", ".htm")):
        # So the page never overwrites a result, in any order of arguments.
        raise UsageError(f"--html {parsed.html}: name a file that ends in .html")
    results = load_results(parsed.results, with_arrays=True)
    try:
        if parsed.html is not None:
            _write_page(results, Path(parsed.html))
        if parsed.png is not None:
            _write_pictures(results, Path(parsed.png))
    except OSError as error:
        raise ExecutionError(f"{error.filename or 'the report'} cannot be written: {error.strerror}") from error
    return 0


def _write_page(results: list[SavedRun | SavedComparison], path: Path) -> None:
    from dliosim.pictures.html_report import page

    write_atomic(path, page(results).encode())
    sys.stdout.write(f"page: {printable(str(path))}\n")


def _write_pictures(results: list[SavedRun | SavedComparison], directory: Path) -> None:
    from dliosim.pictures.catalogue import write_pictures

    names, left_out = write_pictures(results, directory)
    sys.stdout.writelines(f"{line}\n" for line in left_out)
    where = printable(str(directory))
    sys.stdout.write(f"pictures: {count(len(names), 'picture')}, each as PNG and SVG, in {where}\n")


def _check_matplotlib() -> None:
    """Check that pictures can be drawn; UsageError with the extra to install if not."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"pictures need matplotlib, which cannot be imported ({error}); the table alone does not\n"
            "  = help: pip install 'dliosim[report]' (in a checkout: pip install '.[report]')"
        ) from error
