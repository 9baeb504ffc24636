"""`drop caches` reaches the files of every checkpoint that is restored, and says what stayed and what is damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place, only_error, phases

CHECKPOINT_BYTES = 300_000 + 3 * 1001


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place with a checkpoint that three ranks wrote."""
    made = Place(tmp_path)
    made.write(CHECKPOINT, "save c\n")
    made.results(3)
    (made.output / "results.json").unlink()
    return made


def test_checkpoints_of_another_number_of_ranks_are_dropped_and_looked_at(place: Place) -> None:
    place.write(CHECKPOINT, "drop caches\nrepeat 1 {\n    restore c written by 3 ranks\n}\n")
    results = place.results(2)
    [dropped] = phases(results, "drop caches")
    assert dropped["files"]["files"] == 3
    assert dropped["files"]["examined_bytes"] == CHECKPOINT_BYTES
    [restored] = phases(results, "restore")
    assert restored["files"]["examined_bytes"] == CHECKPOINT_BYTES, "of few files none is left out"
    assert restored["resident_share"] is not None


def test_a_restore_without_a_drop_reads_what_was_just_written(place: Place) -> None:
    place.write(CHECKPOINT, "restore c written by 3 ranks\n")
    [restored] = phases(place.results(2), "restore")
    assert restored["resident_share"] == 1


def test_a_cold_first_file_does_not_make_warm_ones_cold(tmp_path: Path) -> None:
    place = Place(tmp_path)
    dataset = DATASET.replace("shared file", "16 files")
    place.write(dataset, PREPARE)
    place.results(1)
    first = place.files()[0]
    with first.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    place.write(dataset, TRAIN)
    [read] = phases(place.results(2), "train")
    sizes = [path.stat().st_size for path in place.files()]
    assert len(sizes) == 16
    # On a file system in memory nothing can be dropped.
    assert read["resident_share"] in (1, pytest.approx(1 - sizes[0] / sum(sizes)))


@pytest.mark.parametrize("verb", ["drop caches\n", TRAIN])
def test_a_missing_file_is_damage_that_prepare_afresh_mends(tmp_path: Path, verb: str) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE)
    place.results(1)
    (place.output / "results.json").unlink()
    place.files()[0].unlink()
    place.write(DATASET, verb if verb == TRAIN else verb + TRAIN)
    error = only_error(place.run(2))
    assert error.startswith("error[R401]: ")
    assert "data set `d` is damaged" in error
    assert "`prepare d afresh` writes it again" in error
