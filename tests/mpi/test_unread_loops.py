"""Loops that read nothing, run on ranks: steps and saves as planned, an answer without a verdict, reports of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.cli import main
from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place, phases

UNREAD = """
train idle {
    steps       6
    epochs      2
    compute     1 ms
    checkpoint  c every 4 steps
    checkpoint  c at end
}
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_steps_and_saves_are_as_planned_and_nothing_is_judged(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(CHECKPOINT, UNREAD)
    results = place.results(ranks)
    (loop,) = phases(results, "train")
    assert [epoch["steps"] for epoch in loop["epochs"]] == [6, 6]
    read = {(epoch["samples"], epoch["bytes"], epoch["calls"], epoch["opens"]) for epoch in loop["epochs"]}
    assert read == {(0, 0, 0, 0)}
    rates = ("samples_per_second", "bytes_per_second", "storage_utilization", "steady_samples_per_second")
    assert {epoch[name] for epoch in loop["epochs"] for name in rates} == {None}
    assert len(phases(results, "save")) == 3
    (answer,) = results["answer"]
    assert (answer["verdict"], answer["reasons"][0]["kind"], answer["advice"]) == ("not asked", "reads_nothing", [])


def test_reports_and_pictures_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINT, PREPARE, UNREAD, TRAIN)
    place.results(2)
    page = tmp_path / "page.html"
    assert main(["report", str(place.output), "--html", str(page)]) == 0
    assert main(["report", str(place.output), "--full"]) == 0
    assert "idle" in page.read_text()
    assert main(["report", str(place.output)]) == 0
    shown = capsys.readouterr().out
    assert "ALSO     idle: not asked; it reads nothing" in shown
