"""Runs on a described storage: no file, the same samples as a run with files, and queues that all ranks share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dliosim.cli import main
from tests.examples import in_turn
from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place, only_error, phases
from tests.mpi.waiting import run_command

STORAGE = """dlio 1
storage slow "one server" {
    servers  1 of 2 MB/s
    latency  100 us
}
"""

SAVE = "save c\n"

#: The least share of the server's time that a loop or save takes: its clock starts at the rank that began last, which a
#: busy machine holds up. Ranks with queues of their own would take half, or less.
QUEUED = 0.6


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
        assert epoch["seconds"] >= (QUEUED if ranks > 1 else 1.0) * epoch["bytes"] / 2e6


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
    assert all(epoch["seconds"] >= QUEUED * epoch["bytes"] / 5e5 for epoch in loop["epochs"])


def test_what_is_not_modelled_ends_all_ranks_with_the_setting_that_is(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    done = place.run(2, *describe(tmp_path), define={"train.api": "mpi-collective"})
    assert "the two phases of a collective read are not modelled" in only_error(done, 2)
    assert "-D train.api=posix" in done.stderr


def compare(place: Place, vary: str, *more: str) -> str:
    """Compare variants on the storage, which is refused; return what it says."""
    command = ["compare", str(place.directory / "tiny.dlio"), "--dir", str(place.data), "--vary", vary, *more]
    return run_command(2, [*command, *describe(place.directory)], place.directory, 60).stderr


def test_a_comparison_of_what_is_not_modelled_is_refused_before_it_begins(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINT, PREPARE, TRAIN, SAVE)
    reads = compare(place, "api=posix,mpi-collective", "-D", "d.layout=shared file")
    assert "nothing to compare: api=mpi-collective: train: the two phases of a collective read are not" in reads
    saves = compare(place, "commit=rename,none", "--what", "save", "-D", "c.metadata=on")
    assert "the file of all plans is not modelled\n  = help: `-D c.metadata=off` is" in saves
    assert "comparing" not in reads + saves


def test_a_comparison_that_is_refused_warns_of_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    said = compare(place, "api=posix,mpi-independent", "-D", "train.readers=2", "--caches", "cold")
    assert said.startswith("error: --caches cold: a run on a described storage reads nothing")


WRITES = {"slow.writes": "1 MB/s"}


@pytest.mark.parametrize(
    ("ranks", "writers"),
    in_turn([3, 5, 2, 1], ["into file per rank", "one per 2 ranks", "all ranks into shared file"]),
)
def test_saves_and_restores_do_the_calls_of_real_ones_and_wait_for_the_server(
    ranks: int, writers: str, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.write(CHECKPOINT.replace("path ", f"writers  {writers}\n    path "), SAVE, "restore c\n")
    modelled = place.results(ranks, *describe(tmp_path), define=WRITES)
    assert not place.data.exists()
    measured = place.results(ranks)
    for kind, rate in ("save", 1e6), ("restore", 2e6):
        (one,), (other,) = phases(modelled, kind), phases(measured, kind)
        for figure in ("bytes", "calls", "files"):
            assert one["files"][figure] == other["files"][figure], (kind, figure)
        assert one["seconds"] >= QUEUED * other["files"]["bytes"] / rate
        assert one["root"] == "storage slow"


def test_a_flush_leaves_the_steps_less_of_the_storage_and_its_ranks_free(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINT.replace("path ", "async on\n    path "), TRAIN.replace("epochs   2", "epochs   4"))
    without = phases(place.results(2, *describe(tmp_path)), "train")[0]["epochs"]
    loop = {"train.checkpoint": "c every 1 epoch"}
    results = place.results(2, *describe(tmp_path), define=WRITES | loop)
    for saved in phases(results, "save"):
        assert saved["seconds"] >= QUEUED * saved["files"]["bytes"] / 1e6
        assert saved["files"]["stall_seconds"]["max"] < saved["seconds"] / 2
    during = phases(results, "train")[0]["epochs"]
    assert sum(epoch["seconds"] for epoch in during[1:]) > 1.2 * sum(epoch["seconds"] for epoch in without[1:])


def test_a_trace_has_the_calls_that_waited_and_says_that_no_file_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINT, SAVE, TRAIN)
    results = place.results(2, *describe(tmp_path), "--trace")
    assert main(["analyze", str(place.output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    written = sum(phase["files"]["bytes"] for phase in phases(results, "save"))
    read = sum(epoch["bytes"] for phase in phases(results, "train") for epoch in phase["epochs"])
    assert (found["access"]["write"]["bytes"], found["access"]["read"]["bytes"]) == (written, read)
    assert found["job"]["notes"] == ["no file was read or written: calls waited as storage slow says"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("partner 1 rank", "copies of partners are not modelled"),
        ("drain to local", "draining to another storage is not modelled"),
        ("metadata on", "the file of all plans is not modelled"),
    ],
)
def test_parts_of_saves_that_are_not_modelled_are_refused(setting: str, reason: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(CHECKPOINT.replace("path ", f"{setting}\n    path "), SAVE)
    roots = ["--root", f"local={tmp_path}"] if "local" in setting else []
    done = place.run(2, *describe(tmp_path), *roots)
    assert reason in only_error(done, 2)


def test_a_pattern_that_neither_reads_nor_saves_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE)
    assert "neither reads in a loop nor saves nor restores" in only_error(place.run(2, *describe(tmp_path)), 2)
    missing = place.run(2, "--storage", str(tmp_path / "none.dlio"))
    assert "there is no such file" in only_error(missing, 2)
