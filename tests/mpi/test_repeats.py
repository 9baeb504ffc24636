"""`run --repeat`: runs in one job, each with results of its own."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, only_error
from tests.mpi.waiting import run_command


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
    assert len({run["environment"]["load_average"] for run in runs}) == 1
    assert "has the results of another run" in only_error(place.run(3, "--repeat", "2"), 2)


def test_results_of_any_run_are_found_before_the_first(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    (place.output / "run_3").mkdir(parents=True)
    (place.output / "run_3" / "results.json").write_text("{}")
    done = place.run(1, "--repeat", "3")
    assert f"--output {place.output} has the results of another run" in only_error(done, 2)
    assert f"write `--output {place.output}-2`" in done.stderr
    assert [path.name for path in place.output.iterdir()] == ["run_3"]


def test_a_run_that_fails_keeps_those_before_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    place.output.mkdir()
    (place.output / "run_2").write_text("a file")
    only_error(place.run(1, "--repeat", "2"), 1)
    assert json.loads((place.output / "run_1" / "results.json").read_text())["ranks"] == 1


def test_a_new_directory_is_shared_with_no_other_job(tmp_path: Path) -> None:
    pattern, now = Place(tmp_path).write(DATASET, PREPARE, TRAIN), datetime.now(timezone.utc)
    taken = [tmp_path / f"dliosim-results-tiny-{now + timedelta(seconds=one):%Y%m%dT%H%M%S}" for one in range(60)]
    for path in taken:
        path.mkdir()
    done = run_command(2, ["run", str(pattern), "--dir", str(tmp_path / "data"), "--repeat", "2"], tmp_path, 60)
    assert done.returncode == 0, done.stderr
    assert [path for path in taken if any(path.iterdir())] == []
    (made,) = tmp_path.glob("dliosim-results-tiny-*-1")
    assert sorted(path.name for path in made.iterdir()) == ["run_1", "run_2"]
    empty = ["run", str(pattern), "--output", "", "--repeat", "2"]
    assert "--output is empty" in only_error(run_command(2, empty, tmp_path, 60), 2)


def test_a_script_gets_a_line_for_each_run_and_one_for_all(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    done = place.run(1, "--repeat", "2", "--warm-up", "0", "--json")
    *runs, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(one["results"]).name for one in runs] == ["run_1", "run_2"]
    assert (last["repeats"]["runs"], last["repeats"]["warm_ups"]) == (2, 0)
    rates = {one["figure"]: one for one in last["repeats"]["figures"]}
    assert rates["bytes/s"]["least"] <= rates["bytes/s"]["mean"] <= rates["bytes/s"]["greatest"]


def test_runs_without_figures_have_no_table(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE)
    done = place.run(1, "--repeat", "2")
    assert (done.returncode, "2 runs" in done.stdout, done.stdout.endswith("\n\n")) == (0, False, False)


def test_each_run_has_its_trace(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    done = place.run(2, "--repeat", "3", "--trace")
    assert (done.returncode, done.stdout.count("trace: recorded ")) == (0, 3), done.stderr
    assert all((place.output / f"run_{number}" / "trace.h5").exists() for number in (1, 2, 3))
