"""`run --dlio-summary`: the files of DLIO from a real run, with the figures that its results have."""

from __future__ import annotations

import json
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
checkpoint model {
    part weights 1 MB total
    path "c"
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
    [("mlperf-v2", "0_", "dlio_config"), ("2.0.0", "", ".hydra"), ("mlperf-v1", "", "configs")],
)
def test_files_of_a_run_have_its_figures(tmp_path: Path, version: str, rank: str, config: str) -> None:
    place, folder = Place(tmp_path), tmp_path / "files"
    place.write(PATTERN)
    results = place.results(3, "--dlio-summary", str(folder), "--dlio", version)
    (train,) = phases(results, "train")
    summary, epochs = read(folder / "summary.json"), train["epochs"]
    assert (summary["num_accelerators"], summary["num_hosts"], summary["epochs"]) == (3, 1, 2)
    assert (summary["num_files_train"], summary["num_samples_per_file"]) == (6, 12)
    if version == "mlperf-v2":
        metric = summary["metric"]
        shares, rates = ([epoch[name] for epoch in epochs] for name in ("dlio_au", "dlio_samples_per_second"))
        assert metric["train_au_percentage"] == pytest.approx([100 * share for share in shares], rel=1e-6)
        assert metric["train_throughput_samples_per_second"] == pytest.approx(rates, rel=1e-6)
        assert metric["checkpoint_size_GB"] == pytest.approx(1e6 / 2**30)
    assert (folder / config / "overrides.yaml").read_text() == "- workload=tiny\n"
    workload = read(folder / config / "config.yaml")["workload"]
    assert (workload["dataset"]["format"], workload["checkpoint"]["num_checkpoints_read"]) == ("indexed_binary", 1)
    blocks = [
        [key for key in read(folder / f"{rank}per_epoch_stats.json")[number] if key.startswith("block")]
        for number in "12"
    ]
    assert blocks == [["block1", "block2", "block3"]] * 2
    outputs = [read(folder / f"{each}_output.json") for each in range(3)]
    assert {len(one["2"]["load"][f"block{block}"]) for one in outputs for block in (1, 2)} == {5}


def test_files_of_another_run_are_kept(tmp_path: Path) -> None:
    place, folder = Place(tmp_path), tmp_path / "files"
    place.write(PATTERN)
    folder.mkdir()
    (folder / "summary.json").write_text("mine")
    done = place.run(1, "--dlio-summary", str(folder))
    assert "has the summary.json of another run" in only_error(done, 2)
    assert f"--dlio-summary {folder}-2" in done.stderr
    assert (folder / "summary.json").read_text() == "mine"


def test_a_pattern_that_only_infers_has_no_files_of_dlio(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("infer {\n steps 3\n compute 1 ms\n }\n")
    assert "DLIO has loops that train" in only_error(place.run(1, "--dlio-summary", str(tmp_path / "files")), 2)
