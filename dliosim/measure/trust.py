"""What makes figures doubtful, in one place: for the mark `?`, warnings, and `expect`, which then fails no run."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.figures import RunSummary
from dliosim.measure.phase import PhaseSummary
from dliosim.readable import count, percent

#: With more oversleep than this utilization says more about the machine's scheduler than about storage.
OVERSLEEP_LIMIT = 0.01


def doubt_of_run(run: RunSummary) -> str:
    """Why no time of a run says what storage can do, or an empty text."""
    if run.null:
        return "nothing was read (--null)"
    if run.environment.oversubscribed:
        return "there are more ranks than cores"
    return "what was read was checked within the steps (--verify)" if run.verify else ""


def doubt_of_utilization(phases: Sequence[PhaseSummary]) -> str:
    """Why the utilization of these runs of a loop is not to be trusted, or an empty text."""
    return oversleep(phases) or read_before(phases)


def oversleep(phases: Sequence[PhaseSummary]) -> str:
    """How much longer than asked compute took in the worst epoch, if that matters."""
    worst = max((epoch.oversleep_share or 0.0 for phase in phases for epoch in phase.epochs), default=0.0)
    return f"compute took up to {percent(worst, 3)} longer than asked" if worst > OVERSLEEP_LIMIT else ""


def read_before(phases: Sequence[PhaseSummary]) -> str:
    """That the steps after the first, of which utilization is, were read while the first was waited for."""
    for phase in phases:
        steps = max((epoch.steps for epoch in phase.epochs if epoch.utilization is not None), default=0)
        if steps and steps - 1 <= phase.prefetch:
            after = f"an epoch has {count(steps - 1, 'step')} after the first"
            return f"{after}, and {count(phase.prefetch, 'batch', 'batches')} are read ahead"
    return ""
