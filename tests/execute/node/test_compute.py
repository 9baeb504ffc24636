"""Compute ends no sooner than its deadline, and leaves the interpreter to others."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import pytest

from dliosim.execute.node.compute import keep_core_busy, sleep_until
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.model import Job, Workload
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

MS = 1_000_000


@pytest.mark.parametrize("may_spin", [True, False])
@pytest.mark.parametrize("length", [0, 10_000, 2 * MS, 20 * MS])
def test_a_sleep_ends_at_its_deadline_or_later_and_says_by_how_much(may_spin: bool, length: int) -> None:
    deadline = time.perf_counter_ns() + length
    late = sleep_until(deadline, may_spin)
    after = time.perf_counter_ns()
    assert 0 <= late <= after - deadline


def test_a_deadline_that_has_passed_costs_no_wait() -> None:
    assert sleep_until(time.perf_counter_ns() - MS, True) >= MS


def test_the_threads_of_a_run_are_woken_on_time() -> None:
    found: list[int] = []
    libc = ctypes.CDLL(None)

    def slack() -> None:
        found.append(libc.prctl(30, 0, 0, 0, 0))  # PR_GET_TIMERSLACK

    def run() -> None:
        world = world_of_one()
        workload = Workload("w", "", 1, Job(1), (), (), ())
        run_workload(Session(workload, world, {}, Options(), ProgressLine(None)))
        reader = threading.Thread(target=slack)
        reader.start()
        reader.join()

    def start() -> None:
        libc.prctl(29, 70_000, 0, 0, 0)  # PR_SET_TIMERSLACK, of this thread, whatever others have made of theirs
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        slack()

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    assert found == [1000, 70_000]


@pytest.mark.parametrize("length", [1, 100_000, 5 * MS])
def test_busy_takes_at_least_as_long_as_asked(length: int) -> None:
    keep_core_busy(1)
    begun = time.perf_counter_ns()
    late = keep_core_busy(length)
    took = time.perf_counter_ns() - begun
    assert took >= length
    assert 0 <= late <= took


def test_busy_uses_the_core() -> None:
    def used() -> int:
        before = time.thread_time_ns()
        keep_core_busy(5 * MS)
        return time.thread_time_ns() - before

    # Others may have the core for most of the time, now and then; a sleep would not even use a hundredth of it.
    assert max(used() for _ in range(10)) > MS


@pytest.mark.parametrize("work", [keep_core_busy, lambda length: sleep_until(time.perf_counter_ns() + length, True)])
def test_other_threads_continue_meanwhile(work: Callable[[int], int]) -> None:
    done = threading.Event()
    turns = 0

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1

    other = threading.Thread(target=count)
    other.start()
    keep_core_busy(1)
    before = turns
    work(100 * MS)
    after = turns
    done.set()
    other.join()
    # With the lock held for the whole time there would be none at all.
    assert after - before > 1000
