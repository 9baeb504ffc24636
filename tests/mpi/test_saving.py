"""Saves in the background by several ranks, alone (saving_program) and during the steps of a loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import ALL
from tests.mpi.jobs import DATASET, PREPARE, Place, phases
from tests.mpi.waiting import run_main


@pytest.mark.parametrize("ranks", [1, 2, 3] if ALL else [1, 3])
def test_what_is_saved_in_the_background_is_complete_everywhere(tmp_path: Path, ranks: int) -> None:
    assert run_main(ranks, "tests.mpi.saving_program", tmp_path).split()[-1] == "saved"


CHECKPOINTS = """
checkpoint fast {
    part     weights 300 kB total
    part     state 1001 B per rank
    path     "fast"
    async    on
    keep     1
}
checkpoint tiers {
    part     weights 300 kB total
    root     local
    path     "tiers"
    keep     1
    drain to data
    partner  1 ranks
}
"""

RUN = """
save fast
pause 10 ms
train {
    read        d
    batch       2 per rank
    epochs      3
    compute     10 ms
    checkpoint  fast every 3 steps
    checkpoint  tiers every 20 ms
    checkpoint  fast at end
}
save tiers
drop caches
restore fast
restore tiers
"""


def test_a_loop_saves_during_its_steps(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINTS, PREPARE, RUN)
    found = place.results(2, "--root", f"local={tmp_path / 'local'}", "--verify")
    kinds = [(phase["kind"], phase["name"]) for phase in found["phases"]]
    inside = kinds[4 : kinds.index(("save", "tiers"), len(kinds) - 4)]
    assert kinds[:4] == [("prepare", "d"), ("save", "fast"), ("pause", ""), ("train", "train")]
    assert kinds[-4:] == [("save", "tiers"), ("drop caches", ""), ("restore", "fast"), ("restore", "tiers")]
    # 10 steps an epoch, each of 10 ms at least.
    assert inside.count(("save", "fast")) == 3 * 3 + 1
    assert 2 <= inside.count(("save", "tiers")) <= 30
    for phase in phases(found, "save"):
        files, fast = phase["files"], phase["name"] == "fast"
        assert (files["flush_seconds"]["min"] > 0) == fast
        assert (files["drain_seconds"]["min"] > 0) == (not fast)
        assert files["bytes"] == (302_002 if fast else 300_000)
        assert files["partner_bytes"] == (0 if fast else 300_000)
    assert [
        len(list(tmp_path.glob(f"{root}/*/0*/manifest.json"))) for root in ("data/fast", "data/tiers", "local/tiers")
    ] == [1, 1, 1]


def test_saves_without_io_cost_nothing_and_leave_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, CHECKPOINTS, PREPARE, RUN)
    found = place.results(2, "--root", f"local={tmp_path / 'local'}", "--null")
    assert {phase["files"]["bytes"] for phase in phases(found, "save")} == {0}
    assert not list(tmp_path.glob("*/fast")) and not list(tmp_path.glob("*/tiers"))
