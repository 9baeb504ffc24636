"""Ranks that wait for tests: they cost nothing while they do, and when they end, a test says so and others start."""

from __future__ import annotations

import re

import pytest

from tests.mpi.launch import run_ranks

ENDING = """
from tests.mpi import waiting

ENDING, PASSING = "tests.mpi.ending_program", "tests.mpi.returning_program"

waiting._DYING = 1.0  # the time for a launcher to end whose ranks did


def started():
    return waiting._WAITING[2].started


def test_one_that_passes():
    assert waiting.run_main(2, PASSING) == "2 ranks"
    assert started() == 1


def test_one_whose_ranks_die():
    waiting.run_main(2, ENDING, "die")


def test_another_that_passes():
    assert waiting.run_main(2, PASSING) == "2 ranks"
    assert started() == 2


def test_one_whose_ranks_hang():
    waiting.run_main(2, ENDING, "hang", seconds=2)


def test_the_last_that_passes():
    assert waiting.run_main(2, PASSING) == "2 ranks"
    assert started() == 3
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of pytest for tests whose ranks pass, die, pass, hang and pass."""
    place = tmp_path_factory.mktemp("ending")
    (place / "test_ending.py").write_text(ENDING)
    (place / "conftest.py").write_text("from tests.conftest import pytest_sessionfinish\n")
    command = ("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", f"{place}")
    done = run_ranks(0, *command, cwd=place, env={"COLUMNS": "300"})
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("one_whose_ranks_die", "ended with status"), ("one_whose_ranks_hang", "did not answer in time")],
)
def test_a_job_that_ends_fails_the_test_that_it_was_running(ended: str, name: str, said: str) -> None:
    assert re.search(
        rf"^FAILED test_ending.py::test_{name} .*tests.mpi.ending_program on 2 ranks: .*{said}", ended, re.M
    )


def test_ranks_that_hang_say_where(ended: str) -> None:
    assert re.search(r"ending_program.py\", line \d+ in main", ended)


def test_a_job_that_has_ended_is_started_again_for_the_next_test(ended: str) -> None:
    assert len(re.findall(r"^PASSED ", ended, re.M)) == 3
    assert len(re.findall(r"^FAILED ", ended, re.M)) == 2
