"""Workloads drawn at random do what was planned; scripts/dev/random_workloads.py runs them for as long as one likes."""

from __future__ import annotations

import random
from itertools import count, islice
from pathlib import Path

from tests.examples import ALL
from tests.mpi.drawn_cases import draw_case
from tests.mpi.random_cases import Cases

#: Ranks that the suite has for these; a case on more is left to the script.
MOST = 3


def small_ones(number: int, first: int, place: Path) -> list[int]:
    """Seeds from `first` on, one a case on few ranks."""
    cases = (draw_case(seed, place) for seed in count(first))
    return [case.seed for case in islice((one for one in cases if all(run.ranks <= MOST for run in one.runs)), number)]


def test_what_is_drawn_is_right(tmp_path: Path) -> None:
    """The same ones each time, then others each time: the seed of one that is wrong is said."""
    place = tmp_path / "drawn.dlio"
    seeds = small_ones(2 if ALL else 1, 7, place) + small_ones(1, random.randrange(10**6, 10**9), place)
    cases = Cases(tmp_path / "cases", None, MOST, plainly=0.0)
    try:
        problems = [problem for seed in seeds for problem in cases.attempt(seed).problems]
    finally:
        at_the_end = cases.close()
    assert problems + at_the_end == [], "see scripts/dev/random_workloads.py --only SEED"


def test_a_seed_draws_the_same_case_each_time(tmp_path: Path) -> None:
    assert draw_case(4, tmp_path / "p.dlio") == draw_case(4, tmp_path / "p.dlio")


def test_little_of_what_is_drawn_is_refused(tmp_path: Path) -> None:
    cases = [draw_case(seed, tmp_path / "p.dlio") for seed in range(5)]
    assert sum(one.refused.total() for one in cases) < sum(one.tried for one in cases) / 2
