"""All pictures of results as files, each as PNG and as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dliosim.pictures.catalogue import Gallery, drawn, of_comparison, of_loop, of_runs
from dliosim.pictures.style import rendered
from dliosim.report.reader.load import SavedComparison, SavedRun, loop_titles
from dliosim.report.results import write_whole

_LONGEST_PART = 40


def write_pictures(results: Sequence[SavedRun | SavedComparison], directory: Path) -> tuple[list[str], list[str]]:
    """Write `result-loop-picture.png` and `.svg` into a directory, made if need be; names, and what was left out.

    Files of these names are replaced, each whole or not at all. Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    left_out: list[str] = []
    for parts, gallery in _galleries(results):
        left_out += [f"{' '.join(parts)}: {line}" for line in gallery.left_out]
        for picture, figure in drawn(gallery.pictures):
            name = _unused("-".join(map(_plain, (*parts, picture.name))), names)
            names.append(name)
            for kind in ("png", "svg"):
                write_whole(directory / f"{name}.{kind}", rendered(figure, kind))
    return names, left_out


def _galleries(results: Sequence[SavedRun | SavedComparison]) -> Iterator[tuple[tuple[str, ...], Gallery]]:
    runs = [one for one in results if isinstance(one, SavedRun)]
    for title in loop_titles(runs):
        yield ("all", title), of_runs(runs, title)
    for one in results:
        if isinstance(one, SavedRun):
            for loop in one.loops:
                yield (one.label, loop.title), of_loop(one, loop)
        else:
            yield (one.label,), of_comparison(one.comparison)


def _plain(text: str) -> str:
    """A text as part of a file's name: small letters, digits and hyphens."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_PART] or "unnamed"


def _unused(name: str, names: Sequence[str]) -> str:
    number, unused = 1, name
    while unused in names:
        number += 1
        unused = f"{name}-{number}"
    return unused
