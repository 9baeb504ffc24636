"""Ranks that wait for each other, politely and not, on job sizes that divide nothing; see world_program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.jobs import only_error
from tests.mpi.launch import run_program, run_ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_method_keeps_its_promise_however_ranks_wait(ranks: int, tmp_path: Path) -> None:
    assert run_program(ranks, "tests.mpi.world_program", str(tmp_path), spread=True) == "the world is whole\n"


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_rank_that_aborts_ends_those_that_wait_for_it(ranks: int) -> None:
    done = run_ranks(ranks, "-m", "tests.mpi.world_program", seconds=30, spread=True)
    assert only_error(done) == f"error[R401]: rank {ranks - 1}: no rank comes"
