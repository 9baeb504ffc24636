"""Several jobs: what changed from one to a second, by its cost, and a row for each of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dliosim.analyze.figures.job import Figures
from dliosim.analyze.insights.rules import Finding, is_costly

#: Shares of the longer job's time, and of a figure, below which a change is none.
_LEAST_TIME: Final = 0.005
_LEAST_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of two jobs."""

    what: str  #: the figure
    unit: str  #: s, B, a share (share) or a number (count)
    first: float  #: that of the first job
    second: float  #: that of the second job

    @property
    def cost(self) -> float:
        """The second job's figure, less the first one's."""
        return self.second - self.first

    @property
    def share(self) -> float:
        """The change as a share of the larger figure; that of a share in points, as half of random reads go ahead."""
        if self.unit == "share":
            return abs(self.cost)
        largest = max(abs(self.first), abs(self.second))
        return abs(self.cost) / largest if largest else 0.0


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes between two jobs."""

    times: tuple[Change, ...]  #: times of a mean rank, s; the largest change first
    others: tuple[Change, ...]  #: figures without a cost in time, the largest relative change first
    same: tuple[str, ...]  #: names of such figures that did not change
    appeared: tuple[Finding, ...]  #: insights that the second job alone has
    gone: tuple[Finding, ...]  #: insights that the first job alone has


def find_changes(first: Figures, second: Figures, before: Sequence[Finding], after: Sequence[Finding]) -> Changes:
    """Return what changed from a job to a second one, given their insights."""
    least = _LEAST_TIME * max(first.job.seconds, second.job.seconds)
    times = [_times(one) for one in (first, second)]
    if not (first.split.has_compute and second.split.has_compute):
        # A tracer that sees no compute is no job without compute.
        times = [{what: time for what, time in each.items() if "compute" not in what} for each in times]
    costs = [Change(what, "s", *(each.get(what, 0.0) for each in times)) for what in {**times[0], **times[1]}]
    known, later = _other_figures(first), _other_figures(second)
    others = [Change(what, unit, value, later[what][1]) for what, (unit, value) in known.items() if what in later]
    names = [{one.insight.name for one in found if one.is_met} for found in (before, after)]
    unknown = {one.insight.name for one in after if one.found is None}
    return Changes(
        tuple(sorted((one for one in costs if abs(one.cost) > least), key=lambda one: -abs(one.cost))),
        tuple(sorted((one for one in others if one.share > _LEAST_SHARE), key=lambda one: -one.share)),
        tuple(one.what for one in others if one.share <= _LEAST_SHARE),
        tuple(one for one in after if one.is_met and one.insight.name not in names[0]),
        tuple(one for one in before if one.is_met and one.insight.name not in names[1] | unknown),
    )


def _times(figures: Figures) -> dict[str, float]:
    """Return all times of a mean rank by what they are."""
    ranks = max(len(figures.ranks), 1)
    split = {
        "whole job": figures.job.seconds,
        "I/O": figures.split.ranks["io"].mean,
        "I/O without compute": figures.split.ranks["unoverlapped_io"].mean,
        "compute": figures.split.ranks["compute"].mean,
    }
    functions = {f"{one.name} ({one.layer})": one.seconds / ranks for one in figures.functions if one.kind != "compute"}
    files = {f"files {one.purpose} {one.suffix}".strip(): one.seconds / ranks for one in figures.files}
    cost = {"waits for the straggler": figures.straggler.cost} if figures.straggler else {}
    return {**split, **functions, **files, **cost}


def _other_figures(figures: Figures) -> dict[str, tuple[str, float]]:
    """Return figures without a cost in time, as far as the trace says them."""
    found: dict[str, tuple[str, float | None]] = {
        "ranks": ("count", len(figures.ranks)),
        "operations": ("count", figures.job.operations),
        "files": ("count", figures.access.files),
    }
    for side, one in (("read", figures.access.read), ("write", figures.access.write)):
        found |= {
            f"{side}s": ("count", one.count),
            f"bytes of {side}s": ("B", one.bytes if one.mean is not None or not one.count else None),
            f"mean {side}": ("B", one.mean if one.count else 0.0),
            f"{side}s below 1 MiB": ("share", _share(one.small, one.sized, one.count)),
            f"sequential {side}s": ("share", _share(one.sequential, one.placed, one.count)),
        }
    return {what: (unit, value) for what, (unit, value) in found.items() if value is not None}


def _share(some: int, known: int, calls: int) -> float | None:
    """Return the share of calls about which the trace says something; 0 without calls."""
    return some / known if known else None if calls else 0.0


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One job of several."""

    name: str  #: what the job is called
    seconds: float  #: length of the job
    ranks: int  #: ranks, or processes if no ranks are known
    bytes: int  #: bytes read and written
    time_by_slowest: float  #: I/O time of the slowest rank, s
    perf_by_slowest: float  #: bytes / that time
    insight: str  #: name of the most costly insight that is met; empty if none costs 1 % of the job
    incomplete: bool  #: True if events are missing


def list_fleet(names: Sequence[str], jobs: Sequence[tuple[Figures, Sequence[Finding]]]) -> tuple[FleetRow, ...]:
    """Return a row for each job, those with the longest I/O first."""
    rows = []
    for name, (figures, findings) in zip(names, jobs, strict=True):
        job, moved = figures.job, sum(one.read + one.written for one in figures.ranks)
        perf = moved / job.time_by_slowest if job.time_by_slowest else 0.0
        met = next((one.insight.name for one in findings if one.is_met and is_costly(one, figures)), "")
        about = name, job.seconds, len(figures.ranks), moved
        rows.append(FleetRow(*about, job.time_by_slowest, perf, met, bool(job.incomplete)))
    return tuple(sorted(rows, key=lambda one: -one.time_by_slowest))
