"""The figure that each part of a step counts for, by a clock that moves only when the step's parts say so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dliosim.execute.loop import step_loop
from dliosim.execute.loop.loop_saves import NEVER, StepSync
from dliosim.execute.loop.step_loop import StepSettings, run_steps
from dliosim.measure.rank.records import CAUSES, EpochRecord, unpack_arrivals
from dliosim.measure.rank.step_times import PlannedSteps, StepAccount
from dliosim.measure.rank.time_series import QUANTITIES, EpochSeries
from dliosim.model import Sync
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.loop.test_step_sync import Meeting, world_of_threads

MS = 1_000_000


class Clock:
    """Nanoseconds that pass where somebody lets them."""

    def __init__(self) -> None:
        self.now = 1000 * MS

    def __call__(self) -> int:
        return self.now

    def sleep_until(self, deadline: int, may_spin: bool) -> int:
        self.now = max(self.now, deadline)
        return 0


class Slow:
    """Batches that take 1 ms and `own` to come, `processed` ns to decode and 2 ms to check; `called` is 1 ms."""

    def __init__(self, clock: Clock, processed: int, own: int) -> None:
        self.called, self.decoded = MS, 0
        self.processed = processed
        self.own = own
        self.clock = clock

    def start(self) -> None:
        pass

    def wait(self, step: int) -> None:
        self.clock.now += MS + self.own + self.processed

    def check(self, step: int) -> None:
        self.clock.now += 2 * MS

    def collect(self) -> None:
        pass


class Saves:
    """Saves of 10 ms and `content` ns after some steps."""

    timed = False

    def __init__(self, clock: Clock, steps: frozenset[int], content: int, deadline: int) -> None:
        self.clock, self.steps, self.content, self.deadline = clock, steps, content, deadline

    def mark_due(self, now: int) -> None:
        raise AssertionError("nothing is due by seconds")

    def save_after_step(self, step: int) -> int:
        self.clock.now += 10 * MS + self.content
        self.deadline += self.content
        return 10 * MS


class Slowed(ProgressLine):
    """A progress line that takes 4 ms to show."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(None)
        self.clock = clock

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        self.clock.now += 4 * MS


def run(
    monkeypatch: pytest.MonkeyPatch,
    compute: int,
    arrival: list[int],
    slowed: bool = False,
    processed: int = 0,
    sync: str = "off",
    series: EpochSeries | None = None,
    saves: frozenset[int] = frozenset(),
    content: int = 0,
    flushes: Sequence[tuple[int, int]] = (),
    deadline: int = NEVER,
    own: int = 0,
) -> EpochRecord:
    """Three steps of one rank, with so much compute and requests that arrive at these times (ns).

    After the steps of `saves` a save of 10 ms and `content` ns; `flushes` is when others were in the background.
    """
    clock = Clock()
    monkeypatch.setattr(step_loop, "perf_counter_ns", clock)
    monkeypatch.setattr(step_loop, "sleep_until", clock.sleep_until)
    syncer = StepSync(world_of_threads(Meeting(1), 0), Sync(sync, 0, 1), False)
    between = np.array(flushes, np.int64).reshape(-1, 2)
    plan = PlannedSteps(np.ones(3, np.int64), [100, 200, 300], [compute] * 3, arrival, syncer.every, False)
    account = StepAccount(plan, 0, series or EpochSeries(), [], lambda since: between)
    source, shown = Slow(clock, processed, own), Slowed(clock) if slowed else ProgressLine(None)
    run_steps(
        plan, StepSettings(syncer, False, False, 2), source, Saves(clock, saves, content, deadline), account, shown
    )
    return account.make_record(0, 0, 1, False)


@pytest.mark.parametrize("compute", [0, 5 * MS])
def test_a_requests_latency_is_without_the_check_of_its_contents(monkeypatch: pytest.MonkeyPatch, compute: int) -> None:
    record = run(monkeypatch, compute, [0, 100 * MS, 200 * MS])
    assert record.request_latency.count == 3
    assert (record.request_latency.min_ns, record.request_latency.max_ns) == (MS + compute, MS + compute)
    assert record.tool_ns == 6 * MS


def test_what_stands_in_line_waits_for_the_checks_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(monkeypatch, 0, [0, 1 * MS, 2 * MS])
    assert record.request_latency.sum_ns == (1 + 3 + 5) * MS


def test_parts_of_the_wall_time_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(monkeypatch, 5 * MS, [])
    assert (record.data_wait_ns, record.compute_ns, record.tool_ns) == (3 * MS, 15 * MS, 6 * MS)
    assert record.wall_ns == 24 * MS
    [block] = record.blocks
    assert (block.elapsed_ns, block.first_ns, block.compute_ns) == (24 * MS, 6 * MS, 10 * MS)


@pytest.mark.parametrize("arrival", [[], [0, 100 * MS, 200 * MS]])
def test_what_is_between_two_steps_is_the_tools_time(monkeypatch: pytest.MonkeyPatch, arrival: list[int]) -> None:
    record = run(monkeypatch, 5 * MS, arrival, slowed=True)
    # The last step's line is shown when the epoch is over.
    assert record.tool_ns == (3 * 2 + 2 * 4) * MS
    assert (record.batch_latency.count, record.batch_latency.max_ns) == (3, MS)


