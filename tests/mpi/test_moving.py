"""Operations of all ranks; the checks themselves are in moving_program."""

from __future__ import annotations

import pytest

from tests.mpi.launch import run_program


@pytest.mark.parametrize("ranks", [1, 3])
def test_data_are_never_polled_for_and_waits_never_spin_where_they_must_not(ranks: int) -> None:
    assert run_program(ranks, "tests.mpi.moving_program").split()[-1] == "be"
