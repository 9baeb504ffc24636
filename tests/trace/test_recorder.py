"""The recorder: what calls become, in which epoch, step, file and thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.measure.rank.meter import Meter
from dliosim.plan.samples.io_requests import Extents, plan_calls
from dliosim.trace.calls import Call
from dliosim.trace.columns import CALL_COLUMNS, SPAN_COLUMNS, ColumnBuffer, SpillFile
from dliosim.trace.cut import TraceCut, parse_cut
from dliosim.trace.events import KINDS
from dliosim.trace.recorder import Recorder
from tests.examples import examples


def recorder(cut: TraceCut = TraceCut(), most: int = 1 << 30) -> Recorder:  # noqa: B008
    spill = SpillFile("/dev/shm")
    return Recorder(cut, 1000, ColumnBuffer(CALL_COLUMNS, most, spill), ColumnBuffer(SPAN_COLUMNS, most, spill))


class Reader:
    """A reader whose calls are recorded, without I/O."""

    def __init__(self, one: Recorder, planned: Call = Call.READ) -> None:
        self.meter = Meter()
        self.meter.log = self.log = one.open_log(lambda file: f"file {file}", planned)
        self.run = self.meter.add_run


def collect(one: Recorder, *readers: Reader) -> dict[str, list[int]]:
    """Return the columns of all calls, after the meters have given their times."""
    for reader in readers:
        reader.meter.take_intervals()
    one.collect()
    return rows(one.calls)


def rows(buffer: ColumnBuffer) -> dict[str, list[int]]:
    return {name: np.concatenate(pieces).tolist() for name, pieces in buffer._pieces.items()}


def plan(files: list[int], step_start: list[int]) -> Extents:
    row = np.arange(len(files))
    return Extents(row, np.array(files), row * 100, row + 10, np.array(step_start))


def test_a_run_of_calls_has_what_the_plan_says_of_its_rows() -> None:
    one = recorder()
    calls = plan_calls(plan([0, 2, 2, 1], [0, 1, 4]), None)
    one.begin_epoch(3)
    reader = Reader(one)
    reader.run(1100, [1150, 1170, 1200], calls.step(1))
    found = collect(one, reader)
    assert [list(one.files)[file] for file in found["file"]] == ["file 2", "file 2", "file 1"]
    assert (found["begin"], found["duration"]) == ([100, 150, 170], [50, 20, 30])
    assert (found["offset"], found["asked"], found["moved"]) == ([100, 200, 300], [11, 12, 13], [11, 12, 13])
    assert (found["epoch"], found["step"]) == ([3] * 3, [2] * 3)


def test_one_call_for_all_rows_has_their_bytes_and_lowest_offset_in_each_file() -> None:
    one = recorder()
    calls = plan_calls(plan([0, 0, 1], [0, 2, 3]), None)
    one.begin_epoch(1)
    reader = Reader(one, Call.MPI_READ_ALL)
    for step in 0, 1:
        reader.run(1100, [1150], calls.step(step))
    reader.run(1200, [1250], calls.part(0, 0))
    reader.run(1300, [1350], calls)
    found = collect(one, reader)
    assert (found["offset"], found["asked"]) == ([0, 200, -1, 0, 200], [21, 12, 0, 21, 12])
    assert (found["file"], found["step"]) == ([0, 1, -1, 0, 1], [1, 2, -1, 1, 1])
    assert (found["begin"], found["duration"]) == ([100, 100, 200, 300, 300], [50] * 5)


def test_a_call_that_was_cut_short_has_its_own_bytes_and_end() -> None:
    one = recorder()
    calls = plan_calls(plan([0, 0], [0, 2]), None)
    reader = Reader(one)
    reader.run(1000, [1010, 1020], calls)
    reader.log.add_short(1, 4, 1140)
    reader.log.add_call(Call.READ, 1140, 0, 104, 7, 7, ended=1200)
    reader.run(1100, [1120, 1200], calls)
    reader.run(1300, [1310, 1320], calls)
    found = collect(one, reader)
    sorted_ = sorted(zip(*(found[name] for name in ("begin", "duration", "offset", "moved")), strict=True))
    assert sorted_[2:-2] == [(100, 20, 0, 10), (120, 20, 100, 4), (140, 60, 104, 7)]
    assert [moved for *_, moved in sorted_[:2] + sorted_[-2:]] == [10, 11, 10, 11]


def test_calls_in_flight_together_have_their_own_begins() -> None:
    one = recorder()
    calls = plan_calls(plan([0, 0], [0, 2]), None)
    reader = Reader(one)
    reader.meter.add_overlapping(np.array([1100, 1100]), np.array([1300, 1200]), None, calls)
    found = collect(one, reader)
    assert (found["begin"], found["duration"], found["offset"]) == ([100, 100], [200, 100], [0, 100])


def test_calls_outside_of_epochs_have_no_step() -> None:
    one = recorder()
    reader = Reader(one)
    reader.run(1100, [1150], plan_calls(plan([0], [0, 1]), None))
    reader.log.add_call(Call.CLOSE, 1160)
    found = collect(one, reader)
    assert (found["step"], found["epoch"]) == ([-1, -1], [-1, -1])


def test_steps_that_were_not_asked_for_are_neither_recorded_nor_lost() -> None:
    one = recorder(parse_cut("steps 2 to 3, epochs 1"))
    calls = plan_calls(plan([0] * 5, [0, 1, 2, 3, 4, 5]), None)
    reader = Reader(one)
    for epoch in 1, 2:
        one.begin_epoch(epoch)
        for step in range(5):
            reader.run(1100 + step, [1150], calls.step(step))
        collect(one, reader)
        one.end_epoch("train", 1000, 2000)
    assert rows(one.calls)["step"] == [2, 3]
    assert (one.calls.added, one.calls.kept) == (2, 2)


def test_spans_of_steps_continue_to_count() -> None:
    one = recorder()
    one.begin_epoch(1)
    for _ in range(2):
        begin = np.array([1000, 1100])
        one.add_steps({"compute": (begin, begin + 50), "save": (begin, begin)})
    found = rows(one.spans)
    assert (found["step"], [KINDS[kind] for kind in found["kind"]]) == ([1, 2, 3, 4], ["compute"] * 4)


def test_what_is_beyond_the_limit_is_counted() -> None:
    one = recorder(most=1)
    reader, calls = Reader(one), plan_calls(plan([0], [0, 1]), None)
    reader.run(1, [2], calls)
    collect(one, reader)
    one.calls.seal()
    reader.run(1, [2], calls)
    reader.meter.take_intervals()
    one.collect()
    assert (one.calls.added, one.calls.kept) == (2, 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=30), st.integers(0, 1 << 30))
@settings(max_examples=examples(50))
def test_order_of_each_thread_is_kept_however_calls_are_grouped(runs: list[tuple[int, int]], start: int) -> None:
    one = recorder()
    whole = plan_calls(plan([0] * 4, [0, 4]), None)
    readers = [Reader(one) for _ in range(3)]
    now, wanted = start + 1, []
    for number, (thread, count) in enumerate(runs):
        readers[thread].log.thread = thread
        stamps = [now + 10 * (at + 1) for at in range(count)]
        readers[thread].run(now, stamps, whole.part(0, count))
        wanted += [(now + 10 * at - 1000, thread, at * 100) for at in range(count)]
        now = stamps[-1] + number
        if number % 3 == 0:
            collect(one, *readers)
    found = collect(one, *readers)
    assert sorted(zip(found["begin"], found["thread"], found["offset"], strict=True)) == sorted(wanted)


def test_many_calls_of_a_verb_are_collected_before_it_ends() -> None:
    one = recorder()
    for number in range(100_000):
        log = one.open_log(lambda _, number=number: f"file {number // 2}", Call.WRITE)
        log.add_call(Call.OPEN, 1000 + number)
        log.make_room()
        assert len(one.entries) < 1 << 15
    one.collect()
    assert (one.calls.added, len(one.files)) == (100_000, 50_000)
    found = rows(one.calls)
    assert (found["file"], found["begin"]) == ([number // 2 for number in range(100_000)], list(range(100_000)))


def test_writes_of_one_file_are_collected_before_it_is_closed() -> None:
    one = recorder()
    meter = Meter()
    meter.log = one.open_log(str, Call.WRITE)
    for number in range(1 << 15):
        meter.add_write(Call.WRITE, 1, number, 1, 1)
    assert (one.calls.added, len(one.entries)) == (1 << 15, 0)


def test_calls_of_other_threads_are_collected_by_the_main_one() -> None:
    one = recorder()

    def save() -> None:
        log = one.open_log(str, Call.WRITE)
        for number in range(1 << 15):
            log.add_call(Call.WRITE, number)
            log.make_room()

    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    assert (one.calls.added, len(one.entries)) == (0, 1 << 15)
    one.open_log(str, Call.WRITE).make_room()
    assert (one.calls.added, len(one.entries)) == (1 << 15, 0)


def test_a_thread_that_begins_after_a_reader_has_ended_is_not_taken_for_it() -> None:
    one, found = recorder(), []

    def run(action: Callable[[], object]) -> None:
        thread = threading.Thread(target=action)
        thread.start()
        thread.join()

    for _ in range(3):
        # The system gives the identity of a thread that has ended to the next one.
        run(lambda: one.number_thread(1))
        run(lambda: found.append(one.open_log(str, Call.WRITE).thread))
    assert found == [1000, 1001, 1002]
    assert one.open_log(str, Call.WRITE).thread == 0
