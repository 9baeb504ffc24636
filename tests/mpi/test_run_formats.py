"""Every format, written by any number of ranks and read in any way, holds and gives the same samples."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mpi.waiting import run_main


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """Results by ranks and case: a digest of the files, and the order hash of each way of reading; all verified."""
    pytest.importorskip("PIL")
    pytest.importorskip("pyarrow")
    found = {}
    for ranks in (1, 2, 3, 5):
        place = tmp_path_factory.mktemp(f"formats{ranks}")
        printed = run_main(ranks, "tests.mpi.formats_program", place, seconds=150)
        found[ranks] = json.loads(printed.splitlines()[-1])
    return found


def test_files_are_the_same_by_any_ranks_and_any_api(outcomes: dict[int, dict[str, Any]]) -> None:
    alone = {name: case["files"] for name, case in outcomes[1].items()}
    for ranks in (2, 3, 5):
        for name, case in outcomes[ranks].items():
            assert case["files"] == alone[name], (ranks, name)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_way_of_reading_gives_the_same_samples_in_the_same_order(
    outcomes: dict[int, dict[str, Any]], ranks: int
) -> None:
    for name, case in outcomes[ranks].items():
        for way, hashes in case.items():
            if way != "files":
                assert hashes == case["posix"], (name, way)
        assert case["posix"][0] != case["posix"][1], name
