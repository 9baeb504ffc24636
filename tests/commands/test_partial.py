"""Results of what is finished, written during a run: not too often, and never when the run is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest

from dliosim.commands.job import setup
from dliosim.commands.job.setup import PartialResults


def begun(write: Callable[[str], Path | None]) -> PartialResults:
    results = PartialResults("no results were written")
    results.begin(write)
    return results


@pytest.mark.parametrize(("pause", "seconds", "times"), [(1000.0, 0.0, 0), (0.0, 0.0, 3), (0.0, 0.2, 1)])
def test_what_is_finished_is_written_again_after_a_pause_that_grows_with_the_time_it_takes(
    monkeypatch: pytest.MonkeyPatch, pause: float, seconds: float, times: int
) -> None:
    monkeypatch.setattr(setup, "_PAUSE", pause)
    monkeypatch.setattr(setup, "_SPARSE", 50 if seconds else 0)
    written: list[str] = []
    results = begun(lambda signal: (written.append(signal), sleep(seconds), Path("there"))[-1])
    for _ in range(3):
        results.keep()
    assert written == [""] * times
    assert results.save("SIGTERM") == "what was finished is in there"
    assert written == [""] * times + ["SIGTERM"]
    with results.final_write():
        pass
    results.keep()
    assert results.save("SIGTERM") == "the run was over"
    assert len(written) == times + 1


def test_a_run_goes_on_where_what_it_has_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_PAUSE", 0.0)

    def fail(signal: str) -> Path:
        raise OSError(28, "No space left on device", "out")

    results = begun(fail)
    results.keep()
    assert (
        results.save("SIGTERM")
        == "error[R402]: rank 0 could not write the partial results: out: No space left on device"
    )


def test_a_run_after_another_is_not_over() -> None:
    results = begun(lambda signal: None)
    with results.final_write():
        pass
    results.otherwise = "earlier runs are in out, and no results of run_2 were written"
    results.begin(lambda signal: None)
    assert results.save("SIGUSR1") == f"{results.otherwise}, because nothing was finished"
