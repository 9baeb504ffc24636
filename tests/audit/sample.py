"""A real run to which no rule objects (one rank, ext4, `cache off`, `--with-null`), and copies of it with faults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dliosim.report.reader.load import SavedComparison, SavedRun, load_results

Content = dict[str, Any]

CLEAN = (Path(__file__).parent / "run.json").read_text()


def repetitions(number: int = 5) -> list[Content]:
    """The content of results.json of that many runs of one job."""
    runs = [json.loads(CLEAN) for _ in range(number)]
    for second, run in enumerate(runs):
        run["started"] = f"2026-11-28T15:28:{second:02d}+00:00"
    return runs


def phase(run: Content, kind: str) -> Content:
    """The phase of a kind."""
    [found] = (one for one in run["phases"] if one["kind"] == kind)
    content: Content = found
    return content


def write_runs(place: Path, runs: Sequence[Content]) -> list[str]:
    """Write each run into a directory of its own; return the directories."""
    names = [place / f"run-{number}" for number in range(len(runs))]
    for name, run in zip(names, runs, strict=True):
        name.mkdir()
        (name / "results.json").write_text(json.dumps(run))
    return list(map(str, names))


def load_runs(place: Path, runs: Sequence[Content]) -> list[SavedRun | SavedComparison]:
    """Read the runs back."""
    return load_results(write_runs(place, runs), with_arrays=False)
