"""The end of a run: its report, and the status for what it missed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.commands.run_results import _write_report
from tests.report.sample import run


@pytest.mark.parametrize(("doubt", "status"), [(None, 3), ("8.0 % of the time was waiting for a core", 0)])
def test_an_expectation_that_is_missed_is_the_status_unless_times_are_in_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], doubt: str | None, status: int
) -> None:
    (result,) = [one for one in run().expectations if one.is_missed]
    judged = run(expectations=(replace(result, reported_only=doubt),))
    assert _write_report(judged, (), lambda: tmp_path) == status
    printed = capsys.readouterr()
    assert printed.out.count("MISSED: expect utilization of train") == (status == 3)
    assert printed.err == ("error: 1 of 1 expect line missed\n" if status else "")
