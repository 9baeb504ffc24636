"""Many jobs at once: a row for each, by Darshan's figures of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dliosim.analyze.figures import Figures
from dliosim.analyze.insights import Finding, is_costly


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One job of several."""

    name: str  #: what the job is called
    seconds: float  #: length of the job
    ranks: int  #: ranks, or processes where no ranks are known
    bytes: int  #: bytes read and written
    time_by_slowest: float  #: I/O time of the slowest rank, s
    perf_by_slowest: float  #: bytes / that time
    insight: str  #: name of the most costly insight that is met; empty if none costs 1 % of the job
    incomplete: bool  #: True if events are missing


def list_fleet(names: Sequence[str], jobs: Sequence[tuple[Figures, Sequence[Finding]]]) -> tuple[FleetRow, ...]:
    """Return a row for each job, those with the longest I/O first."""
    rows = []
    for name, (figures, findings) in zip(names, jobs, strict=True):
        moved = sum(one.read + one.written for one in figures.ranks)
        slowest = figures.job.time_by_slowest
        met = next((one.insight.name for one in findings if one.is_met and is_costly(one, figures)), "")
        rows.append(
            FleetRow(
                name,
                figures.job.seconds,
                len(figures.ranks),
                moved,
                slowest,
                moved / slowest if slowest else 0.0,
                met,
                bool(figures.job.incomplete),
            )
        )
    return tuple(sorted(rows, key=lambda one: -one.time_by_slowest))
