import math
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.measure.figures import ExpectationResult, PhaseSummary
from dliosim.measure.histogram import LIMIT_NS, Histogram
from dliosim.report.header import cache_state
from dliosim.report.tables import expectation_line, run_report
from tests.report.sample import epoch, run, spread

GOLDEN = Path(__file__).parent / "run.txt"


def report_of(*epochs, runs=1, **changed):
    phases = tuple(PhaseSummary("train", "train", 1.0, epochs=epochs) for _ in range(runs))
    return run_report(run(phases=phases, **changed))


def test_a_run_prints_the_golden_text():
    assert run_report(run()) == GOLDEN.read_text()


def test_nothing_is_wider_than_a_terminal_of_120_columns():
    crowded = epoch(
        0,
        null_seconds=0.1,
        view_seconds=spread(0.1),
        checkpoint_seconds=spread(0.1),
        arrival_wait_seconds=spread(0.1),
    )
    text = report_of(crowded, replace(crowded, epoch=1), replace(crowded, epoch=2))
    assert max(map(len, text.splitlines())) <= 120
    assert max(map(len, run_report(run()).splitlines())) <= 120


def test_utilization_is_marked_and_warned_about_with_more_ranks_than_cores():
    assert "?" not in report_of(epoch(0))
    crowded = replace(run().environment, ranks_per_node=4, cores_per_node=2)
    text = report_of(epoch(0), environment=crowded)
    assert "warning: 4 ranks on 2 cores: utilization (marked ?) is not to be trusted" in text
    assert "48.90?" in report_of(epoch(0, 2.5), environment=crowded)


@pytest.mark.parametrize(("share", "warned"), [(0.0099, False), (0.0101, True)])
def test_utilization_is_marked_where_compute_overshot_by_over_one_per_cent(share, warned):
    text = report_of(epoch(0, oversleep_share=share))
    assert ("longer than asked" in text) == warned
    assert ("?" in text) == warned


def test_a_hint_that_was_dropped_or_changed_is_told_loudly():
    phase = PhaseSummary(
        "train",
        "train",
        1.0,
        epochs=(epoch(0),),
        hints_asked=(("a", "1"), ("b", "2"), ("c", "3")),
        hints_granted=(("a", "1"), ("c", "4")),
    )
    text = run_report(run(phases=(phase,)))
    assert 'train: HINT NOT GRANTED: "b" = "2" was dropped by the MPI library' in text
    assert 'train: HINT NOT GRANTED: "c" = "3" became "4"' in text
    assert '"a" = "1"' not in text


def test_many_epochs_are_abridged():
    lines = report_of(*(epoch(i) for i in range(40))).splitlines()
    numbers = [line.split()[0] for line in lines if line[:1].isdigit() or line.startswith("...")]
    assert numbers[:13] == [*map(str, range(1, 11)), "...", "40", "2..40"]


def test_runs_of_the_same_loop_share_their_tables_and_count_on():
    text = report_of(epoch(0), runs=3)
    assert text.count("train: latencies") == 1
    assert "3 epochs of 16 steps in 3.000 s (3 runs)" in text
    assert "\n2..3 " in text


def test_different_numbers_of_steps_show():
    assert "1 epoch of 15 to 16 steps" in report_of(epoch(0, fewest_steps=15))


def test_a_latency_beyond_the_buckets_is_infinite_and_its_maximum_is_not():
    text = report_of(epoch(0, batch_latency=Histogram([2 * LIMIT_NS])))
    assert "inf" in text
    assert "17592 s" in text


def test_a_run_without_loops_has_no_hashes():
    assert "hash" not in run_report(run(phases=run().phases[:3]))


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "cold: 0 %"), (0.5, "partly warm: 50.0 %"), (1.0, "warm: 100 %"), (0.011, "partly")]
)
def test_cold_and_warm_are_said_with_the_share_that_was_resident(share, text):
    assert cache_state(share).startswith(text)


@pytest.mark.parametrize(
    ("measured", "unit", "held", "text"),
    [
        (0.689, "ratio", False, "MISSED: expect it (68.90 %, over the only epoch)"),
        (0.0312, "s", True, "held: expect it (31.20 ms, over the only epoch)"),
        (1.5e9, "B/s", True, "held: expect it (1.500 GB/s, over the only epoch)"),
        (1234.0, "samples/s", True, "held: expect it (1234 samples/s, over the only epoch)"),
        (None, "s", False, "MISSED: expect it (nothing was measured, over the only epoch)"),
        (math.inf, "s", False, "MISSED: expect it (inf, over the only epoch)"),
    ],
)
def test_an_expectation_says_what_was_measured(measured, unit, held, text):
    assert expectation_line(ExpectationResult("expect it", measured, unit, held, "the only epoch")) == text
