"""Costs of DLIO and dliosim: which samples reads of a file cover, and what is seen of a read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.fidelity import script

costs = script("fidelity.dlio_costs")
tracing = script("fidelity.tracing")


def read(offset: int, returned: int) -> object:
    return tracing.Record(1, 1, 0.0, 0.0, "pread64", "a", offset, returned, returned)


@pytest.mark.parametrize(
    ("reads", "times"),
    [
        ([(0, 100), (100, 300)], [1, 1, 1, 1]),
        ([(0, 400), (100, 100)], [1, 2, 1, 1]),
        ([(0, 30)], [0, 0, 0, 0]),  # a header
        ([(60, 100), (160, 100)], [0, 1, 1, 0]),  # behind the middle of the first sample, before that of the last
        ([(350, 100)], [0, 0, 0, 1]),
    ],
)
def test_a_sample_is_read_by_the_reads_of_its_middle(reads: list[tuple[int, int]], times: list[int]) -> None:
    assert costs.times_read([read(*one) for one in reads], 400, 4) == times


def test_reads_of_the_files_are_seen_and_those_of_others_are_not(tmp_path: Path) -> None:
    for name in ("data", "manifest"):
        (tmp_path / name).write_bytes(b"123")
    with costs.reads_seen([tmp_path / "data"]) as others:
        (tmp_path / "manifest").read_bytes()
    with costs.reads_seen([tmp_path / "data"]) as reads:
        (tmp_path / "data").read_bytes()
    assert not others
    assert reads
