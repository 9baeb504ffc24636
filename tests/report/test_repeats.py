"""Figures of several runs: mean, least, greatest, spread, and the verdict."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dliosim.measure.results.machine import FileSystem
from dliosim.measure.results.run_summary import RunSummary, SavePhase
from dliosim.report.run.repeats import format_repeats, main_figures, repeats_json
from tests.report.sample import run, saved


def runs_of_saves(*seconds: tuple[float, ...], kind: str = "ext4") -> list[RunSummary]:
    """Runs with saves of 100 MB that take these seconds, on a file system of this kind."""
    place = replace(run().environment, file_systems=(FileSystem("data", "/data", kind, ""),))
    saves = [tuple(SavePhase("model", "save", 1.0, verb=saved(one), root="data") for one in each) for each in seconds]
    return [run(environment=place, phases=each) for each in saves]


def test_a_rate_is_all_bytes_by_all_time() -> None:
    (found,) = json.loads(repeats_json(runs_of_saves((1.0, 3.0), (1.0, 1.0)), 2))["repeats"]["figures"]
    assert (found["title"], found["figure"], found["memory"]) == ("save model", "bytes/s", False)
    figures = [found[name] for name in ("least", "greatest", "mean", "spread")]
    assert figures == pytest.approx([50e6, 100e6, 75e6, 50 / 75])
    assert main_figures(runs_of_saves((1.0, 3.0), (1.0, 1.0))) == {"save model": [50e6, 100e6]}


@pytest.mark.parametrize(("second", "verdict"), [(1.04, "within 5 %"), (1.06, "not within 5 %")])
def test_the_figure_that_differs_most_is_named(second: float, verdict: str) -> None:
    title = format_repeats(runs_of_saves((1.0,), (second,))).splitlines()[0]
    assert title.startswith(f"2 runs: {verdict}; save model, bytes/s differs by ")


def test_a_rate_of_memory_says_so() -> None:
    assert "save model, bytes/s (memory)" in format_repeats(runs_of_saves((1.0,), (1.0,), kind="tmpfs"))


def test_runs_without_figures_have_no_table() -> None:
    assert format_repeats([run(phases=())] * 2) == ""
