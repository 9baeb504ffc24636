"""The most accelerators of described storages and of files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dliosim.cli import main
from tests.mpi.jobs import only_error
from tests.mpi.waiting import run_command

PATTERN = """dlio 1
workload need "each accelerator needs 10 MB/s"
param compute = 20 ms
dataset d {
    samples  4_000
    size     100 kB
    layout   100 files
    path     "d"
}
prepare d
train t {
    read      d
    batch     2 per rank
    compute   $compute
    readers   2
    prefetch  4 batches
    sync      off
}
expect utilization of t at least 85 %
"""
STORAGE = "dlio 1\nstorage w {\n    servers  1 of 23 MB/s\n    latency  1 ms\n}\n"


def saturate(ranks: int, directory: Path, *more: str) -> dict[str, Any]:
    (directory / "need.dlio").write_text(PATTERN)
    (directory / "w.dlio").write_text(STORAGE)
    words = ["saturate", "need.dlio", "--dir", "data", "--pass-time", "1 s", "--output", "out", "--json", *more]
    done = run_command(ranks, words, directory, 120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("ranks", "most", "limit"), [(1, 1, "ranks"), (2, 2, "ranks"), (3, 2, "storage"), (5, 2, "storage")]
)
def test_a_storage_of_a_rate_feeds_as_many_as_its_rate_allows(
    ranks: int, most: int, limit: str, tmp_path: Path
) -> None:
    found = saturate(ranks, tmp_path, "--storage", "w.dlio")
    assert (found["accelerators"]["most"], found["limited_by"], found["goal"]) == (most, limit, 0.85)
    tried = [one["accelerators"] for one in found["points"]]
    assert tried == {1: [1], 2: [1, 2], 3: [1, 2, 3], 5: [1, 2, 3, 4]}[ranks]
    assert all(one["source"] == "modelled" for one in found["points"])
    for one in found["points"]:
        needed = 10e6 * one["accelerators"]
        assert one["bytes_per_second"]["mean"] <= 1.1 * min(
            needed, 23e6
        )  # what is read ahead before the clock is bytes, too
    assert not (tmp_path / "data").exists()


def test_files_are_written_once_and_each_number_has_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = saturate(3, tmp_path, "--most", "2", "--until", "20 %")
    assert (found["accelerators"]["most"], found["limited_by"], found["goal"]) == (2, "ranks", 0.2)
    assert found["storage"] is None
    assert sum(one.stat().st_size == 4_000_000 for one in (tmp_path / "data").rglob("*")) == 100
    results = sorted((tmp_path / "out").iterdir())
    assert [one.name for one in results] == ["0001", "0002"]
    assert [json.loads((one / "results.json").read_text())["ranks"] for one in results] == [1, 2]
    assert main(["report", *map(str, results)]) == 0
    assert "storage-limited utilization" in capsys.readouterr().out


def test_ranks_that_cannot_compute_that_fast_are_the_limit(tmp_path: Path) -> None:
    found = saturate(2, tmp_path, "--storage", "w.dlio", "-D", "compute=2 us")
    assert (found["accelerators"]["most"], found["limited_by"]) == (0, "client")
    assert found["utilization_without_io"]["1"] < 0.85


def test_a_storage_too_slow_for_one_is_the_limit(tmp_path: Path) -> None:
    found = saturate(3, tmp_path, "--storage", "w.dlio", "-D", "w.servers=1 of 1 MB/s")
    assert (found["accelerators"]["most"], found["limited_by"]) == (0, "storage")
    assert [one["accelerators"] for one in found["points"]] == [1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--most", "9"], "--most 9: an accelerator is a rank, and 2 ranks run"),
        (["--loop", "evaluate"], "need: no loop `evaluate` that reads step after step"),
        (["-D", "compute=0 s"], "t has no compute"),
    ],
)
def test_what_cannot_be_asked_is_refused(more: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "need.dlio").write_text(PATTERN)
    done = run_command(2, ["saturate", "need.dlio", "--dir", "data", *more], tmp_path, 60)
    assert message in only_error(done, 2)
    assert not (tmp_path / "data").exists()


def test_data_of_one_step_are_refused_on_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "need.dlio").write_text(PATTERN)
    few = ["-D", "d.samples=6", "-D", "d.layout=6 files"]
    done = run_command(3, ["saturate", "need.dlio", "--dir", "data", "--pass-time", "1 s", *few], tmp_path, 60)
    message = only_error(done, 2)
    assert "accelerators: a pass has one step" in message
    assert "-D d.samples=..." in done.stderr


def test_data_that_are_converted_are_prepared_with_their_source(tmp_path: Path) -> None:
    source = 'dataset loose {\n samples 200\n size 100 kB\n path "loose"\n}\nprepare loose\nconvert loose to d\n'
    pattern = PATTERN.replace("prepare d\n", source).replace("4_000", "200")
    (tmp_path / "need.dlio").write_text(pattern)
    words = ["saturate", "need.dlio", "--dir", "data", "--pass-time", "500 ms", "--most", "1", "--json"]
    done = run_command(2, words, tmp_path, 120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["points"]
