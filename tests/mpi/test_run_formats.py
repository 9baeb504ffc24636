"""Every format, written by any number of ranks and read in any way, holds and gives the same samples, as planned."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mpi.waiting import run_main


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """The output of `formats_program` on each number of ranks; all that it read was verified."""
    pytest.importorskip("PIL")
    pytest.importorskip("pyarrow")
    found = {}
    for ranks in (1, 2, 3, 5):
        place = tmp_path_factory.mktemp(f"formats{ranks}")
        text = run_main(ranks, "tests.mpi.formats_program", place, seconds=300)
        found[ranks] = json.loads(text.splitlines()[-1])
    return found


def test_files_are_the_same_by_any_ranks_and_any_api(printed: dict[int, dict[str, Any]]) -> None:
    alone = printed[1]["cases"]
    for ranks in (2, 3, 5):
        for name, case in printed[ranks]["cases"].items():
            assert case["files"] == alone[name]["files"], (ranks, name)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_way_of_reading_gives_the_same_samples_in_the_same_order(
    printed: dict[int, dict[str, Any]], ranks: int
) -> None:
    for name, case in printed[ranks]["cases"].items():
        for way, hashes in case.items():
            if way != "files":
                assert hashes == case["posix"], (name, way)
        assert case["posix"][0] != case["posix"][1], name


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_any_format_is_written_and_read_as_was_planned(printed: dict[int, dict[str, Any]], ranks: int) -> None:
    compared = printed[ranks]["compared"]
    assert compared["differ"] == []
    # Of what only its files know every figure is an estimate; so are all reads of files that are opened for each sample
    # of a shuffled order. Three and five ranks have few other cases.
    assert compared["same"] > (2 if ranks < 3 else 1.5) * compared["marked"] > 0
