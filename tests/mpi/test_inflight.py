"""A window of requests; the checks themselves are in inflight_program."""

from __future__ import annotations

from tests.mpi.launch import run_program


def test_a_window_is_as_wide_as_asked_and_leaves_nothing_in_flight() -> None:
    assert run_program(1, "tests.mpi.inflight_program") == "nothing is in flight\n"
