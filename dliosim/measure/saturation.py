"""The search for the most accelerators that a storage feeds, and what was measured with each number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dliosim.measure.results.run_summary import Answer
from dliosim.measure.results.verdicts import CANNOT_SAY, FEEDS, NO_STORAGE, STARVES

#: How near a search comes to the most accelerators, as a share of them.
CLOSE = 0.02


@dataclass(frozen=True, slots=True)
class Point:
    """The measurement of a number of accelerators."""

    accelerators: int  #: ranks that ran
    nodes: int  #: nodes that they were on
    answer: Answer  #: answer of the loop
    passes: int  #: times that the loop was run

    @property
    def reaches(self) -> bool:
        """Return whether the mean of the storage-limited utilization reaches the goal."""
        alone = self.answer.storage_utilization
        return alone is not None and alone.mean >= self.answer.goal

    @property
    def is_sure(self) -> bool:
        """Return whether the interval is on one side of the goal, and nothing else casts doubt on it."""
        return self.answer.verdict != CANNOT_SAY and not self.answer.has_goal_within_interval


@dataclass(frozen=True, slots=True)
class Saturation:
    """The most accelerators that a storage feeds."""

    most: int  #: most accelerators that storage feeds and that the ranks can be; 0 if not even one
    low: int  #: most accelerators that are sure to reach the goal
    high: int  #: most accelerators that may reach it: more are sure to miss it, or were not tried
    limit: Literal["storage", "client", "ranks"]  #: what ended the search; `ranks`: no more were started
    points: tuple[Point, ...]  #: all numbers that were tried, by number
    without_io: dict[int, float]  #: utilization of numbers of accelerators that read nothing, with all waits

    @property
    def main_point(self) -> Point:
        """Return the point of the answer, or the one next to it: the client's ceiling may be between two."""
        return next((one for one in reversed(self.points) if one.accelerators <= self.most), self.points[0])

    @property
    def point_above(self) -> Point | None:
        """Return the point with the fewest accelerators above the answer; None if no more were tried."""
        return next((one for one in self.points if one.accelerators > self.most), None)

    @property
    def doubt(self) -> Answer | None:
        """Return the answer next to the most accelerators that has no verdict; None if both have."""
        answers = [one.answer for one in (self.main_point, self.point_above) if one is not None]
        return next((one for one in answers if one.verdict == CANNOT_SAY), None)


def find_most(reaches: Callable[[int], bool], most: int) -> int:
    """Return the greatest number, at most `most`, that reaches a goal; 0 if 1 does not. By doubling, then bisection."""
    low, high = 0, 1
    while reaches(high):
        if high == most:
            return most
        low, high = high, min(2 * high, most)
    while high - low > max(1, low * CLOSE):
        middle = (low + high) // 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low


def is_decided(answer: Answer) -> bool:
    """Return whether more passes would not change an answer: its interval is on one side of the goal."""
    if answer.verdict in (FEEDS, STARVES):
        return True
    alone = answer.storage_utilization
    return answer.verdict == NO_STORAGE and alone is not None and not answer.has_goal_within_interval


def make_saturation(points: Sequence[Point], tried_most: int, ceiling: int, without_io: dict[int, float]) -> Saturation:
    """Return the answer of a search that has measured these points.

    `ceiling` is the most accelerators that the ranks can be, as far as it matters; `without_io` as in `Saturation`.
    """
    points = sorted(points, key=lambda one: one.accelerators)
    fed = max((one.accelerators for one in points if one.reaches), default=0)
    most = min(fed, ceiling)
    sure = [one.accelerators for one in points if one.is_sure and one.reaches]
    missed = [one.accelerators for one in points if one.is_sure and not one.reaches]
    low, high = min(max(sure, default=0), most), max(most, min(missed, default=points[-1].accelerators + 1) - 1)
    limit: Literal["storage", "client", "ranks"] = "ranks" if fed == tried_most else "storage"
    if ceiling < max(fed, 1):
        low, high, limit = most, most, "client"
    return Saturation(most, low, high, limit, tuple(points), without_io)
