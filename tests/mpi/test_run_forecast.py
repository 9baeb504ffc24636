"""A run does what `plan` says without `~` of a phase and an epoch; of every format: test_run_formats."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dliosim.cli import main
from tests.mpi.waiting import run_command, run_main


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_does_what_was_planned(ranks: int, tmp_path: Path) -> None:
    compared = json.loads(run_main(ranks, "tests.mpi.forecast_program", tmp_path, seconds=180).splitlines()[-1])
    assert compared["differ"] == []
    # An estimate says nothing of a run: most figures of workloads as small as these must be exact.
    assert compared["same"] > 3 * compared["marked"] > 0


PREPARED = """dlio 1
workload w
dataset d {
    samples 12
    shape   64 x 64 of float32
    layout  2 files
    format  npz
    compress gzip 6
    compressible 4:1
    path    "d"
}
dataset e {
    samples 6
    size    100 B
    layout  3 files
    format  tfrecord
    path    "e"
}
prepare d
prepare e
train {
    read    d
    batch   2 per rank
}
"""


def test_what_only_files_know_is_estimated_before_they_are_there_and_read_from_them_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern, data = tmp_path / "w.dlio", tmp_path / "data"
    pattern.write_text(PREPARED)
    plan = ["plan", str(pattern), "--ranks", "1", "--dir", str(data)]
    assert main([*plan, "--csv"]) == 2
    assert "prepare them by `dliosim run`" in capsys.readouterr().err
    assert main(plan) == 0
    text = capsys.readouterr().out
    before = _row(text, "train")
    assert "--nodes" not in text
    assert main([*plan[:3], "2"]) == 0
    assert "(as this machine; --nodes, --memory)" in capsys.readouterr().out
    assert main([*plan[:3], "2", "--nodes", "1"]) == 0
    assert "--nodes" not in capsys.readouterr().out
    done = run_command(1, ["run", str(pattern), "--dir", str(data), "--output", str(tmp_path / "out")], tmp_path)
    assert done.returncode == 0, done.stderr
    phases = json.loads((tmp_path / "out/results.json").read_text())["phases"]
    read = next(phase for phase in phases if phase["kind"] == "train")["epochs"][0]
    assert main(plan) == 0
    text = capsys.readouterr().out
    after = _row(text, "train")
    assert before.startswith("~") and float(before[1:]) == pytest.approx(read["bytes"] / 1e3, rel=0.1)
    assert after == f"{read['bytes'] / 1e3:.2f}"
    assert main([*plan, "--csv"]) == 0
    listed = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert sum(int(row["length"]) for row in listed) == read["bytes"]
    assert {row["file"] for row in listed} == {str(path.relative_to(data)) for path in data.glob("d/*/*.npz")}
    # A file and its index for each of three.
    rows = [line.split() for line in text.splitlines() if line.startswith(("data set e", "index e.index"))]
    stored = [path for path in data.glob("e/*/*") if path.name != "manifest.json"]
    assert ([int(row[-2]) for row in rows], len(stored)) == ([3, 3], 6)
    # Damaged since: an estimate needs no files.
    damaged = next(data.glob("d/*/*.npz"))
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert main(plan) == 0
    printed = capsys.readouterr()
    assert _row(printed.out, "train") == before
    assert printed.err.startswith("note: ") and f"{damaged}" in printed.err and "is estimated as if" in printed.err
    assert main([*plan, "--csv"]) == 1


def _row(text: str, name: str) -> str:
    """The bytes in the row of a loop in the first table, in kB."""
    return next(line.split()[6] for line in text.splitlines() if line.startswith(f"{name}, epoch"))
