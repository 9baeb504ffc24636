"""Reading ahead: one order of reads for any reader, errors in the step they belong to, and no endless wait."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.batches.prefetch import Batches, InlineBatches, PrefetchedBatches, make_batches
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access, By
from dliosim.plan.samples.io_requests import Calls, deal_rounds
from tests.execute.calls import make_calls


@dataclass
class Recorder:
    """A reader that notes what it is asked, and fills each piece with the low byte of its offset."""

    log: list[tuple[str, object]]
    fail_at: int | None = None
    gate: threading.Event | None = None
    meter: Meter = field(default_factory=Meter)

    def begin_epoch(self) -> None:
        self.log.append(("begin", threading.get_ident()))

    def read(self, calls: Calls, into: memoryview) -> int:
        if self.gate is not None:
            self.gate.wait()
        self.log.append(("read", calls.offset.tolist()))
        for offset, start, length in zip(
            calls.offset.tolist(), calls.start.tolist(), calls.length.tolist(), strict=True
        ):
            if offset == self.fail_at:
                raise ExecutionError(f"cannot read {offset}")
            into[start : start + length] = bytes([offset % 256]) * length
        return int(calls.length.sum())

    def end_epoch(self) -> None:
        self.log.append(("end", threading.get_ident()))

    def active_hints(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        self.log.append(("close", threading.get_ident()))


class Timed(Recorder):
    """Each read is inside calls for 100 ns a byte, its first byte's offset in ns besides opening files."""

    def read(self, calls: Calls, into: memoryview) -> int:
        got = super().read(calls, into)
        self.meter.add_run(1000, (1000 + 100 * got,))
        self.meter.open_ns += int(calls.offset[0])
        return got


def steps_of(count: int, calls: int = 4) -> Calls:
    return make_calls([[(0, 10 * step + call, 3) for call in range(calls)] for step in range(count)])


def slots(number: int) -> list[memoryview]:
    return [allocate(64) for _ in range(number)]


def ahead(
    log: list[tuple[str, object]],
    readers: int = 1,
    prefetch: int = 2,
    by: By = "batch",
    collective: bool = False,
    fail_at: int | None = None,
    gate: threading.Event | None = None,
) -> PrefetchedBatches:
    made = [Recorder(log, fail_at, gate) for _ in range(readers)]
    return PrefetchedBatches(made, slots(max(prefetch, 1)), prefetch, by, collective)


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("prefetch", [0, 1, 2, 20])
@pytest.mark.parametrize("by", ["batch", "batch in turn", "sample"])
def test_every_step_gets_its_own_bytes(readers: int, prefetch: int, by: By) -> None:
    batches = ahead([], readers, prefetch, by)
    for _ in range(2):
        batches.begin(EpochCalls(steps_of(9)))
        batches.start()
        for step in range(9):
            slot, got = batches.wait(step)
            assert got == 12
            assert bytes(slot[:got]) == b"".join(bytes([10 * step + call]) * 3 for call in range(4))
        batches.end()
    batches.close()


def test_one_reader_reads_in_the_order_of_steps_and_not_too_far_ahead() -> None:
    log: list[tuple[str, object]] = []
    batches = ahead(log, prefetch=2)
    batches.begin(EpochCalls(steps_of(6, 1)))
    batches.start()
    batches.wait(0)
    batches.release(0)
    batches.release(0)
    batches.run(lambda: None)
    deadline = time.monotonic() + 5
    while len(log) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert log[1:] == [("read", [0]), ("read", [10]), ("read", [20])]
    for step in range(1, 6):
        batches.wait(step)
    batches.end()
    assert [what for what, _ in log] == ["begin", *["read"] * 6, "end"]
    assert [where for what, where in log if what == "read"] == [[10 * step] for step in range(6)]
    batches.close()


