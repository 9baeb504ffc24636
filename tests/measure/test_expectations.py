from dataclasses import replace

import pytest

from dliosim.measure.expectations import evaluate
from dliosim.measure.histogram import Histogram
from dliosim.measure.phase import LoopPhase
from dliosim.model import Expectation
from tests.report.sample import epoch, run, spread

MS = 1_000_000


def expecting(figure, bound, value, unit, loop="train"):
    return Expectation(figure, loop, bound, value, unit, f"expect {figure} {bound} {value}")


def result_of(expectation, *epochs, name="train"):
    (result,) = evaluate([expectation], run(phases=(LoopPhase(name, "train", 1.0, epochs=epochs),)))
    return result


def test_the_first_epoch_does_not_count():
    later = [epoch(1, utilization=0.8), epoch(2, utilization=0.6)]
    result = result_of(expecting("utilization", "at least", 0.7, "ratio"), epoch(0, utilization=0.1), *later)
    assert result.measured == pytest.approx(0.7)
    assert result.held
    assert result.over == "2 epochs after the first"


def test_an_only_epoch_counts_and_the_result_says_so():
    result = result_of(expecting("utilization", "at least", 0.7, "ratio"), epoch(0, utilization=0.69))
    assert (result.measured, result.held, result.over) == (0.69, False, "the only epoch")


def test_of_two_epochs_the_second_counts():
    result = result_of(expecting("utilization", "at most", 0.7, "ratio"), epoch(0), epoch(1, utilization=0.5))
    assert (result.measured, result.held, result.over) == (0.5, True, "the second epoch")


@pytest.mark.parametrize(("unit", "field", "per_second"), [("B/s", "bytes", 200.0), ("samples/s", "samples", 200.0)])
def test_throughput_is_all_that_was_read_by_all_the_time(unit, field, per_second):
    epochs = [epoch(i, loop_seconds=time, **{field: 300}) for i, time in enumerate((9.0, 1.0, 2.0))]
    result = result_of(expecting("throughput", "at least", 199.0, unit), *epochs)
    assert result.measured == pytest.approx(per_second)
    assert result.held


def test_p99_is_of_all_later_epochs_together():
    slow, fast = Histogram([100 * MS] * 2), Histogram([1 * MS] * 98)
    epochs = [epoch(0), epoch(1, batch_latency=slow), epoch(2, batch_latency=fast)]
    assert result_of(expecting("p99", "at most", 0.05, "s"), *epochs).measured == pytest.approx(0.1)


def test_p99_is_of_requests_where_there_are_any():
    one = epoch(0, request_latency=Histogram([30 * MS]), batch_latency=Histogram([1 * MS]))
    result = result_of(expecting("p99", "at most", 0.04, "s"), one)
    assert result.measured == pytest.approx(0.03)
    assert result.held


def test_what_could_not_be_measured_does_not_hold():
    result = result_of(expecting("utilization", "at least", 0.0, "ratio"), replace(epoch(0), utilization=None))
    assert (result.measured, result.held) == (None, False)


def test_a_loop_that_did_not_run_does_not_hold():
    result = result_of(expecting("utilization", "at least", 0.0, "ratio", loop="other"), epoch(0))
    assert (result.measured, result.held, result.over) == (None, False, "no epoch")


def reason(figure, phase, **changed):
    unit, bound = {"utilization": ("ratio", "at least"), "p99": ("s", "at most")}[figure]
    (result,) = evaluate(
        [expecting(figure, bound, 0.99 if unit == "ratio" else 1e-9, unit)], run(phases=phase, **changed)
    )
    assert not result.held
    assert result.is_missed == (result.reported_only is None)
    return result.reported_only


CROWDED = replace(run().environment, cores_per_node=3)


@pytest.mark.parametrize("figure", ["utilization", "p99"])
@pytest.mark.parametrize("environment", [run().environment, CROWDED])
@pytest.mark.parametrize(
    ("own", "of_readers", "said"),
    [
        (0.049, 0.19, None),
        (0.051, 0.19, "5.1 % of the time was waiting for a core"),
        (0.049, 0.212, "readers waited for a core 5.3 % of the time"),
    ],
)
def test_a_loop_counts_where_its_ranks_waited_little_for_cores_however_many_there_are(
    figure, environment, own, of_readers, said
):
    waits = {"core_wait_seconds": spread(2 * own), "reader_core_wait_seconds": spread(2 * of_readers)}
    later = epoch(1, loop_seconds=2.0, **waits)
    first = replace(later, epoch=0, core_wait_seconds=spread(1.0))
    phase = LoopPhase("train", "train", 1.0, epochs=(first, later), readers=4)
    assert reason(figure, (phase,), environment=environment) == said


@pytest.mark.parametrize("figure", ["utilization", "p99"])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"null": True}, "nothing was read"),
        ({"verify": True}, "what was read was checked"),
        ({"environment": CROWDED}, "more ranks than cores"),
    ],
)
def test_a_run_that_says_nothing_about_storage_misses_nothing(figure, changed, said):
    found = reason(figure, (LoopPhase("train", "train", 1.0, epochs=(epoch(0, core_wait_seconds=None),)),), **changed)
    assert found == said if said is None else said in found


@pytest.mark.parametrize(("share", "judged"), [(0.0099, True), (0.0101, False)])
def test_utilization_counts_for_nothing_where_compute_took_longer_than_asked(share, judged):
    phase = (LoopPhase("train", "train", 1.0, epochs=(epoch(0, oversleep_share=share), epoch(1))),)
    assert (reason("utilization", phase) is None) == judged
    assert reason("p99", phase) is None


@pytest.mark.parametrize(("prefetch", "judged"), [(14, True), (15, False)])
def test_utilization_counts_for_nothing_where_all_later_steps_are_read_during_the_first(prefetch, judged):
    phase = (LoopPhase("train", "train", 1.0, epochs=(epoch(0), epoch(1, steps=3)), prefetch=prefetch),)
    assert (reason("utilization", phase) is None) == judged
    assert reason("p99", phase) is None


def test_without_io_there_is_no_bandwidth():
    result = result_of(expecting("throughput", "at most", 1e15, "B/s"), epoch(0, null=True))
    assert (result.measured, result.held) == (None, False)
