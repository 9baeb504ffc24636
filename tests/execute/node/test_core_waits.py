"""Threads that wait for a core, as the kernel counts them."""

from __future__ import annotations

from threading import Event, Thread, get_native_id

import pytest

from dliosim.execute.node.compute import core_wait, core_wait_since, parse_schedstat


@pytest.mark.parametrize(
    ("schedstat", "ready"),
    [
        ("925758 318743 4\n", 318743),
        ("925758 0 4\n", 0),
        ("0 0 0\n", None),  # a kernel with the file and without the count
        ("0 318743 4\n", None),
        ("", None),
        ("1 2\n", None),
        ("1 2 3 4\n", None),
        ("1 -2 3\n", None),
        ("1 two 3\n", None),
    ],
)
def test_a_kernel_that_does_not_count_is_not_taken_for_one_that_counts_nothing(
    schedstat: str, ready: int | None
) -> None:
    assert parse_schedstat(schedstat) == ready


def test_a_thread_that_is_not_there_has_no_wait_and_no_thread_waits_for_nothing() -> None:
    assert core_wait([1 << 30]) is None
    assert core_wait([]) == 0
    assert core_wait_since(0, [1 << 30]) == -1
    assert core_wait_since(None, []) == -1


def test_waits_of_threads_add_up() -> None:
    done, there, found = Event(), Event(), []

    def stay() -> None:
        found.append(get_native_id())
        there.set()
        done.wait()

    other = Thread(target=stay)
    other.start()
    there.wait()
    try:
        own = [get_native_id()]
        before, of_other = core_wait(own), core_wait(found)
        if before is None:
            pytest.skip("this kernel does not count it")
        # The other one may wait for a core until it sleeps, so what it has waited is asked for before and after.
        both, after, later = core_wait([*own, *found]), core_wait(own), core_wait(found)
        assert of_other is not None and both is not None and after is not None and later is not None
        assert before + of_other <= both <= after + later
        assert core_wait_since(before, own) >= after - before
    finally:
        done.set()
        other.join()
