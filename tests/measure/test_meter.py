"""Records of the calls of threads: each latency is taken once; busy time is the time with any thread in a call."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.meter import Meter, MeterGroup


def test_latencies_are_taken_once_however_long_a_thread_holds_the_list() -> None:
    meter = Meter()
    held = meter.call_ns
    held.append(1)
    assert meter.take_latencies().tolist() == [1]
    held.append(2)
    assert meter.take_latencies().tolist() == [2]


def test_calls_made_back_to_back_are_latencies_and_one_run() -> None:
    meter = Meter()
    meter.stamps.extend([-10, 13, 20])
    meter.stamps.extend([-50, 51])
    latencies, runs, reached = meter.take_intervals()
    assert latencies.tolist() == [3, 7, 1]
    assert runs.tolist() == [[10, 50], [20, 51]]
    assert reached == 51
    assert meter.take_intervals()[1].shape == (2, 0)


def test_a_thread_is_inside_calls_that_open_set_views_read_and_close() -> None:
    meter = Meter()
    meter.add_run(10, (13, 20))
    meter.add_run(50, (51,))
    assert (meter.read_ns, meter.stamps) == (11, [-10, 13, 20, -50, 51])
    meter.open_ns, meter.view_ns, meter.close_ns, meter.sync_ns = 100, 1000, 10_000, 100_000
    assert meter.io_call_ns == 11_111


def test_calls_in_flight_are_inside_from_the_first_begun_to_the_last_back_once() -> None:
    meter = Meter()
    meter.add_overlapping(np.array([10, 20]), np.array([30, 25]))
    assert meter.read_ns == 20
    meter.add_overlapping(np.array([15, 28]), np.array([29, 45]), since=28)
    assert meter.read_ns == 35
    meter.add_overlapping(np.array([40]), np.array([44]))
    meter.add_overlapping(np.array([100]), np.array([101]))
    assert meter.read_ns == 36


def test_calls_in_flight_at_a_time_have_latencies_of_their_own_and_are_busy_once() -> None:
    meter = Meter()
    meters, latencies = MeterGroup([meter]), Histogram()
    meter.add_overlapping(np.array([10, 20]), np.array([30, 25]))
    meter.add_overlapping(np.array([100]), np.array([101]))
    assert meters.collect_busy(latencies) + meters.collect_rest() == 21
    assert (latencies.count, latencies.sum_ns, latencies.max_ns) == (3, 26, 20)


def test_calls_still_in_flight_when_others_are_recorded_are_busy_from_when_they_began() -> None:
    """Calls that are recorded later are neither counted twice nor lost."""
    meter = Meter()
    meters, latencies = MeterGroup([meter]), Histogram()
    meter.add_overlapping(np.array([10, 10]), np.array([20, 40]), since=15)
    assert meters.collect_busy(latencies) == 5
    meter.add_overlapping(np.array([15]), np.array([60]))
    assert meters.collect_busy(latencies) + meters.collect_rest() == 45
    assert latencies.count == 3


def test_the_time_between_the_calls_of_one_reader_is_not_busy() -> None:
    """Opening, closing and setting views do."""
    meter = Meter()
    meters, latencies = MeterGroup([meter]), Histogram()
    meter.stamps.extend([-100, 130, 135])
    assert meters.collect_busy(latencies) == 35
    meter.stamps.extend([-1000, 1001])
    assert meters.collect_busy(latencies) + meters.collect_rest() == 1
    assert (latencies.count, latencies.sum_ns) == (3, 36)


def test_readers_at_the_same_time_are_busy_once() -> None:
    one, other = Meter(), Meter()
    meters, latencies = MeterGroup([one, other]), Histogram()
    one.stamps.extend([-100, 200])
    assert meters.collect_busy(latencies) == 0  # the other may yet say that it was at work at the same time
    other.stamps.extend([-150, 250])
    assert meters.collect_busy(latencies) == 100
    assert meters.collect_rest() == 50
    assert meters.collect_rest() == 0


# Of one thread: the gap before each call, and the call.
gaps_and_calls = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=12)


@settings(deadline=None)
@given(st.lists(gaps_and_calls, min_size=1, max_size=4), st.data())
def test_whenever_it_is_taken_the_union_is_the_same(threads: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    """Records of one thread arrive in order, those of several threads in any order."""
    busy = np.zeros(400, bool)
    records = []
    for thread in threads:
        now, made = 1, []
        for gap, call in thread:
            busy[now + gap : now + gap + call] = True
            made.append([-(now + gap), now + gap + call])
            now += gap + call
        records.append(made)
    meters = [Meter() for _ in threads]
    together, latencies, found = MeterGroup(meters), Histogram(), 0
    for last in (False, False, False, True):
        for meter, made in zip(meters, records, strict=True):
            count = len(made) if last else data.draw(st.integers(0, len(made)))
            for record in made[:count]:
                meter.stamps.extend(record)
            del made[:count]
        found += together.collect_busy(latencies)
        assert found <= busy.sum()
    assert found + together.collect_rest() == busy.sum()
    assert latencies.count == sum(map(len, threads))
