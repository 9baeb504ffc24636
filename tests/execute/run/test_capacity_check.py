"""The number of copies of a checkpoint that must fit before a run begins, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run import capacity_check
from dliosim.model import Access, Checkpoint, Job, Part, Save, Workload, Writers
from dliosim.model.checkpoint import Background
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

ONE = Checkpoint("c", 1, (Part("w", 5000, "total"),), Writers("file per rank"), Access(), "c", keep=2)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Checkpoint, int], list[tuple[int, str]]]:
    """Return the bytes that a number of saves of a checkpoint need, and their text, on one file system."""
    (tmp_path / "data").mkdir()
    (tmp_path / "slow").mkdir()

    def needs(checkpoint: Checkpoint, saves: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        monkeypatch.setattr(capacity_check, "require_space", lambda root, size, what: found.append((size, what)))
        workload = Workload("w", "", 1, Job(1), (), (checkpoint,), (Save("c"),) * saves)
        world = world_of_one()
        roots = {"data": tmp_path / "data", "slow": tmp_path / "slow"}
        capacity_check.require_room([Session(workload, world, roots, Options(), ProgressLine(None))])
        return found

    return needs


@pytest.mark.parametrize(
    ("changes", "saves", "copies"),
    [
        ({}, 1, 1),
        ({}, 9, 3),
        ({"keep": None}, 9, 9),
        ({"background": Background(in_flight=3)}, 9, 5),
        ({"background": Background(in_flight=3)}, 4, 4),
        ({"partner": 1}, 9, 6),
    ],
    ids=str,
)
def test_there_are_as_many_as_are_kept_and_as_are_written_meanwhile(
    asked: Callable[[Checkpoint, int], list[tuple[int, str]]], changes: dict[str, object], saves: int, copies: int
) -> None:
    ((size, _),) = asked(replace(ONE, **changes), saves)  # type: ignore[arg-type]
    assert size == 5000 * copies


def test_what_is_drained_needs_room_where_it_goes(
    asked: Callable[[Checkpoint, int], list[tuple[int, str]]],
) -> None:
    ((size, what),) = asked(replace(ONE, drain="slow", background=Background(in_flight=2)), 9)
    assert size == 5000 * (4 + 3)
    assert what == "checkpoint `c` (4 copies at once) with what is drained of checkpoint `c` (3 copies at once)"
