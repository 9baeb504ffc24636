"""The number of saves is known before anything is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.checkpoint_footprint import minimum_saves

HEAD = """dlio 1
workload w "w"
dataset d {
    samples 60
    size    1 kB
    path    "d"
}
checkpoint c {
    part    p 1 MB total
    path    "c"
}
"""
TRAIN = "train {{\n    read d\n    batch 2 per rank\n    epochs 4\n    compute 1 ms\n    {}\n}}\n"


@pytest.mark.parametrize(
    ("verbs", "saves"),
    [
        ("save c\nrepeat 3 {\n    save c\n    repeat 2 {\n        save c\n    }\n}\n", 1 + 3 * (1 + 2)),
        (TRAIN.format("checkpoint c every 4 steps"), 4 * (60 // (2 * 2) // 4)),
        (TRAIN.format("checkpoint c every 3 epochs\n    checkpoint c at end"), 1 + 1),
        # 15 steps of 1 ms an epoch, and a save at the first boundary after each 7 ms: at least every seventh step.
        (TRAIN.format("checkpoint c every 6500 us"), 4 * 15 // 7),
        ("repeat 2 {\n" + TRAIN.format("checkpoint c every 1 epochs") + "}\n", 2 * 4),
    ],
)
def test_saves_are_counted_without_planning(tmp_path: Path, verbs: str, saves: int) -> None:
    (tmp_path / "w.dlio").write_text(HEAD + verbs)
    workload, _ = compile_pattern(tmp_path / "w.dlio", [], Job(2, 1))
    assert minimum_saves(workload)["c"] == saves
