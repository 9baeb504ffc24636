"""Jobs that are killed: they end and leave nothing, and what they saved is complete or does not count."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from dliosim.execute.store import checkpoint_store
from tests.examples import ALL, in_turn
from tests.mpi import killed_jobs
from tests.mpi.jobs import only_error
from tests.mpi.killed_jobs import Whom
from tests.mpi.killing import SETTINGS, Kill, Place, draws


@pytest.mark.parametrize(("first", "settings", "ranks"), [(at, *SETTINGS[at]) for at in range(4)])
def test_jobs_that_are_killed_one_after_the_other(tmp_path: Path, first: int, settings: str, ranks: int) -> None:
    place = Place(tmp_path, settings, ranks)
    # By day two kills each, and of another kind for each way of saving.
    for kill in islice(draws(ranks, ranks), 0 if ALL else first, 5 if ALL else first + 2):
        place.run(kill)
    place.run(saves=1)
    place.expect_no_litter()


@pytest.mark.parametrize(
    "kill",
    [
        Kill("write", 1, 10, "full"),
        Kill("sync", 0, 6, "full"),
        Kill("rename", 0, 2, "full"),
    ],
    ids=str,
)
def test_a_disk_that_is_full_ends_the_job_and_leaves_what_was_complete(tmp_path: Path, kill: Kill) -> None:
    place = Place(tmp_path)
    assert "No space left on device" in only_error(place.run(kill))
    (base,) = place.bases()
    assert checkpoint_store.checkpoint_numbers(base) == [1]
    assert place.newest == 1
    place.run(saves=1)
    place.expect_no_litter()


@pytest.mark.parametrize(
    ("job", "whom"),
    [
        *in_turn([("barrier", 2), ("allreduce", 5), ("save, a file a rank", 3), ("stage", 3)], ["rank", "mpiexec"]),
        (("reader processes", 2), "reader"),
    ],
)
def test_a_job_that_is_killed_while_ranks_wait_leaves_nothing(tmp_path: Path, job: tuple[str, int], whom: Whom) -> None:
    work, ranks = job
    kill = killed_jobs.Kill(work, ranks, whom, rank=ranks - 1)
    assert list(killed_jobs.wrong(kill, killed_jobs.end(kill, tmp_path))) == []
