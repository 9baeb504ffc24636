"""One rank of a node reads for all of them; the checks themselves are in scatter_program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, only_error
from tests.mpi.waiting import run_main


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_rank_has_the_batches_that_it_would_have_read(ranks: int, tmp_path: Path) -> None:
    assert run_main(ranks, "tests.mpi.scatter_program", tmp_path) == "each has its own\n"


@pytest.mark.parametrize("sync", ["barrier", "off"])
def test_a_rank_that_was_sent_something_else_ends_the_job(sync: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE)
    assert place.run(1).returncode == 0
    shutil.rmtree(place.output)
    [file] = place.files()
    file.write_bytes(b"\0" * file.stat().st_size)
    place.write(DATASET, TRAIN)
    error = only_error(place.run(3, define={"train.scatter": "by node", "train.sync": sync}, seconds=30))
    assert error.startswith("error[R401]: rank ")
    assert error.endswith("is not what was prepared; `prepare d afresh` writes it again")
