from dataclasses import replace

import pytest

from dliosim.measure.answers.answer import answer_run, evaluate
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.results.machine import FileSystem
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Reason
from dliosim.model import Expectation
from dliosim.report.phase_titles import group_phases
from tests.report.sample import change, epoch, run, spread

MS = 1_000_000

#: What makes an epoch storage's, in `on_disk`.
DEVICE = {
    "storage_amplification": 1.0,
    "core_wait_seconds": spread(0.0),
    "storage_utilization": 0.7,
    "storage_step_seconds": 2.0,
}


def expecting(figure, bound, value, unit, loop="train"):
    return Expectation(figure, loop, bound, value, unit, f"expect {figure} {bound} {value}")


def cold(**changed):
    """An epoch whose bytes all came from the device."""
    return epoch(0, **(DEVICE | changed))


def result_of(line, *epochs, kind="ext4", environment=None, loop=(), **changed):
    """Judge a line for a loop of these epochs on a file system of a kind."""
    resident = 0.0 if kind == "ext4" else None
    phase = replace(LoopPhase("train", "train", 1.0, epochs=epochs, resident_share=resident), **dict(loop))
    places = (FileSystem("data", "/scratch", kind),)
    whole = run(phases=(phase,), **changed)
    whole = replace(whole, environment=replace(environment or whole.environment, file_systems=places))
    goal = {"train": line.value} if line.figure == "utilization" else {}
    whole = replace(whole, answers=answer_run(whole, group_phases(whole.loops), goal, lambda override: ()))
    (result,) = evaluate([line], whole)
    assert result.is_missed == (not result.held and result.reported_only is None)
    return result


UTILIZATION = expecting("utilization", "at least", 0.7, "ratio")
P99 = expecting("p99", "at most", 0.05, "s")


def test_the_first_epoch_counts_where_it_came_from_storage_and_later_ones_from_memory_do_not():
    warm = epoch(1, storage_amplification=0.0, storage_utilization=0.99)
    result = result_of(UTILIZATION, cold(storage_utilization=0.6), warm, warm)
    assert (result.measured, result.epochs, result.is_missed) == (0.6, (1,), True)


def test_utilization_is_that_of_storage_alone_over_all_epochs_that_count():
    result = result_of(UTILIZATION, *(cold(storage_utilization=one, utilization=0.1) for one in (0.8, 0.78, 0.79)))
    assert result.measured == pytest.approx(0.79)
    assert (result.held, result.reported_only, result.epochs) == (True, None, (1, 2, 3))


@pytest.mark.parametrize("line", [UTILIZATION, P99])
@pytest.mark.parametrize(
    ("epochs", "kind", "changed", "reason"),
    [
        ([epoch(0, storage_amplification=0.0)], "ext4", {}, "page_cache"),
        ([epoch(0, bytes=0, device_bytes=0)], "ext4", {}, "page_cache"),
        ([epoch(0, bytes=0, bytes_moved=0)], "ext4", {}, "empty_samples"),
        ([epoch(0, storage_amplification=0.0)], "tmpfs", {}, "memory_file_system"),
        ([cold(storage_amplification=0.5, storage_utilization=0.1)], "ext4", {}, "partly_cached"),
        ([cold(storage_amplification=None)], "lustre", {}, "uncounted"),
        ([cold(null=True)], "ext4", {"null": True}, "nothing_read"),
        ([cold()], "ext4", {"verify": True}, "read_checked"),
    ],
)
def test_what_is_not_storages_is_reported_only(line, epochs, kind, changed, reason):
    result = result_of(line, *epochs, kind=kind, **changed)
    assert result.reported_only.kind == reason


@pytest.mark.parametrize(
    ("alone", "held", "is_missed", "verdict"),
    [
        ((0.6, 0.61, 0.62), False, True, "does not feed"),
        ((0.6, 0.61, 0.71), False, False, "too close to say"),
        ((0.69, 0.74, 0.75), True, False, "too close to say"),
        ((0.74, 0.74, 0.75), True, False, "feeds"),
    ],
)
def test_a_line_is_judged_as_the_answer_is(alone, held, is_missed, verdict):
    result = result_of(UTILIZATION, *(cold(storage_utilization=one) for one in alone))
    assert (result.held, result.is_missed) == (held, is_missed)
    assert (result.reported_only == Reason("goal_in_interval")) == (verdict == "too close to say")
    train = LoopPhase("train", "train", 1.0, epochs=tuple(cold(storage_utilization=one) for one in alone))
    places = (FileSystem("data", "/scratch", "ext4"),)
    whole = run(phases=(replace(train, resident_share=0.0),))
    whole = replace(whole, environment=replace(whole.environment, file_systems=places))
    (answer,) = answer_run(whole, [[whole.loops[0]]], {"train": 0.7}, lambda override: ())
    assert answer.verdict == verdict


def test_a_line_is_missed_by_an_only_epoch_where_its_steps_show_it():
    one = cold(storage_utilization=0.6, storage_utilization_error=0.04)
    assert result_of(UTILIZATION, one).is_missed
    unsure = replace(one, storage_utilization_error=0.06)
    assert result_of(UTILIZATION, unsure).reported_only.kind == "goal_in_interval"


@pytest.mark.parametrize(("times", "is_missed"), [((1.0, 1.01, 1.02), True), ((0.6, 1.0, 1.2), False)])
def test_a_rate_is_judged_by_its_interval_over_epochs(times, is_missed):
    epochs = [cold(**LOOP | {"loop_seconds": one}) for one in times]
    result = result_of(expecting("throughput", "at least", 1000.0, "B/s"), *epochs, loop={"cache": "off"})
    assert (result.held, result.is_missed) == (False, is_missed)


