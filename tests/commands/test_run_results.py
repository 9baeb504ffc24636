"""The end of a run: its report, and the status for what it missed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from dliosim.cli import main
from dliosim.commands.command_line.program import insert_program, name_program
from dliosim.commands.job.results_dir import ResultsDirectory
from dliosim.commands.run_results import report_run
from dliosim.measure.results.run_summary import Reason, RunSummary
from tests.report.sample import run


def report(summary: RunSummary, place: Path, as_json: bool, is_strict: bool) -> tuple[int, Path | None]:
    with ResultsDirectory(str(place), "sample", datetime.now(timezone.utc)) as directory:
        return report_run(directory, summary, (), as_json, is_strict)


@pytest.mark.parametrize(
    ("doubt", "is_strict", "status"),
    [(None, False, 0), (None, True, 3), (Reason("late_wakeups", {"share": 0.08}), True, 0)],
)
def test_an_expectation_that_is_missed_fails_a_strict_run_unless_times_are_in_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], doubt: Reason | None, is_strict: bool, status: int
) -> None:
    (result,) = [one for one in run().expectations if one.is_missed]
    judged = run(expectations=(replace(result, reported_only=doubt),))
    assert report(judged, tmp_path, False, is_strict) == (status, tmp_path)
    printed = capsys.readouterr()
    assert printed.out.count("MISSED: expect utilization of train") == (doubt is None)
    unjudged = "note: 1 of 1 expect line not judged: no failure\n" if doubt else ""
    assert printed.err == ("error: 1 of 1 expect line missed\n" if status else unjudged)


@pytest.mark.parametrize(
    ("started", "on_path", "typed"),
    [
        ("/opt/env/bin/dliosim", "/opt/env/bin/dliosim", "dliosim"),
        ("env/bin/dliosim", None, "env/bin/dliosim"),
        ("/other/bin/dliosim", "/opt/env/bin/dliosim", "/other/bin/dliosim"),
        ("dliosim", None, "dliosim"),
        ("/opt/env/lib/dliosim/cli.py", None, "dliosim"),
    ],
)
def test_the_program_is_named_so_that_it_can_be_typed_again(started: str, on_path: str | None, typed: str) -> None:
    assert name_program(started, on_path) == typed


def test_lines_to_type_begin_with_the_program_as_it_was_typed(tmp_path: Path) -> None:
    program = str(tmp_path / "dliosim")
    (tmp_path / "mpiexec").touch()
    text = "write `dliosim check a.dlio`, or `mpiexec -n 2 dliosim run a.dlio`; data of dliosim are in dliosim-data"
    typed = text.replace("mpiexec -n", f"{tmp_path}/mpiexec -n").replace("dliosim check", f"{program} check")
    assert insert_program(text, program) == typed.replace("dliosim run", f"{program} run")
    assert insert_program(insert_program(text, program), program) == insert_program(text, program)
    assert insert_program(text, "dliosim") == text


def test_json_is_all_that_is_printed_and_the_status_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(run(), tmp_path, True, True) == (3, tmp_path)
    found = json.loads(capsys.readouterr().out)
    assert (found["results"], found["answer"][0]["verdict"]) == (str(tmp_path), "does not feed")
    assert [one["text"] for one in found["missed"]] == ["utilization of train at least 75 %"]
    assert main(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_results_that_cannot_be_written_are_printed_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert report(run(), tmp_path / "file", False, False) == (1, None)
    assert "train: latencies" in capsys.readouterr().out
