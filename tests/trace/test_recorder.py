"""The recorder: what calls become, in which epoch, step, file and thread."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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


def rows(buffer: ColumnBuffer) -> dict[str, list[int]]:
    return {name: np.concatenate(pieces).tolist() for name, pieces in buffer._pieces.items()}


def plan(files: list[int], step_start: list[int]) -> Extents:
    row = np.arange(len(files))
    return Extents(row, np.array(files), row * 100, row + 10, np.array(step_start))


def test_a_run_of_calls_has_what_the_plan_says_of_its_rows() -> None:
    one = recorder()
    calls = plan_calls(plan([0, 2, 2, 1], [0, 1, 4]), None)
    log = one.open_log(lambda file: f"file {file}")
    one.begin_epoch(3)
    log.add_run(Call.READ, calls.step(1), 1100, [1150, 1170, 1200])
    one.collect()
    found = rows(one.calls)
    assert list(one.files) == ["file 1", "file 2"]
    assert [list(one.files)[file] for file in found["file"]] == ["file 2", "file 2", "file 1"]
    assert (found["begin"], found["duration"]) == ([100, 150, 170], [50, 20, 30])
    assert (found["offset"], found["asked"], found["moved"]) == ([100, 200, 300], [11, 12, 13], [11, 12, 13])
    assert (found["epoch"], found["step"]) == ([3] * 3, [2] * 3)


def test_a_call_that_was_cut_short_has_its_own_bytes_and_end() -> None:
    one = recorder()
    calls = plan_calls(plan([0, 0], [0, 2]), None)
    log = one.open_log(str)
    log.add_short(1, 4, 1140)
    log.add_call(Call.READ, 1140, 0, 104, 7, 7, ended=1200)
    log.add_run(Call.READ, calls, 1100, [1120, 1200])
    one.collect()
    found = sorted(zip(*(rows(one.calls)[name] for name in ("begin", "duration", "offset", "moved")), strict=True))
    assert found == [(100, 20, 0, 10), (120, 20, 100, 4), (140, 60, 104, 7)]


def test_calls_outside_of_epochs_have_no_step() -> None:
    one = recorder()
    log = one.open_log(str)
    log.add_run(Call.READ, plan_calls(plan([0], [0, 1]), None), 1100, [1150])
    log.add_call(Call.CLOSE, 1160)
    one.collect()
    assert (rows(one.calls)["step"], rows(one.calls)["epoch"]) == ([-1, -1], [-1, -1])


def test_steps_that_were_not_asked_for_are_neither_recorded_nor_lost() -> None:
    one = recorder(parse_cut("steps 2 to 3, epochs 1"))
    calls = plan_calls(plan([0] * 5, [0, 1, 2, 3, 4, 5]), None)
    for epoch in 1, 2:
        one.begin_epoch(epoch)
        for step in range(5):
            one.open_log(str).add_run(Call.READ, calls.step(step), 1100 + step, [1150])
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
    log = one.open_log(str)
    calls = plan_calls(plan([0], [0, 1]), None)
    for _ in range(2):
        log.add_run(Call.READ, calls, 1, list(range(2, 3)))
        one.collect()
        one.calls.stored = 1  # as after a chunk
    assert (one.calls.added, one.calls.kept) == (2, 1)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=30), st.integers(0, 1 << 30))
@settings(max_examples=examples(50))
def test_order_of_each_thread_is_kept_however_calls_are_grouped(runs: list[tuple[int, int]], start: int) -> None:
    one = recorder()
    whole = plan_calls(plan([0] * 4, [0, 4]), None)
    logs = [one.open_log(str) for _ in range(3)]
    now, wanted = start, []
    for number, (thread, count) in enumerate(runs):
        logs[thread].thread = thread
        stamps = [now + 10 * (at + 1) for at in range(count)]
        logs[thread].add_run(Call.READ, whole.part(0, count), now, stamps)
        wanted += [(now + 10 * at - 1000, thread, at * 100) for at in range(count)]
        now = stamps[-1] + number
        if number % 3 == 0:
            one.collect()
    one.collect()
    found = rows(one.calls)
    assert sorted(zip(found["begin"], found["thread"], found["offset"], strict=True)) == sorted(wanted)
