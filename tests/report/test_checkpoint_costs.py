"""Tables of a run about its checkpoints, other than the table of files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dliosim.measure.figures.epoch_summaries import VerbSummary
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RestorePhase, RunSummary, SavePhase
from dliosim.plan.forecast.checkpoint_interval import Costs, best_interval, compute_waste
from dliosim.report.files.results import results_content
from dliosim.report.run.checkpoint_costs import checkpoint_costs, checkpoint_tables
from tests.report.sample import FLUSHING, epoch, flushed, run, saved, spread

TRAIN = LoopPhase("train", "train", 9.0, epochs=(epoch(0, loop_seconds=60.0),))


def phase(verb: VerbSummary, kind: str = "save", name: str = "c", within: str | None = None) -> PhaseSummary:
    if kind == "restore":
        return RestorePhase(name, kind, verb.seconds, verb=verb)
    return SavePhase(name, kind, verb.seconds, verb=verb, within=within)


def of(*phases: PhaseSummary, mtbf: float | None = 3600.0, **changed: object) -> RunSummary:
    return run(phases=phases, mtbf=mtbf, **changed)


def said(found: RunSummary) -> str:
    return " ".join(checkpoint_tables(found).split())


def test_the_stall_is_the_mean_over_saves_of_the_slowest_rank_and_restores_are_the_restart() -> None:
    times = [phase(saved(seconds)) for seconds in (1.0, 9.0, 2.0)]
    restores = [phase(saved(seconds), "restore") for seconds in (5.0, 3.0, 7.0)]
    (one,) = checkpoint_costs(of(*times, *restores, phase(saved(100.0), "restore", "other")))
    assert (one.checkpoint, one.saves, one.costs, one.interval) == ("c", 3, Costs(3600, 4.0, 5.0), None)


def test_without_restores_a_restart_takes_as_long_as_a_save_until_it_is_complete() -> None:
    (blocking,) = checkpoint_costs(of(phase(saved(2.0))))
    assert blocking.costs == Costs(3600, 2.0, 2.0)
    (with_flush,) = checkpoint_costs(of(phase(flushed(2.0, 8.0))))
    assert with_flush.costs == Costs(3600, 2.0, 10.0, flush=8.0)
    (with_restart,) = checkpoint_costs(of(phase(saved(2.0)), phase(saved(5.0), "restore"), restart_time=60.0))
    assert with_restart.costs == Costs(3600, 2.0, 60.0)


def test_to_wait_for_the_save_before_is_no_part_of_a_stall() -> None:
    waited = replace(flushed(2.0, 8.0), wait_seconds=spread(0.5))
    (one,) = checkpoint_costs(of(phase(waited)))
    assert one.costs.stall == pytest.approx(2.0 - waited.wait_seconds.max)


def test_a_loops_own_interval_is_the_time_of_its_steps_between_saves() -> None:
    saves = [phase(saved(2.0), within="train"), phase(saved(2.0), within="train"), phase(saved(2.0))]
    (one,) = checkpoint_costs(of(TRAIN, *saves))
    assert one.interval == 30.0


def test_restores_out_of_memory_are_no_restart() -> None:
    def restart(*device: int | None) -> float:
        restores = [phase(saved(5.0, device_bytes=each, bytes=100), "restore") for each in device]
        (one,) = checkpoint_costs(of(phase(saved(2.0)), *restores))
        return one.costs.restart

    assert restart(0) == restart(98) == 2.0
    assert restart(100) == restart(None) == restart(0, 100) == 5.0


PART = replace(phase(saved(2.0)), part_of="1/10 of the bytes of m", whole_times=10.0)


def test_times_of_a_part_that_tells_a_rate_are_multiplied_and_called_an_estimate() -> None:
    large = 2**30
    part = replace(PART, verb=saved(2.0, bytes=large))
    found = of(TRAIN, part, phase(saved(5.0), "restore"), phase(saved(2.0), name="all"))
    one, whole = checkpoint_costs(found)
    assert (one.checkpoint, one.costs, one.is_estimate) == ("c", Costs(3600, 20.0, 50.0), True)
    assert (one.rate, one.rank_bytes) == (large / 2, large / 4)
    assert (whole.checkpoint, whole.is_estimate) == ("all", False)
    assert "* c is an estimate from saves of only 1/10 of the bytes of m" in said(found)
    assert [each["is_estimate"] for each in results_content(found)["intervals"]] == [True, False]


@pytest.mark.parametrize("digits", [11, 400, 5000])
def test_a_scale_that_no_model_has_is_no_error(digits: int) -> None:
    part = replace(PART, part_of=f"1/{'9' * digits} of the bytes of m", whole_times=0.0)
    (one,) = checkpoint_costs(of(part))
    assert one.costs.stall == 0.0


def test_of_a_copy_to_buffers_each_rank_has_its_share_and_all_ranks_write_the_rest() -> None:
    # 4 ranks of 16: all of it is 4 times the bytes, and the same for a rank.
    verb = flushed(2.0, 8.0, bytes=2**30)
    half = replace(phase(verb), part_of="the first 4 of its 16 ranks alone", whole_times=4.0, whole_ranks=16)
    (one,) = checkpoint_costs(of(half))
    assert one.costs == Costs(3600, 2.0, 40.0, flush=32.0)


def test_of_a_part_that_is_too_small_there_is_no_interval_and_it_is_said_what_to_type() -> None:
    found = of(TRAIN, PART, phase(saved(2.0), name="whole"))
    assert [one.checkpoint for one in checkpoint_costs(found)] == ["whole"]
    unknown = "how often to save c is unknown: saves of only 1/10 of the bytes of m, 25 MB per rank, give no rate"
    assert f"{unknown}; `-D m.scale=3` saves more" in said(found)
    assert "is unknown" not in said(of(TRAIN, PART, mtbf=None))


def test_nothing_is_said_about_failures_unless_there_is_an_mtbf_nor_about_a_run_without_io() -> None:
    assert list(checkpoint_costs(of(phase(saved(2.0)), mtbf=None))) == []
    assert list(checkpoint_costs(of(phase(saved(2.0)), null=True))) == []
    assert checkpoint_tables(of(TRAIN, phase(saved(2.0)), null=True)) == ""
    assert "how often" not in said(of(TRAIN, phase(saved(2.0)), mtbf=None))


def test_results_have_the_interval_and_what_is_lost_with_it_and_with_the_loops_own() -> None:
    (content,) = results_content(of(TRAIN, phase(saved(2.0), within="train")))["intervals"]
    costs = Costs(3600, 2.0, 2.0)
    assert content["young_seconds"] == 120
    assert content["best"]["interval_seconds"] == best_interval(costs)
    assert content["best"]["total"] == compute_waste(best_interval(costs), costs).total
    assert content["own"]["interval_seconds"] == 60
    assert content["own"]["rework"] == compute_waste(60, costs).rework
    overhead = results_content(of(TRAIN, phase(saved(2.0), within="train")))["checkpoint_overhead"]
    assert overhead["share"] == overhead["loops"][0]["share"] == 2 / 62


def test_saves_during_the_steps_have_separate_stall_and_flush() -> None:
    waited = replace(flushed(0.5, 2.0), wait_seconds=spread(0.25))
    drained = replace(flushed(0.5, 4.0), drain_seconds=spread(3.0))
    text = said(of(TRAIN, phase(waited, within="train"), phase(drained, within="train"), mtbf=None))
    # Medians over both; 2 x 100 MB by 6 s of flushing.
    assert "saves stall waiting copying flush drain GB/s" in text
    assert "save c 2 500 ms 138 ms 500 ms 3.00 s 1.65 s 0.03333" in text
    assert "partner" not in text
    assert "saves in the background" not in said(of(TRAIN, phase(saved(0.5), within="train"), mtbf=None))


def test_the_share_that_saves_held_is_said_about_each_loop_and_all() -> None:
    alone = said(of(TRAIN, phase(saved(20.0), within="train"), mtbf=None))
    held = (
        "saves held the steps of train for 25.0 % of their time, saves included (20.00 s in 1 save, 60.00 s in steps)"
    )
    assert held in alone
    assert "all loops" not in alone
    pause = PhaseSummary("", "pause", 20.0)
    both = said(of(TRAIN, phase(saved(20.0), within="train"), pause, phase(saved(20.0)), mtbf=None))
    held = "all loops and pauses for 33.3 % of their time, saves included (40.00 s in 2 saves, 80.00 s in steps)"
    assert held in both


def test_what_a_flush_cost_the_steps_during_it_is_said_with_their_numbers() -> None:
    train = replace(TRAIN, epochs=(epoch(0, **FLUSHING),))
    text = said(of(train, phase(flushed(0.5, 2.0), within="train"), mtbf=None))
    assert (
        "steps of train during a save in the background took 1.14 times as long as others "
        "(31 steps of 16.3 ms during saves" in text
    )
    assert "took" not in said(of(TRAIN, phase(flushed(0.5, 2.0), within="train"), mtbf=None))


@pytest.mark.parametrize("seconds", [1e-7, 98_765.4])
def test_no_table_is_wider_than_a_terminal(seconds: float) -> None:
    times = {f"{part}_seconds": spread(seconds) for part in ("stall", "wait", "stage", "flush", "drain", "partner")}
    name = "a_checkpoint_of_a_very_long_name_indeed"
    wide = [phase(saved(seconds, **times), name=name, within="train") for _ in range(3)]
    text = checkpoint_tables(of(TRAIN, *wide, mtbf=1e9, restart_time=seconds))
    assert max(map(len, text.splitlines())) <= 120
