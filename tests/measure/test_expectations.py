from dataclasses import replace

import pytest

from dliosim.measure.expectations import evaluate
from dliosim.measure.figures import PhaseSummary
from dliosim.measure.histogram import Histogram
from dliosim.model import Expectation
from tests.report.sample import epoch

MS = 1_000_000


def expecting(figure, bound, value, unit, loop="train"):
    return Expectation(figure, loop, bound, value, unit, f"expect {figure} {bound} {value}")


def result_of(expectation, *epochs, name="train"):
    (result,) = evaluate([expectation], [PhaseSummary(name, "train", 1.0, epochs=epochs)])
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