@pytest.mark.parametrize("arrival", [[], [0, 100 * MS, 200 * MS]])
def test_what_is_not_inside_a_call_is_the_tools_time_and_no_waiting(
    monkeypatch: pytest.MonkeyPatch, arrival: list[int]
) -> None:
    series = EpochSeries()
    record = run(monkeypatch, 5 * MS, arrival, own=8 * MS, processed=7 * MS, sync="barrier", series=series)
    assert (record.data_wait_ns, record.processing_ns, record.tool_ns) == (3 * MS, 21 * MS, 3 * (8 + 2) * MS)
    assert (record.batch_latency.count, record.batch_latency.max_ns) == (3, MS)
    assert record.request_latency.max_ns == (13 * MS if arrival else 0)
    assert series.bins[QUANTITIES.index("data_wait_ns")].sum() == record.data_wait_ns
    # Most of a step, and of the wait: but for the steps that waited for requests, the tool.
    _, causes = unpack_arrivals(record.last_arrival)
    assert [CAUSES[one] for one in causes] == ["tool", *["arrivals" if arrival else "tool"] * 2]
    # DLIO takes the whole of the first wait out.
    assert record.blocks[0].first_ns == (1 + 8 + 7 + 5) * MS


def test_a_wait_is_never_longer_than_it_was_however_long_calls_took_during_it(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(monkeypatch, 5 * MS, [], own=-MS // 4)
    assert (record.data_wait_ns, record.tool_ns) == (3 * MS * 3 // 4, 6 * MS)


@pytest.mark.parametrize("compute", [0, 5 * MS])
def test_what_a_step_decodes_itself_is_neither_waiting_nor_the_tools_time(
    monkeypatch: pytest.MonkeyPatch, compute: int
) -> None:
    series = EpochSeries()
    record = run(monkeypatch, compute, [], processed=7 * MS, series=series)
    assert (record.data_wait_ns, record.processing_ns, record.tool_ns) == (3 * MS, 21 * MS, 6 * MS)
    begun, ready, asked = series.window[0, :3].tolist()
    # Decoding comes before compute, also in steps without decoding.
    assert (ready - begun, asked - ready) == (MS, (9 if compute else 7) * MS)
    [block] = record.blocks
    assert block.first_ns == 8 * MS + compute


def test_a_request_is_not_answered_before_its_data_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(monkeypatch, 5 * MS, [0, 100 * MS, 200 * MS], processed=7 * MS)
    assert (record.request_latency.min_ns, record.request_latency.max_ns) == (13 * MS, 13 * MS)


@pytest.mark.parametrize(
    ("compute", "processed", "cause"),
    [(5 * MS, 7 * MS, "decode"), (8 * MS, 7 * MS, "compute"), (0, MS, "tool"), (0, 3 * MS, "decode")],
)
def test_a_step_is_bound_by_decoding_where_that_took_most_of_it(
    monkeypatch: pytest.MonkeyPatch, compute: int, processed: int, cause: str
) -> None:
    record = run(monkeypatch, compute, [], processed=processed, sync="barrier")
    _, causes = unpack_arrivals(record.last_arrival)
    assert [CAUSES[one] for one in causes] == [cause] * 3


@pytest.mark.parametrize("content", [0, 700 * MS])
def test_making_what_a_checkpoint_holds_is_in_no_other_time(monkeypatch: pytest.MonkeyPatch, content: int) -> None:
    series = EpochSeries()
    saves = frozenset({0, 1})
    record = run(monkeypatch, 5 * MS, [], sync="barrier", series=series, saves=saves, content=content)
    assert (record.content_ns, record.checkpoint_ns) == (2 * content, 20 * MS)
    assert (record.wall_ns, record.loop_ns, record.tool_ns) == ((3 * 8 + 20) * MS, 24 * MS, 6 * MS)
    assert record.steady_ns == 16 * MS
    assert series.bins[QUANTITIES.index("checkpoint_ns")].sum() == record.checkpoint_ns


def test_making_what_a_checkpoint_holds_does_not_use_up_the_time_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    saves, end = frozenset({0}), Clock().now + 27 * MS
    assert run(monkeypatch, 5 * MS, [], saves=saves, content=700 * MS, deadline=end).steps == 3
    assert run(monkeypatch, 5 * MS, [], saves=saves, deadline=end).steps == 3


# The steps are from 1000 to 1008, from 1008 to 1016 and from 1016 to 1024 ms.
@pytest.mark.parametrize(
    ("intervals", "flushed"),
    [
        ([], 0),
        ([(1000, 1008)], 0),
        ([(1015, 1016)], 1),
        ([(1015, 1017)], 2),
        ([(900, 1009), (1001, 1010), (1015, 1016)], 1),
        ([(1010, 1 << 40)], 2),
        ([(1023, 1030), (1009, 1010)], 2),
    ],
)
def test_steps_during_a_flush_are_counted_separately_but_for_the_first(
    monkeypatch: pytest.MonkeyPatch, intervals: list[tuple[int, int]], flushed: int
) -> None:
    record = run(monkeypatch, 5 * MS, [], flushes=[(begin * MS, end * MS) for begin, end in intervals])
    assert (record.flush_steps, record.clear_steps) == (flushed, 2 - flushed)
    assert (record.flush_steps_ns, record.clear_steps_ns) == (flushed * 8 * MS, (2 - flushed) * 8 * MS)
    assert (record.flush_data_wait_ns, record.clear_data_wait_ns) == (flushed * MS, (2 - flushed) * MS)
