"""What makes figures doubtful, in one place: for the mark `?`, warnings, and `expect`, which then fails no run."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure import aggregate
from dliosim.measure.epoch_summaries import RunSummary
from dliosim.measure.machine import Environment
from dliosim.measure.phase import PhaseSummary
from dliosim.readable import count, percent

#: With more oversleep than this utilization says more about the machine's scheduler than about storage.
OVERSLEEP_LIMIT = 0.01

#: As much of a loop's time waiting for cores (see docs/metrics.md for what runs have that are not in want of any).
CORE_WAIT_LIMIT = 0.05


def doubt_of_times(run: RunSummary, phases: Sequence[PhaseSummary]) -> str:
    """Why no time of these runs of a loop says what storage can do, or an empty text."""
    if run.null:
        return "nothing was read (--null)"
    verified = "what was read was checked within the steps (--verify)" if run.verify else ""
    return doubt_of_core_waits(run.environment, phases) or verified


def doubt_of_core_waits(environment: Environment, phases: Sequence[PhaseSummary]) -> str:
    """How much of the time of a loop its ranks or their readers waited for cores, if that matters.

    Over the epochs after the first. Where no kernel counts it, that there are more ranks than cores.
    """
    epochs = [epoch for phase in phases for epoch in phase.epochs]
    later = epochs[1:] or epochs
    own = aggregate.core_wait_share(later)
    if own is None:
        return "there are more ranks than cores" if environment.is_oversubscribed else ""
    read = aggregate.reader_core_wait_share(later, max(phase.readers for phase in phases)) or 0.0
    if max(own, read) < CORE_WAIT_LIMIT:
        return ""
    if own >= read:
        return f"{percent(own, 2)} of the time was waiting for a core"
    return f"readers waited for a core {percent(read, 2)} of the time"


def doubt_of_utilization(phases: Sequence[PhaseSummary]) -> str:
    """Why the utilization of these runs of a loop is not to be trusted, or an empty text."""
    return doubt_of_oversleep(phases) or doubt_of_prefetch(phases)


def doubt_of_oversleep(phases: Sequence[PhaseSummary]) -> str:
    """How much longer than asked compute took in the worst epoch, if that matters."""
    worst = max((epoch.oversleep_share or 0.0 for phase in phases for epoch in phase.epochs), default=0.0)
    return f"compute took up to {percent(worst, 3)} longer than asked" if worst > OVERSLEEP_LIMIT else ""


def doubt_of_prefetch(phases: Sequence[PhaseSummary]) -> str:
    """That the steps after the first, of which utilization is, were read while the first was waited for."""
    for phase in phases:
        steps = max((epoch.steps for epoch in phase.epochs if epoch.utilization is not None), default=0)
        if steps and steps - 1 <= phase.prefetch:
            after = f"an epoch has {count(steps - 1, 'step')} after the first"
            return f"{after}, and {count(phase.prefetch, 'batch', 'batches')} are read ahead"
    return ""
