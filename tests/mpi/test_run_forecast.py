"""What `plan` says of a phase and an epoch without `~` is what a run does: workloads of forecast(_formats)_program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mpi.launch import run_program


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_does_what_was_planned(ranks: int, tmp_path: Path) -> None:
    compared = json.loads(run_program(ranks, "tests.mpi.forecast_program", str(tmp_path)).splitlines()[-1])
    assert compared["differ"] == []
    # An estimate says nothing of a run: most figures of workloads as small as these must be exact.
    assert compared["same"] > 3 * compared["marked"] > 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_any_format_is_written_and_read_as_was_planned(ranks: int, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("pyarrow")
    compared = json.loads(run_program(ranks, "tests.mpi.forecast_formats_program", str(tmp_path)).splitlines()[-1])
    assert compared["differ"] == []
    # Of what only its files know every figure is an estimate.
    assert compared["same"] > 3 * compared["marked"] > 0
