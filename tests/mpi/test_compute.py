"""`compute … per sample` on ranks: what was asked is the same on any number of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, phases


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_each_sample_is_computed_once_an_epoch(ranks: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    results = place.results(ranks, define={"train.compute": "1 ms per sample", "train.last batch": "keep"})
    (loop,) = phases(results, "train")
    for epoch in loop["epochs"]:
        # What was asked of all ranks: the time that compute took, without what it took longer.
        asked = epoch["compute_seconds"]["mean"] * ranks / (1 + epoch["oversleep_share"])
        assert asked == pytest.approx(41 * 1e-3)
