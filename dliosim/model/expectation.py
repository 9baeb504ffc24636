"""Bounds on figures: the `expect` lines of a pattern, and the figures that they may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

#: Storage-limited utilization that storage has to reach, if no `expect` line gives another.
GOAL: Final = 0.9


class Expectable(NamedTuple):
    """A figure of a loop that an `expect` line may bound."""

    #: what it is
    meaning: str
    #: units of its bounds: `ratio`, `B/s`, `samples/s`, `s`, or the plural of what is counted
    units: tuple[str, ...]
    #: how its bounds are written
    written: str
    #: a bound
    example: str


#: The figures by their names in a pattern. One without a function in `measure.answers.expectations` is the mean over
#: epochs of the field of its name in `measure.epoch_summaries`.
EXPECTABLE: Final = {
    "utilization": Expectable(
        "share of a step in which ranks compute, if they wait for nothing but storage",
        ("ratio",),
        "ratios are written as 90 %",
        "at least 90 %",
    ),
    "throughput": Expectable(
        "bytes or samples of all ranks / the time of the loop",
        ("B/s", "samples/s"),
        "rates are written as 200 MB/s, or 1000 samples/s",
        "at least 1 GB/s",
    ),
    "p99": Expectable(
        "99th percentile of the latency of requests where there are any, else of what a step waited for its data",
        ("s",),
        "times are written as 10 ms, 1.5 s or 2 min",
        "at most 10 ms",
    ),
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """A bound on a figure of one loop."""

    figure: str  #: a name of `EXPECTABLE`
    loop: str  #: name of the loop
    bound: Literal["at least", "at most"]  #: kind of the bound
    value: float  #: bound in `unit`
    unit: str  #: one of the figure's units
    text: str  #: the `expect` line


def goals_of(expectations: Sequence[Expectation]) -> dict[str, float]:
    """Return the utilization that `expect` lines ask for, by loop."""
    return {one.loop: one.value for one in expectations if one.figure == "utilization" and one.bound == "at least"}
