"""Overhead of checkpoints in loops, for runs with fixed figures."""

from __future__ import annotations

import pytest

from dliosim.measure.results.checkpoint_overhead import StepTimes, flush_step_times, loop_overheads, total_overhead
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import SavePhase
from tests.report.sample import epoch, run, saved, spread

STEPS = LoopPhase("train", "train", 9.0, epochs=(epoch(0, loop_seconds=1.5), epoch(1, loop_seconds=2.5)))


def save(seconds: float, within: str | None = "train", **changed: object) -> PhaseSummary:
    return SavePhase("c", "save", seconds, verb=saved(seconds, **changed), within=within)


def test_a_loops_overhead_is_what_its_saves_held_it_by_that_and_its_steps() -> None:
    other = LoopPhase("other", "train", 9.0, epochs=(epoch(0, loop_seconds=100.0),))
    found = run(phases=(STEPS, save(0.25), save(0.75), other, save(50.0, None)))
    (one,) = loop_overheads(found)
    assert (one.loop, one.saves, one.held_seconds, one.steps_seconds) == ("train", 2, 1.0, 4.0)
    assert one.share == 0.2


def test_the_wall_time_of_saves_and_what_contents_took_are_no_part_of_it() -> None:
    late = save(9.0, stall_seconds=spread(0.0), content_seconds=spread(7.0))
    assert loop_overheads(run(phases=(STEPS, late)))[0].share == 0


def test_all_saves_count_against_all_loops_and_pauses() -> None:
    pause = PhaseSummary("", "pause", 5.0)
    whole = total_overhead(run(phases=(STEPS, save(0.25), pause, save(0.75, None))))
    assert whole is not None
    assert (whole.saves, whole.held_seconds, whole.steps_seconds, whole.share) == (2, 1.0, 9.0, 0.1)
    assert total_overhead(run(phases=(STEPS, pause))) is None
    alone = total_overhead(run(phases=(save(0.0, None),)))
    assert alone is not None and alone.share is None


def test_steps_during_a_flush_are_set_against_the_others_of_all_epochs() -> None:
    some = {"flush_steps": 10, "flush_step_seconds": 0.3, "flush_data_wait_seconds": 0.2}
    more = {"flush_steps": 30, "flush_step_seconds": 0.1, "flush_data_wait_seconds": 0.0}
    others = {"clear_steps": 4, "clear_step_seconds": 0.05, "clear_data_wait_seconds": 0.01}
    both = flush_step_times([epoch(0, **some), epoch(1, **more), epoch(2, **others), epoch(3)])
    assert both is not None
    assert both[0].steps == 40
    assert (both[0].step_seconds, both[0].data_wait_seconds) == pytest.approx((0.15, 0.05))
    assert both[1] == StepTimes(4, 0.05, 0.01)
    assert flush_step_times([epoch(0, **some)]) is None
    assert flush_step_times([epoch(2, **others)]) is None
