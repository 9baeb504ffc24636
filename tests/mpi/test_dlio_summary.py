"""`run --dlio-summary`: the files of DLIO from a real run, with the figures that its results have."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.jobs import Place, only_error, phases

PATTERN = """
dataset d {
    samples  24 * $ranks
    size     10 kB
    layout   6 files
    path     "d"
}
dataset held {
    samples  4 * $ranks
    size     10 kB
    path     "held"
}
checkpoint unused {
    part weights 1 kB total
    path "u"
}
checkpoint model {
    part weights 1 MB total
    path "c"
    fsync off
}
prepare d
prepare held
train {
    read     d
    batch    2 per rank
    epochs   2
    compute  1 ms
    checkpoint model every 5 steps
    evaluate every 1 epochs {
        read held
        batch 2 per rank
    }
}
restore model
"""


def read(path: Path) -> Any:
    """The content of a file of JSON, as all of these are."""
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("version", "rank", "config"),
    [
        ("mlperf-v2", "0_", "dlio_config"),
        ("2.0.0", "", ".hydra"),
        ("mlperf-v1", "", "configs"),
        ("main", "0_", ".hydra"),
        ("mlperf-v3", "0_", "dlio_config"),
    ],
)
def test_files_of_a_run_have_its_figures(tmp_path: Path, version: str, rank: str, config: str) -> None:
    place, folder = Place(tmp_path), tmp_path / "files"
    place.write(PATTERN)
    results = place.results(3, "--dlio-summary", str(folder), "--dlio", version)
    (train,) = phases(results, "train")
    summary, epochs = read(folder / "summary.json"), train["epochs"]
    assert (summary["num_accelerators"], summary["num_hosts"], summary["epochs"]) == (3, 1, 2)
    assert (summary["num_files_train"], summary["num_samples_per_file"]) == (6, 12)
    metric, stats = summary["metric"], read(folder / f"{rank}per_epoch_stats.json")
    outputs = [read(folder / f"{each}_output.json") for each in range(3)]
    left_out = {"mlperf-v2": 2, "main": 2, "mlperf-v3": 1}.get(version)
    if left_out:
        block, span = outputs[0]["2"], stats["2"]["block1"]
        begun, ended = (datetime.fromisoformat(span[name]) for name in ("start", "end"))
        counted = (ended - begun).total_seconds() - block["proc"]["block1"][0]
        assert block["throughput"]["block1"] == pytest.approx((5 - left_out) * 2 / counted, rel=1e-3)
        # Saves belong to epochs, the restore after them to the last.
        saves = [stats[number][f"save_ckpt{place}"] for number in "12" for place in (1, 2)]
        restore = stats["2"]["load_ckpt1"]
        assert metric["load_checkpoint_duration_mean_seconds"] == pytest.approx(restore["duration"])
        assert metric["load_checkpoint_io_mean_GB_per_second"] == pytest.approx(restore["throughput"])
        mean = sum(one["duration"] for one in saves) / 4
        assert metric["save_checkpoint_duration_mean_seconds"] == pytest.approx(mean, rel=0.5)
        assert len(metric["eval_throughput_samples_per_second"]) == 2 * 3
        assert summary["potential_caching"] == [1]
    if version in ("mlperf-v2", "main"):
        shares, rates = ([epoch[name] for epoch in epochs] for name in ("dlio_au", "dlio_samples_per_second"))
        assert metric["train_au_percentage"] == pytest.approx([100 * share for share in shares], rel=1e-6)
        assert metric["train_throughput_samples_per_second"] == pytest.approx(rates, rel=1e-6)
        assert metric["checkpoint_size_GB"] == pytest.approx(1e6 / 2**30)
    assert (folder / config / "overrides.yaml").read_text() == "- workload=tiny\n"
    workload = read(folder / config / "config.yaml")["workload"]
    assert (workload["dataset"]["format"], workload["checkpoint"]["num_checkpoints_read"]) == ("indexed_binary", 1)
    assert (workload["dataset"]["data_folder"], workload["checkpoint"]["fsync"]) == (str(place.data), False)
    blocks = [[key for key in stats[number] if key.startswith("block")] for number in "12"]
    assert blocks == [["block1", "block2", "block3"]] * 2
    assert {len(one["2"]["load"][f"block{block}"]) for one in outputs for block in (1, 2)} == {5}


def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    place, folder = Place(tmp_path), tmp_path / "files"
    place.write(PATTERN)
    folder.mkdir()
    (folder / "dlio.log").write_text("mine")
    done = place.run(1, "--dlio-summary", str(folder))
    assert f"--dlio-summary {folder} has files" in only_error(done, 2)
    assert f"--dlio-summary {folder}-2" in done.stderr
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]


@pytest.mark.parametrize(("given", "message"), [("", "--dlio-summary is empty"), ("tiny.dlio/a", "cannot|could not")])
def test_a_folder_that_cannot_be_made_is_refused_before_the_run(tmp_path: Path, given: str, message: str) -> None:
    place = Place(tmp_path)
    place.write(PATTERN)
    done = place.run(1, "--dlio-summary", given and str(tmp_path / given))
    assert re.search(message, only_error(done, done.returncode or 1))
    assert not place.output.exists() and not place.data.exists()


def test_a_run_without_io_has_no_rates_of_checkpoints(tmp_path: Path) -> None:
    place, folder = Place(tmp_path), tmp_path / "files"
    place.write(PATTERN)
    place.results(1, "--null", "--dlio-summary", str(folder))
    assert [name for name in read(folder / "summary.json")["metric"] if "checkpoint" in name] == []
    stats = read(folder / "0_per_epoch_stats.json")
    assert [name for epoch in stats.values() for name in epoch if "ckpt" in name] == []


def test_training_with_several_data_sets_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(PATTERN, "train second {\n read held\n}\n")
    assert "DLIO trains with one data set" in only_error(place.run(1, "--dlio-summary", str(tmp_path / "files")), 2)


def test_each_of_several_runs_has_its_files_and_settings(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(PATTERN)
    done = place.run(1, "--dlio-summary", "files", "--repeat", "2", define={"train.epochs": "1"})
    assert done.returncode == 0, done.stderr
    summaries = [read(tmp_path / "files" / name / "summary.json") for name in ("run_1", "run_2")]
    assert [one["dliosim"]["settings"] for one in summaries] == [["train.epochs=1"]] * 2
    assert summaries[0]["metric"] != summaries[1]["metric"]


def test_a_pattern_that_only_infers_has_no_files_of_dlio(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("infer {\n steps 3\n compute 1 ms\n }\n")
    assert "DLIO has loops that train" in only_error(place.run(1, "--dlio-summary", str(tmp_path / "files")), 2)
