"""The answer of real runs: its figures agree, and its advice works when it is pasted into a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.examples import ALL
from tests.mpi.jobs import HEAD, PREPARE
from tests.mpi.launch import mpiexec

PATTERN = f"""{HEAD}
dataset d {{
    samples  66
    size     100 kB
    layout   file per sample
    path     "d"
}}
{PREPARE}
train {{
    read     d
    batch    2 per rank
    epochs   2
    compute  1 ms
}}
expect utilization of train at least 80 %
"""


def paste(command: str, place: Path) -> dict[str, Any]:
    """Run a command line in a shell as a user has it, and return the results that it leaves in `place`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), str(Path(mpiexec()).parent), os.environ["PATH"]])
    before = {*place.glob("dliosim-results-*/results.json")}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    (made,) = {*place.glob("dliosim-results-*/results.json")} - before
    found: dict[str, Any] = json.loads(made.read_text())
    return found


@pytest.mark.parametrize("ranks", [1, 3] if ALL else [3])
def test_advice_works_when_it_is_pasted_and_the_figures_agree(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "a b.dlio").write_text(PATTERN)
    results = paste(f"mpiexec -n {ranks} dliosim run 'a b.dlio' --dir data --null", tmp_path)
    (answer,) = results["answer"]
    assert (answer["verdict"], answer["source"]) == ("not a storage result", "null")
    results = paste(answer["advice"][0]["command"], tmp_path)
    (answer,) = results["answer"]
    assert (results["null"], answer["source"] == "null") == (False, False)
    needs, got = (answer[f"{name}_bytes_per_second"] for name in ("needs", "got"))
    assert needs["mean"] / got["mean"] == pytest.approx(
        answer["goal"] / answer["storage_utilization"]["mean"], rel=0.02
    )
    # What the steps after the first read in the time that they compute, if that is 80 % of the whole.
    steps = 66 // (2 * ranks) - 1
    assert needs["mean"] == pytest.approx((66 - 2 * ranks) * 100e3 / (steps * 1e-3) * 0.8, rel=0.02)
    for advice in [one for one in answer["advice"] if one["command"]][:1]:
        assert paste(advice["command"], tmp_path)["answer"]
