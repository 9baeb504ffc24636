"""Benchmarks that are ended from outside leave neither processes nor data, and say so in a line."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.mpi.launch import Job, running
from tests.scripts.stubs import DEV, environment

MEASURES = """\
import sys
from harness import orderly, run, scratch

def main():
    with scratch(sys.argv[1]) as place:
        (place / "data").write_bytes(bytes(1000))
        run(["sh", "-c", "sleep 300 & wait"], 400)

orderly(main)
"""


#: A signal comes while Popen has not yet returned.
STARTS = """\
import subprocess, sys, time
sys.path.insert(0, {!r})
import harness

class Slow(subprocess.Popen):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        time.sleep(2)

subprocess.Popen = Slow
harness.orderly(lambda: harness.run(["sh", "-c", "sleep 300 & wait"], 400))
"""


@pytest.fixture
def measures(tmp_path: Path) -> Path:
    script = tmp_path / "measures.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(DEV)!r})\n{MEASURES}")
    return script


def ended_by(number: signal.Signals, script: Path, place: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Return what a script prints that is ended while its own command runs; it leaves no process."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, str(script), str(place)],
        env={**environment({}), "DLIOSIM_TEST_JOB": mark, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with running(Job(process, mark)) as job:
        job.wait_until(lambda: bool(job.processes("sleep 300")))
        process.send_signal(number)
        if env:
            process.wait(20)
            job.kill()
        return job.finish()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_what_was_made(measures: Path, tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "place"
    place.mkdir()
    done = ended_by(number, measures, place)
    assert done.returncode == 128 + number
    assert done.stderr == f"measures.py: {number.name}: ended what it started, removed its data\n"
    assert list(place.iterdir()) == []


def test_a_rank_ends_at_once(measures: Path, tmp_path: Path) -> None:
    assert ended_by(signal.SIGTERM, measures, tmp_path, PMI_RANK="0").returncode == -signal.SIGTERM


def test_a_command_that_does_not_heed_the_request_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DEV))
    harness = importlib.import_module("harness")
    monkeypatch.setattr(harness, "_GRACE", 0.1)
    with pytest.raises(SystemExit, match=r"took more than 0\.5 s\nbegun"):
        harness.run(["sh", "-c", "trap '' TERM; echo begun; while :; do sleep 0.1; done"], 0.5)


@pytest.mark.parametrize("script", [*sorted(DEV.glob("bench_*.py")), DEV / "cross_check.py"], ids=lambda s: s.name)
def test_every_benchmark_ends_so(script: Path) -> None:
    assert script.read_text().endswith('\nif __name__ == "__main__":\n    orderly(main)\n')


def test_a_command_that_is_just_being_started_is_ended_as_well(tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(STARTS.format(str(DEV)))
    done = ended_by(signal.SIGTERM, script, tmp_path)
    assert done.returncode == 128 + signal.SIGTERM
