"""Memory that a run keeps of each save and of each epoch on rank 0."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.model import (
    Access,
    Cadence,
    Checkpoint,
    Dataset,
    Job,
    Layout,
    Loop,
    Part,
    Prepare,
    Repeat,
    Save,
    Verb,
    Workload,
    Writers,
    constant,
)
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

DATASET = Dataset("d", 1, 10, constant(4096), Layout("shared file", 1), "d")
CHECKPOINT = Checkpoint("c", 1, (Part("w", 500, "total"),), Writers("rank", 0), Access(), "c", keep=1, fsync=False)


def train(epochs: int, *saves: Cadence) -> tuple[Verb, ...]:
    """Verbs of a loop with this number of epochs."""
    loop = Loop("train", "t", "d", Access(), steps=2, epochs=epochs, checkpoints=saves)
    return Prepare("d", Access(), fsync=False), loop


def kept_bytes(directory: Path, verbs: tuple[Verb, ...]) -> int:
    """Return the bytes that dliosim has allocated in a run and keeps with its results."""
    workload = Workload("w", "", 1, Job(1), (DATASET,), (CHECKPOINT,), verbs)
    directory.mkdir()
    session = Session(workload, world_of_one(), {"data": directory}, Options(), ProgressLine(None))
    tracemalloc.start()
    phases = run_workload(session)
    # Python's table of names grows by a MB at a time, wherever it does: only what dliosim allocates counts.
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/dliosim/*")])
    tracemalloc.stop()
    assert phases
    return sum(one.size for one in found.statistics("filename"))


@pytest.mark.parametrize(
    ("verbs", "most"),
    [
        (lambda times: (Repeat(times, (Save("c"),)),), 20_000),
        (lambda times: train(times, Cadence("c", "epochs")), 20_000),
        (train, 8_000),
    ],
    ids=["saves", "saves of a loop", "epochs"],
)
def test_a_run_keeps_little_of_each_save_and_epoch(
    tmp_path: Path, verbs: Callable[[int], tuple[Verb, ...]], most: int
) -> None:
    kept_bytes(tmp_path / "first", verbs(2))  # what is imported and made once
    few, many = (kept_bytes(tmp_path / f"{times}", verbs(times)) for times in (10, 40))
    assert (many - few) / 30 < most
