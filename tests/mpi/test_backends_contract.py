"""Contract of every backend, on job sizes that divide nothing; the checks themselves are in backends_program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import ALL
from tests.mpi.waiting import run_main


@pytest.mark.parametrize("ranks", [1, 2, 5] if ALL else [1, 5])
def test_every_backend_keeps_the_contract(ranks: int, tmp_path: Path) -> None:
    checked = run_main(ranks, "tests.mpi.backends_program", tmp_path, seconds=180)
    assert checked.split()[-1] == "whole"
