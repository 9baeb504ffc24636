"""Intervals of means over epochs, and the rule that judges a bound."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dliosim.measure.answers.intervals import Outcome, judge_bound, mean_interval
from dliosim.measure.results.run_summary import Reason, Spread

shares = st.floats(0.01, 1.0)

EXCUSE = Reason("late_compute", {"share": 0.1})


def half(values: list[float], errors: list[float]) -> float:
    found = mean_interval(values, errors)
    assert found.low == pytest.approx(max(found.mean - (found.high - found.mean), 0.0))
    return found.high - found.mean


def test_one_epoch_has_the_scatter_of_its_steps() -> None:
    assert half([0.8], [0.01]) == pytest.approx(0.02)
    assert mean_interval([0.8], [0.0]) == Spread(0.8, 0.8, 0.8)


def test_epochs_that_differ_by_more_than_their_steps_explain_are_judged_by_student() -> None:
    # Standard deviation 0.1, three epochs: 4.303 * 0.1 / sqrt(3).
    assert half([0.7, 0.8, 0.9], [0.0] * 3) == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=1e-3)


def test_epochs_that_differ_by_what_their_steps_explain_narrow_the_interval() -> None:
    assert half([0.79, 0.81], [0.02, 0.02]) == pytest.approx(2 * 0.02 / math.sqrt(2))


@given(st.lists(shares, min_size=2, max_size=20), st.floats(0.0, 0.1))
@example([0.5, 1, 1, 1, 1, 1, 0.5, 0.5], 0.0)
@example([abs(10 - number) / 10 for number in range(21)], 0.0)  # its repetition is smoother than itself
def test_the_same_scatter_in_twice_the_epochs_has_a_narrower_interval(values: list[float], error: float) -> None:
    once, twice = half(values, [error] * len(values)), half(values * 2, [error] * len(values) * 2)
    assert twice <= once
    assert twice < once or once < 1e-6


outcomes = st.builds(lambda mean, by: Spread(mean, mean - by, mean + by), shares, st.floats(0.0, 0.5))


@given(outcomes, shares, st.floats(0.0, 1.0), st.booleans())
def test_a_bound_is_decided_only_outside_of_the_interval(
    spread: Spread, bound: float, excused: float, is_least: bool
) -> None:
    outcome, doubt = judge_bound(spread, bound, is_least, excused, EXCUSE)
    assert bool(doubt) == (outcome is Outcome.UNDECIDED)
    if spread.low < bound < spread.high:
        assert outcome is Outcome.UNDECIDED
    if outcome is Outcome.HELD:
        assert spread.mean >= bound if is_least else spread.mean <= bound
    if outcome is Outcome.MISSED:
        assert excused < 0.5 and (spread.mean < bound if is_least else spread.mean > bound)


@given(outcomes, shares, st.floats(0.0, 0.49))
def test_what_was_taken_from_storage_excuses_no_more_than_that(spread: Spread, bound: float, excused: float) -> None:
    assume(spread.high < bound)
    outcome, doubt = judge_bound(spread, bound, True, excused, EXCUSE)
    assert (outcome is Outcome.MISSED) == (spread.high < bound * (1 - excused))
    may_explain = spread.mean >= bound * (1 - excused)
    assert doubt in (None, EXCUSE.extend(may_explain=True) if may_explain else EXCUSE.extend(may_hide=True))
    assert judge_bound(Spread(2.0, 2.0, 2.0), 1.0, False, 0.4, EXCUSE)[0] is Outcome.MISSED
    assert judge_bound(Spread(2.0, 2.0, 2.0), 1.0, False, 0.5, EXCUSE)[0] is Outcome.UNDECIDED


def test_epochs_that_change_in_the_middle_of_a_run_decide_nothing_about_what_lies_between() -> None:
    # Something else began to use the storage after the sixth epoch.
    disturbed = [0.97] * 6 + [0.5] * 19
    found = mean_interval(disturbed, [0.01] * 25)
    assert found.low < 0.5 and found.high > 0.75
    # The same values in another order are chance.
    mixed = [0.97 if number % 4 == 0 and number < 24 else 0.5 for number in range(25)]
    assert half(mixed, [0.01] * 25) < half(disturbed, [0.01] * 25) / 2


def test_neighbours_that_are_alike_count_as_fewer_epochs_by_their_correlation() -> None:
    # Deviations -1 -1 1 1 -1 -1 1 1: 3 - 4 + ... = 1 of 8, so 8 * (1 - 1/8) / (1 + 1/8) = 6.22 independent epochs.
    values = [0.4, 0.4, 0.6, 0.6, 0.4, 0.4, 0.6, 0.6]
    t = 0.78 * 2.571 + 0.22 * 2.447  # 5.22 degrees of freedom
    assert half(values, [0.0] * 8) == pytest.approx(t * statistics.stdev(values) / math.sqrt(56 / 9), rel=1e-3)


def test_a_change_in_the_middle_widens_the_interval_without_a_jump_at_any_number_of_epochs() -> None:
    for many in range(6, 41):
        changed = [0.9] * (many // 2) + [0.5] * (many - many // 2)
        assert half(changed, [0.0] * many) > 1.2 * 1.96 * statistics.stdev(changed) / math.sqrt(many)
        assert 0.3 < half(changed, [0.0] * many) < 0.36  # as 4 independent epochs, however many there are
