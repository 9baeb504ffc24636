"""Runs on a described storage: no file, the same samples as a run with files, and queues that all ranks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place, only_error, phases

STORAGE = """dlio 1
storage slow "one server" {
    servers  1 of 2 MB/s
    latency  100 us
}
"""

SAVE = "save c\n"


def describe(directory: Path, text: str = STORAGE) -> tuple[str, str]:
    """The option for a storage that a file describes."""
    file = directory / "slow.dlio"
    file.write_text(text)
    return "--storage", str(file)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_same_samples_are_read_without_a_file(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINT, PREPARE, SAVE, TRAIN)
    modelled = place.results(ranks, *describe(tmp_path))
    assert not place.data.exists()
    measured = place.results(ranks)
    same = ("samples", "bytes", "calls", "opens", "steps")
    for one, other in zip(phases(modelled, "train"), phases(measured, "train"), strict=True):
        assert [[epoch[name] for name in same] for epoch in one["epochs"]] == [
            [epoch[name] for name in same] for epoch in other["epochs"]
        ]
        assert one["root"] == "storage slow"
    hashes = ("order_hash", "extent_hash")
    assert [modelled[name] for name in hashes] == [measured[name] for name in hashes]
    assert (modelled["modelled"], modelled["null"], measured["modelled"]) == ("slow", False, "")
    (answer,) = modelled["answer"]
    assert (answer["source"], answer["reasons"][-1]["kind"]) == ("modelled", "modelled")


@pytest.mark.parametrize("ranks", [1, 3])
def test_no_epoch_is_faster_than_the_server_of_all_ranks(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    (loop,) = phases(place.results(ranks, *describe(tmp_path)), "train")
    for epoch in loop["epochs"]:
        assert epoch["bytes"] > 100_000
        assert epoch["seconds"] >= epoch["bytes"] / 2e6


def test_the_slowest_ranks_own_time_is_in_each_step(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    quick = "dlio 1\nstorage slow {\n servers 1 of 1 GB/s\n latency 100 us\n step time 3 ms\n step tail pareto 1.5\n}\n"
    (loop,) = phases(place.results(3, *describe(tmp_path, quick)), "train")
    for epoch in loop["epochs"]:
        assert epoch["seconds"] >= epoch["steps"] * 3e-3 * 1.3


def test_settings_of_the_storage_are_given_by_name(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    slower = {"slow.servers": "1 of 500 kB/s"}
    (loop,) = phases(place.results(2, *describe(tmp_path), define=slower), "train")
    assert all(epoch["seconds"] >= epoch["bytes"] / 5e5 for epoch in loop["epochs"])


def test_what_is_not_modelled_ends_all_ranks_with_the_setting_that_is(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    done = place.run(2, *describe(tmp_path), define={"train.api": "mpi-collective"})
    assert "the two phases of a collective read are not modelled" in only_error(done, 2)
    assert "-D train.api=posix" in done.stderr


def test_a_pattern_without_reads_is_refused_as_nothing_would_be_measured(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(CHECKPOINT, SAVE)
    assert "no loop of tiny reads" in only_error(place.run(2, *describe(tmp_path)), 2)
    missing = place.run(2, "--storage", str(tmp_path / "none.dlio"))
    assert "there is no such file" in only_error(missing, 2)