@pytest.mark.parametrize("prefetch", [1, 3, 5])
def test_in_turn_each_reader_takes_every_kth_batch(prefetch: int) -> None:
    logs: list[list[tuple[str, object]]] = [[], [], []]
    batches = PrefetchedBatches([Recorder(log) for log in logs], slots(prefetch), prefetch, "batch in turn", False)
    batches.begin(EpochCalls(steps_of(8, 1)))
    batches.start()
    for step in range(8):
        batches.wait(step)
    batches.end()
    batches.close()
    read = [[where for what, where in log if what == "read"] for log in logs]
    assert read == [[[10 * step] for step in range(first, 8, 3)] for first in range(3)]


def test_by_sample_deals_a_step_in_equal_runs() -> None:
    log: list[tuple[str, object]] = []
    batches = ahead(log, readers=3, prefetch=1, by="sample")
    batches.begin(EpochCalls(steps_of(1, 7)))
    batches.start()
    batches.wait(0)
    batches.end()
    batches.close()
    reads = sorted(where for what, where in log if what == "read")  # type: ignore[type-var]
    assert reads == [[0, 1], [2, 3], [4, 5, 6]]


def test_collective_calls_all_come_from_one_thread_in_the_order_asked() -> None:
    log: list[tuple[str, object]] = []
    batches = ahead(log, prefetch=2, collective=True)
    batches.begin(EpochCalls(steps_of(4, 1)))
    batches.start()
    batches.wait(0)
    batches.release(0)

    def save() -> int:
        log.append(("save", None))
        return threading.get_ident()

    saved_on = batches.run(save)
    assert saved_on != threading.get_ident()
    for step in range(1, 4):
        batches.wait(step)
    batches.end()
    batches.close()
    assert [what for what, _ in log] == ["begin", "read", "read", "read", "save", "read", "end", "close"]
    assert {where for what, where in log if what in ("begin", "end", "close")} == {saved_on}


def test_what_runs_on_the_collective_thread_raises_here() -> None:
    batches = ahead([], collective=True)

    def fail() -> None:
        raise ExecutionError("no")

    with pytest.raises(ExecutionError, match="no"):
        batches.run(fail)
    batches.close()


@pytest.mark.parametrize("readers", [0, 1, 2])
def test_an_error_is_raised_by_the_step_that_it_belongs_to(readers: int) -> None:
    log: list[tuple[str, object]] = []
    inline = InlineBatches([Recorder(log, fail_at=20)], slots(1))
    batches: Batches = ahead(log, readers, fail_at=20) if readers else inline
    batches.begin(EpochCalls(steps_of(8, 1)))
    batches.start()
    for step in range(8):
        if step == 2:
            with pytest.raises(ExecutionError, match="cannot read 20"):
                batches.wait(step)
        else:
            batches.wait(step)
    batches.end()
    assert len([what for what, _ in log if what == "read"]) == 8
    batches.close()


def test_ending_an_epoch_early_waits_for_what_is_under_way() -> None:
    log: list[tuple[str, object]] = []
    batches = ahead(log, readers=2, prefetch=3)
    batches.begin(EpochCalls(steps_of(50, 1)))
    batches.start()
    batches.wait(0)
    batches.end()
    seen = len(log)
    time.sleep(0.02)
    assert len(log) == seen
    batches.close()
    batches.close()


def test_closing_after_a_failure_does_not_wait_for_a_call_that_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dliosim.execute.batches.prefetch.PATIENCE", 0.05)
    gate = threading.Event()
    log: list[tuple[str, object]] = []
    batches = ahead(log, gate=gate)
    batches.begin(EpochCalls(steps_of(5, 1)))
    batches.start()
    batches.close(failed=True)
    gate.set()
    time.sleep(0.05)
    assert len([what for what, _ in log if what == "read"]) <= 1
    assert all(what != "close" for what, _ in log)


def test_a_rank_takes_part_in_the_rounds_of_the_rank_that_needs_most() -> None:
    log: list[tuple[str, object]] = []
    calls = make_calls([[(0, 0, 5), (0, 9, 5)], [], [(0, 3, 2)]])
    batches = InlineBatches([Recorder(log)], slots(1))
    batches.begin(EpochCalls(calls, deal_rounds(calls, 5), np.array([3, 1, 1])))
    batches.start()
    for step in range(3):
        batches.wait(step)
    assert [where for what, where in log if what == "read"] == [[0], [9], [], [], [3]]


