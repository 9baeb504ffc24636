"""The search for the most accelerators, and what its points come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.measure.results.run_summary import Answer, Spread
from dliosim.measure.results.verdicts import CANNOT_SAY, FEEDS, NO_STORAGE, STARVES, TOO_CLOSE
from dliosim.measure.saturation import Point, Saturation, find_most, is_decided, make_saturation

GOAL = 0.9


def answer(mean: float, half: float = 0.01, verdict: str = "") -> Answer:
    alone = Spread(mean, mean - half, mean + half)
    verdict = verdict or (FEEDS if alone.low >= GOAL else STARVES if alone.high < GOAL else TOO_CLOSE)
    return Answer("train", verdict, (), "device", True, (1,), GOAL, alone, alone, None, None, ())


def search(busy: dict[int, float], most: int, ceiling: int | None = None, half: float = 0.01) -> Saturation:
    points = [Point(number, 1, answer(mean, half), 1) for number, mean in busy.items()]
    fed = max((number for number, mean in busy.items() if mean >= GOAL), default=0)
    return make_saturation(points, most, fed if ceiling is None else ceiling, {})


@given(st.integers(0, 3000), st.integers(1, 3000))
def test_the_greatest_number_is_found_within_two_per_cent(true: int, most: int) -> None:
    asked: list[int] = []

    def reaches(number: int) -> bool:
        asked.append(number)
        return number <= true

    found, right = find_most(reaches, most), min(true, most)
    assert found <= right <= found + max(1, found * 0.02) - (found < 50)
    assert max(asked) <= most
    assert len(asked) == len(set(asked)) <= 2 * 12


def test_the_number_lies_between_those_that_are_sure() -> None:
    found = search({1: 0.99, 2: 0.99, 4: 0.98, 8: 0.905, 12: 0.86, 10: 0.895, 9: 0.9}, 16)
    assert (found.most, found.low, found.high, found.limit) == (9, 4, 11, "storage")
    assert found.main_point.accelerators == 9
    assert [one.accelerators for one in found.points] == [1, 2, 4, 8, 9, 10, 12]


def test_numbers_that_are_too_close_to_say_are_within_the_interval() -> None:
    found = search({1: 0.99, 2: 0.98, 4: 0.895, 3: 0.95}, 4)
    assert (found.most, found.low, found.high, found.limit) == (3, 3, 4, "storage")
    assert found.doubt is None


@pytest.mark.parametrize("number", [2, 4])
def test_a_number_without_a_verdict_next_to_the_answer_is_a_doubt(number: int) -> None:
    busy = {1: 0.99, 2: 0.97, 4: 0.5}
    points = [Point(at, 1, answer(mean, verdict=CANNOT_SAY if at == number else ""), 1) for at, mean in busy.items()]
    found = make_saturation(points, 4, 4, {})
    assert (found.most, found.low, found.high) == ((2, 1, 3) if number == 2 else (2, 2, 4))
    assert found.doubt is not None


def test_all_ranks_that_were_started_are_no_limit_of_storage() -> None:
    found = search({1: 0.99, 2: 0.99, 3: 0.98}, 3)
    assert (found.most, found.low, found.high, found.limit) == (3, 3, 3, "ranks")


def test_not_even_one_is_an_answer() -> None:
    found = search({1: 0.2}, 4, ceiling=1)
    assert (found.most, found.low, found.high, found.limit) == (0, 0, 0, "storage")
    assert found.main_point.accelerators == 1


@pytest.mark.parametrize(("ceiling", "shown"), [(3, 2), (0, 1)])
def test_the_ceiling_of_the_ranks_comes_before_the_limit_of_storage(ceiling: int, shown: int) -> None:
    found = search({1: 0.99, 2: 0.99, 4: 0.95, 8: 0.5, 5: 0.8}, 8, ceiling=ceiling)
    assert (found.most, found.low, found.high, found.limit) == (ceiling, ceiling, ceiling, "client")
    assert found.main_point.accelerators == shown


@pytest.mark.parametrize(
    ("verdict", "mean", "decided"),
    [
        (FEEDS, 0.99, True),
        (STARVES, 0.5, True),
        (TOO_CLOSE, 0.9, False),
        (CANNOT_SAY, 0.5, False),
        (NO_STORAGE, 0.99, True),
        (NO_STORAGE, 0.5, True),
        (NO_STORAGE, 0.9, False),
    ],
)
def test_passes_go_on_until_the_goal_is_outside_the_interval(verdict: str, mean: float, decided: bool) -> None:
    assert is_decided(answer(mean, verdict=verdict)) is decided
