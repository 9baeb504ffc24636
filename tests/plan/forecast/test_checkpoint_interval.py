"""The interval between checkpoints: Young's and Daly's estimates, and what is lost with any interval."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.plan.forecast.checkpoint_interval import (
    Costs,
    best_interval,
    compute_waste,
    daly_interval,
    possible_interval,
    young_interval,
)

times = st.floats(1e-6, 1e7)
costs = st.builds(Costs, mtbf=times, stall=st.just(0.0) | times, restart=times, flush=st.just(0.0) | times)


def test_young_and_daly_are_what_their_papers_say() -> None:
    assert young_interval(300, 24 * 3600) == pytest.approx(7200)
    # x = 300 / 172800: sqrt(x) / 3 is 1.39 % of Young's, x / 9 is 0.02 %, and the save itself comes off.
    assert daly_interval(300, 24 * 3600) == pytest.approx(7200 * (1 + 0.041667 / 3 + 0.0017361 / 9) - 300, abs=0.1)
    assert daly_interval(100, 50) == 50
    assert daly_interval(7, 3.4) == 3.4


@given(times, times)
def test_daly_takes_a_little_off_young_and_never_more_than_the_mtbf(stall: float, mtbf: float) -> None:
    assert 0 < daly_interval(stall, mtbf) <= mtbf * (1 + 1e-9)
    assert daly_interval(stall, mtbf) <= young_interval(stall, mtbf)


@pytest.mark.parametrize(("stall", "mtbf"), [(1, 10_000), (60, 14_400), (300, 3600), (600, 1800)])
def test_no_interval_loses_noticeably_less_than_dalys(stall: float, mtbf: float) -> None:
    risk = Costs(mtbf, stall, 120)
    least = min(compute_waste(daly_interval(stall, mtbf) * 1.02**power, risk).total for power in range(-100, 100))
    assert compute_waste(daly_interval(stall, mtbf), risk).total <= least * 1.002


@given(times, costs)
def test_no_possible_interval_loses_less_than_the_best(interval: float, risk: Costs) -> None:
    """Daly's estimate loses at most 0.0001 more than the exact optimum, for any ratio of stall and MTBF."""
    own = possible_interval(interval, risk)
    assert own >= risk.flush
    assert compute_waste(best_interval(risk), risk).total <= compute_waste(own, risk).total + 1e-4


@given(times, costs)
def test_shares_are_shares(interval: float, risk: Costs) -> None:
    found = compute_waste(interval, risk)
    assert min(found.saving, found.rework, found.restart) >= 0
    assert 0 <= found.total <= 1 + 1e-9


def simulated(interval: float, risk: Costs, saves: int) -> tuple[float, float, float]:
    """Shares lost in saving, work done again and restarts, of a job that fails at random and then continues."""
    dice = random.Random(1)
    now = restarting = 0.0
    failure = dice.expovariate(1 / risk.mtbf)
    for _ in range(saves):
        while now + interval + risk.stall > failure:
            now, again = failure, 0.0
            while again < risk.restart + risk.flush:
                failure = now + dice.expovariate(1 / risk.mtbf)
                spent = min(risk.restart + risk.flush, failure - now)
                restarting += min(spent, risk.restart)
                now += spent
                again = spent
        now += interval + risk.stall
    saving = saves * risk.stall / now
    return saving, 1 - saving - restarting / now - saves * interval / now, restarting / now


@pytest.mark.parametrize(
    "risk", [Costs(1000, 30, 100), Costs(1000, 30, 100, flush=200), Costs(100, 20, 10), Costs(500, 0, 50, flush=60)]
)
def test_what_is_lost_is_what_a_job_that_fails_at_random_loses(risk: Costs) -> None:
    found = compute_waste(best_interval(risk), risk)
    expected = simulated(best_interval(risk), risk, 40_000)
    assert (found.saving, found.rework, found.restart) == pytest.approx(expected, abs=0.01)


def test_a_save_in_the_background_comes_no_sooner_than_its_flush_ends() -> None:
    assert best_interval(Costs(3600, 1, 10)) == daly_interval(1, 3600)
    assert best_interval(Costs(3600, 1, 10, flush=50)) == daly_interval(1, 3600)
    assert best_interval(Costs(3600, 1, 10, flush=500)) == 500
    assert best_interval(Costs(3600, 0, 10, flush=5)) == 5


def test_what_lasts_far_longer_than_the_mtbf_loses_everything() -> None:
    assert compute_waste(1e9, Costs(1, 1, 1)).total == 1
    assert not math.isnan(compute_waste(0.0, Costs(1, 0, 1)).total)
