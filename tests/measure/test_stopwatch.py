"""Times that nested stopwatches count, by a clock that tests move."""

from __future__ import annotations

import threading

import pytest

from dliosim.measure.rank import meter
from dliosim.measure.rank.meter import Stopwatch
from dliosim.measure.rank.records import VerbRecord


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meter, "perf_counter_ns", clock)
    return clock


def test_a_block_adds_to_what_its_column_has(clock: Clock) -> None:
    record = VerbRecord()
    for _ in range(2):
        with Stopwatch(record, "send_ns"):
            clock.now += 7
    assert record.send_ns == 14


def test_a_stopwatch_around_another_counts_its_time_unless_that_is_set_aside(clock: Clock) -> None:
    record = VerbRecord()
    with Stopwatch(record, "wall_ns"):
        clock.now += 1
        with Stopwatch(record, "commit_ns"):
            clock.now += 10
            with Stopwatch(record, "content_ns", aside=True):
                clock.now += 100
                with Stopwatch(record, "encode_ns", aside=True):
                    clock.now += 1000
            clock.now += 10
        clock.now += 1
    assert (record.wall_ns, record.commit_ns, record.content_ns, record.encode_ns) == (22, 20, 100, 1000)


def test_an_error_ends_the_block_and_its_stopwatch(clock: Clock) -> None:
    record = VerbRecord()
    failing = pytest.raises(ValueError, match="lost")
    with Stopwatch(record, "wall_ns"), failing, Stopwatch(record, "content_ns", aside=True):
        clock.now += 5
        raise ValueError("lost")
    with Stopwatch(record, "wall_ns"):
        clock.now += 3
    assert (record.wall_ns, record.content_ns) == (3, 5)


def test_what_another_thread_sets_aside_is_none_of_this_ones(clock: Clock) -> None:
    record, other = VerbRecord(), VerbRecord()

    def make_contents() -> None:
        with Stopwatch(other, "content_ns", aside=True):
            clock.now += 5

    with Stopwatch(record, "wall_ns"):
        thread = threading.Thread(target=make_contents)
        thread.start()
        thread.join()
    assert (record.wall_ns, other.content_ns) == (5, 5)
