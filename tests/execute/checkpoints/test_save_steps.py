"""The files and directories that a save leaves behind, on one rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.node import free_space
from dliosim.execute.phases.context import Options, Session
from dliosim.model import Access, Checkpoint, Job, Part, Workload, Writers
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

CHECKPOINT = Checkpoint("c", 1, (Part("w", 5000, "total"),), Writers("file per rank"), Access(), "c")


def session(directory: Path) -> Session:
    """A job of one rank."""
    workload = Workload("w", "", 1, Job(1), (), (CHECKPOINT,), ())
    world = world_of_one()
    return Session(workload, world, {"data": directory}, Options(), ProgressLine(None))


def save(own: Session, checkpoint: Checkpoint) -> None:
    """Save once, and wait for what of it runs in the background."""
    with CheckpointSession(own, [checkpoint]) as saves:
        saves.save(checkpoint)


def test_a_save_without_memory_for_its_buffers_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_space, "available_memory", lambda: 4999)
    with pytest.raises(
        ExecutionError, match=r"buffers of checkpoint `c` need 5.000 kB a rank, with 1 rank on the node"
    ) as caught:
        save(session(tmp_path), CHECKPOINT)
    assert caught.value.code == "R402"
    assert not list(tmp_path.rglob("*.partial"))
    monkeypatch.setattr(free_space, "available_memory", lambda: 1 << 40)
    save(session(tmp_path), CHECKPOINT)
    assert [path.name for path in tmp_path.rglob("*.ckpt")] == ["000000.ckpt"]
