"""Batches out of traces that have no epochs and whose reads have no steps: compute alone shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.analyze.infer.pattern import explain_work
from tests.analyze.infer.test_infer import SHUFFLED, compiled, first_loop, infer, line_of, steps_of
from tests.analyze.rows import MS, Row


def without_epochs(order: Sequence[Sequence[int]], epochs: int) -> list[Row]:
    """Return steps of four samples."""
    rows = steps_of(order, 4, epochs)
    return [replace(row, epoch=-1) for row in rows if row.kind != "epoch"]


@pytest.mark.parametrize("first", [24, 36])
def test_steps_of_all_epochs_and_ranks_show_the_batch(first: int, tmp_path: Path) -> None:
    made = infer(without_epochs([SHUFFLED[:first], SHUFFLED[first:]], 3))
    loop = first_loop(made, tmp_path)
    assert (loop.epochs, loop.batch, loop.steps) == (3, 4, None)
    assert "?" not in line_of(made, "batch")
    assert explain_work(made.work, compiled(made, tmp_path))["bytes"] == 1.0


def test_steps_of_two_loops_show_no_batch() -> None:
    rows = without_epochs([SHUFFLED], 1)
    later = [replace(row, begin=row.begin + 1000 * MS, file=row.file and "/eval/all") for row in rows]
    assert "# ? 2 samples for each step" in line_of(infer([*rows, *later]), "batch")
