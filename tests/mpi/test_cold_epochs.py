"""`caches cold each epoch`: every epoch begins with a cold page cache, or the run ends."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from dliosim.execute.node.environment import find_mount
from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, only_error, phases

COLD = TRAIN.replace("epochs   2", "epochs   3\n    caches   cold each epoch")
EVALUATED = COLD.replace("}", "    evaluate every 2 epochs {\n        read d\n        caches cold each epoch\n    }\n}")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place on storage that is no memory."""
    if find_mount(tmp_path).is_memory_backed:
        pytest.skip("pages of files in memory cannot be dropped")
    return Place(tmp_path)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_each_epoch_begins_cold_and_counts(place: Place, ranks: int) -> None:
    place.write(DATASET, PREPARE, COLD)
    results = place.results(ranks)
    [read] = phases(results, "train")
    assert (read["cold_each_epoch"], read["resident_share"]) == (True, 0)
    for epoch in read["epochs"]:
        assert epoch["drop_seconds"]["min"] > 0
        assert epoch["device_bytes"] is None or epoch["device_bytes"] > 0
    if all(epoch["device_bytes"] is not None for epoch in read["epochs"]):
        assert results["answer"][0]["epochs"] == [1, 2, 3]


def test_epochs_of_an_evaluation_begin_cold_too(place: Place) -> None:
    place.write(DATASET, PREPARE, EVALUATED)
    results = place.results(3)
    [inner] = phases(results, "evaluate")
    assert [epoch["drop_seconds"]["min"] > 0 for epoch in inner["epochs"]] == [True]
    # Without it the data are warm after the epoch before.
    place.write(DATASET, EVALUATED.replace("        caches cold each epoch\n", ""))
    [inner] = phases(place.results(3), "evaluate")
    assert inner["epochs"][0]["drop_seconds"]["max"] == 0
    assert not inner["cold_each_epoch"]
    assert inner["resident_share"] > 0.5


@pytest.mark.parametrize("ranks", [1, 3])
def test_epochs_that_read_a_copy_begin_cold_too(place: Place, ranks: int) -> None:
    place.write(DATASET.replace("shared file", "7 files"), PREPARE, "stage d to local\n", COLD)
    results = place.results(ranks, "--root", f"local={place.directory / 'local'}")
    [read] = phases(results, "train")
    assert (read["root"], read["cold_each_epoch"], read["resident_share"]) == ("local", True, 0)
    for epoch in read["epochs"]:
        assert epoch["drop_seconds"]["min"] > 0
        assert epoch["device_bytes"] is None or epoch["device_bytes"] > 0


def test_a_mapped_file_stays_and_ends_the_run(place: Place, tmp_path: Path) -> None:
    place.write(DATASET, PREPARE)
    place.results(1)
    (place.output / "results.json").unlink()
    with place.files()[0].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) >= 0
        place.write(DATASET, COLD.replace("cold each epoch", "cold each epoch within 300 ms"))
        error = only_error(place.run(3))
    assert "of `d` is in the page cache; `caches cold each epoch within 300.0 ms` allows less than 1 %" in error
    assert "node " in error
    assert not (place.output / "results.json").exists()


def test_nothing_is_dropped_without_io_and_on_a_described_storage(place: Place) -> None:
    place.write(DATASET, PREPARE, COLD)
    [read] = phases(place.results(2, "--null"), "train")
    assert {epoch["drop_seconds"]["max"] for epoch in read["epochs"]} == {0}