LOOP = {"loop_seconds": 1.0, "bytes": 800, "bytes_moved": 800, "amplification": 1.0, "samples": 800}


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (expecting("utilization", "at least", 1.0, "ratio"), {"storage_utilization": 0.8}),
        (expecting("throughput", "at least", 1000.0, "B/s"), {}),
        (expecting("throughput", "at least", 1000.0, "samples/s"), {}),
        (expecting("p99", "at most", 0.04, "s"), {"batch_latency": Histogram([50 * MS])}),
    ],
)
@pytest.mark.parametrize(("waited", "is_missed"), [(0.19, True), (0.21, False)])
@pytest.mark.parametrize("who", ["core_wait_seconds", "reader_core_wait_seconds"])
def test_what_waits_for_cores_may_have_taken_misses_nothing(line, figures, waited, is_missed, who):
    readers = 4 if who == "reader_core_wait_seconds" else 0
    times = LOOP | figures | {who: spread(waited * max(readers, 1))}
    result = result_of(line, cold(**times), loop={"readers": readers})
    assert not result.held
    assert result.is_missed == is_missed
    assert is_missed or result.reported_only.values["share"] == pytest.approx(waited)


def test_waits_for_cores_that_no_kernel_counts_may_be_anything_where_ranks_outnumber_cores():
    one = cold(core_wait_seconds=None, storage_utilization=0.1)
    assert result_of(UTILIZATION, one).is_missed
    crowded = replace(run().environment, cores_per_node=3)
    assert result_of(UTILIZATION, one, environment=crowded).reported_only.kind == "core_wait_uncounted"


@pytest.mark.parametrize(("slept", "is_missed"), [(0.15, True), (0.3, False)])
def test_compute_that_took_too_long_may_have_taken_throughput_but_nothing_else(slept, is_missed):
    late = {"compute_seconds": spread(0.8 * (1 + slept)), "oversleep_share": slept}
    one = cold(**LOOP | late, batch_latency=Histogram([60 * MS]), storage_utilization=0.65)
    result = result_of(expecting("throughput", "at least", 1000.0, "B/s"), one)
    assert result.is_missed == is_missed
    assert is_missed or result.reported_only.values["share"] == pytest.approx(0.24)
    assert result_of(UTILIZATION, one).is_missed
    assert result_of(P99, one).is_missed


def test_waits_excuse_nothing_that_they_make_better():
    crowded = cold(**LOOP, core_wait_seconds=spread(0.5))
    assert result_of(expecting("throughput", "at most", 700.0, "B/s"), crowded).is_missed


@pytest.mark.parametrize(("unit", "field", "per_second"), [("B/s", "bytes", 100.0), ("samples/s", "samples", 100.0)])
def test_throughput_is_all_that_was_read_by_all_the_time(unit, field, per_second):
    sizes = {field: 300} | ({"bytes_moved": 300} if field == "bytes" else {})
    epochs = [cold(loop_seconds=time, amplification=1.0, **sizes) for time in (6.0, 1.0, 2.0)]
    result = result_of(expecting("throughput", "at least", 99.0, unit), *epochs, loop={"cache": "off"})
    assert result.measured == pytest.approx(per_second)
    assert result.held


def test_p99_is_of_all_epochs_together():
    slow, fast = Histogram([100 * MS] * 2), Histogram([1 * MS] * 98)
    assert result_of(P99, cold(batch_latency=slow), cold(batch_latency=fast)).measured == pytest.approx(0.1)


def test_p99_is_of_requests_where_there_are_any():
    one = cold(request_latency=Histogram([30 * MS]), batch_latency=Histogram([1 * MS]))
    result = result_of(P99, one)
    assert result.measured == pytest.approx(0.03)
    assert result.held


@pytest.mark.parametrize("device", [1.0, 0.0, None])
def test_a_loop_without_compute_misses_no_utilization_wherever_its_bytes_came_from(device):
    resting = cold(utilization=None, storage_utilization=None, compute_seconds=spread(0.0))
    result = result_of(UTILIZATION, change(resting, storage_amplification=device))
    assert (result.measured, result.held, result.is_missed) == (None, False, False)


def test_what_could_not_be_measured_does_not_hold():
    assert result_of(P99, cold(batch_latency=Histogram())).is_missed


@pytest.mark.parametrize("line", [UTILIZATION, P99])
@pytest.mark.parametrize(
    ("short", "is_missed"), [({}, True), ({"storage_step_seconds": 0.4}, False), ({"steps": 9}, False)]
)
def test_a_line_is_missed_only_where_enough_was_measured(line, short, is_missed):
    late = {"storage_utilization": 0.1, "batch_latency": Histogram([60 * MS])}
    assert result_of(line, cold(**late | short)).is_missed == is_missed


def test_a_loop_that_did_not_run_does_not_hold():
    result = result_of(replace(UTILIZATION, loop="other"), cold())
    assert (result.measured, result.held, result.epochs) == (None, False, ())


@pytest.mark.parametrize(("prefetch", "judged"), [(30, True), (31, False)])
def test_utilization_says_nothing_where_all_later_steps_are_read_during_the_first(prefetch, judged):
    late = {"batch_latency": Histogram([60 * MS])}
    result = result_of(UTILIZATION, cold(storage_utilization=0.1, **late), loop={"prefetch": prefetch})
    assert (result.reported_only is None) == judged
    assert result_of(P99, cold(**late), loop={"prefetch": prefetch}).is_missed


def test_without_io_there_is_no_bandwidth():
    result = result_of(expecting("throughput", "at most", 1e15, "B/s"), cold(null=True))
    assert (result.measured, result.held) == (None, False)