def test_an_access_has_the_slots_and_the_threads_that_it_asks_for() -> None:
    assert Access().batches == 1
    assert [Access(readers=3, prefetch=ahead).batches for ahead in (0, 1, 4)] == [1, 1, 4]
    inline = make_batches(Access(), [Recorder([])], slots(1))
    assert isinstance(inline, InlineBatches)
    threaded = make_batches(Access(readers=1, prefetch=1), [Recorder([])], slots(2))
    assert isinstance(threaded, PrefetchedBatches)
    threaded.close()


@pytest.mark.parametrize("by", ["batch", "sample"])
def test_when_a_step_was_read_is_from_its_first_reader_to_its_last(by: By) -> None:
    """The times of the calls are those of the recorders; one recorder waits for its gate."""
    log: list[tuple[str, object]] = []
    gate = threading.Event()
    readers = [Recorder(log, gate=gate), Recorder(log, gate=gate)]
    batches = PrefetchedBatches(readers, slots(1), 1, by, False)
    batches.begin(EpochCalls(steps_of(1)))
    began = time.perf_counter_ns()
    batches.start()
    time.sleep(0.02)
    opened = time.perf_counter_ns()
    gate.set()
    batches.wait(0)
    ready = time.perf_counter_ns()
    batches.end()
    batches.close()
    begun, ended = batches.reading
    assert began <= begun <= opened <= ended <= ready


def test_a_step_without_calls_is_read_at_no_time() -> None:
    batches = ahead([], readers=2, by="sample")
    batches.begin(EpochCalls(steps_of(1, 0)))
    batches.start()
    batches.wait(0)
    batches.end()
    batches.close()
    assert batches.reading == [0, 0]
    inline = InlineBatches([Recorder([])], slots(1))
    inline.begin(EpochCalls(steps_of(1)))
    inline.wait(0)
    assert inline.reading == []


@dataclass(frozen=True)
class Decoded(EpochCalls):
    """Each batch, and each share of one, takes this many ns to decode."""

    def process(self, step: int, slot: memoryview) -> int:
        return 7

    def process_share(self, step: int, first: int, last: int, shares: int, slot: memoryview) -> int:
        return 7


@pytest.mark.parametrize(
    ("readers", "by", "called", "decoded"),
    [
        (0, "batch", [1200, 1210, 1220, 1230], 0),
        (1, "batch", [1200, 1210, 1220, 1230], 7),
        (2, "batch", [1200, 1210, 1220, 1230], 7),
        (3, "batch in turn", [1200, 1210, 1220, 1230], 7),
        # Two calls each, 3 bytes a call; the second share begins at the third call.
        (2, "sample", [602, 612, 622, 632], 7),
    ],
)
def test_what_of_a_wait_may_be_for_data_is_the_calls_of_its_batch_and_its_decoding_during_the_step(
    readers: int, by: By, called: list[int], decoded: int
) -> None:
    made = [Timed([]) for _ in range(max(1, readers))]
    batches = make_batches(Access(readers=readers, prefetch=2, by=by), made, slots(3))
    found = []
    for _ in range(2):
        batches.begin(Decoded(steps_of(4)))
        made[0].meter.open_ns += 5000  # before the clock
        batches.start()
        for step in range(4):
            batches.wait(step)
            found.append((batches.called, batches.decoded))
        batches.end()
    batches.close()
    assert found == [(each, decoded) for each in called] * 2


def test_the_calls_of_an_epoch_are_freed_without_the_garbage_collector_which_loops_turn_off() -> None:
    batches, held = ahead([]), []
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            epoch = EpochCalls(steps_of(5))
            held.append(weakref.ref(epoch.calls.offset))
            batches.begin(epoch)
            batches.start()
            for step in range(5):
                batches.wait(step)
            batches.end()
        assert [one() is None for one in held] == [True, True, False]
    finally:
        gc.enable()
        batches.close()
