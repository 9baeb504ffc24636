"""`run --repeat`: runs in one job, each with results of its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, only_error


def test_each_run_has_its_results_and_warm_ups_do_not_count(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    done = place.run(3, "--repeat", "2", "--warm-up", "1")
    assert done.returncode == 0, done.stderr
    runs = [json.loads((place.output / name / "results.json").read_text()) for name in ("warm_up_1", "run_1", "run_2")]
    assert len({run["order_hash"] for run in runs}) == len({run["extent_hash"] for run in runs}) == 1
    assert [phase["seconds"] > 0 for run in runs for phase in run["phases"] if phase["kind"] == "train"] == [True] * 3
    assert runs[0]["started"] <= runs[1]["started"] <= runs[2]["started"]
    rates = [
        statistics_of["samples_per_second"]
        for run in runs[1:]
        for phase in run["phases"]
        for statistics_of in phase["epochs"]
    ]
    assert len(rates) == 4
    assert "2 runs: " in done.stdout
    assert "has the results of another run" in only_error(place.run(3, "--repeat", "2"), 2)


def test_a_run_that_fails_keeps_those_before_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    (place.output / "run_2").mkdir(parents=True)
    (place.output / "run_2" / "results.json").write_text("{}")
    done = place.run(1, "--repeat", "2")
    assert f"--output {place.output}/run_2 has the results of another run" in only_error(done, 2)
    assert json.loads((place.output / "run_1" / "results.json").read_text())["ranks"] == 1
