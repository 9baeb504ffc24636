"""Doubts about figures, in one place: they cause the mark `?` and the warnings."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.figures import aggregate
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, Reason, RunSummary, select_epochs

#: Above this oversleep, utilization depends more on the machine's scheduler than on storage.
OVERSLEEP_LIMIT = 0.01

#: The page cache reads whole pages: around a sample, on average one page more than was asked.
PAGE = 4096

#: Below this free share of memory, and above this ratio of the bytes of the device to those asked, memory is short: it
#: keeps neither what is read ahead nor the programs' own pages, and they are read again.
_LITTLE, _FAR_ABOVE = 0.1, 1.2

#: A verdict takes at least this time of steps, in s, and this number of steps after the first ones: docs/answer.md has
#: how much shorter epochs differ from run to run.
LEAST_SECONDS, LEAST_STEPS = 0.5, 10

#: Above this share of a loop's time, waiting for cores decides the figures; usual values: docs/evidence/benchmarks.md.
CORE_WAIT_LIMIT = 0.05


def doubt_of_times(run: RunSummary, phases: Sequence[LoopPhase], answer: Answer | None) -> Reason | None:
    """Return why the times of a loop, in the epochs that count, say nothing about storage; None if they do."""
    if run.null:
        return Reason("nothing_read")
    return doubt_of_core_waits(run.environment, phases, answer) or doubt_of_checks(run)


def doubt_of_checks(run: RunSummary) -> Reason | None:
    """Return the doubt that steps checked the bytes that they read; None if they did not."""
    return Reason("read_checked") if run.verify else None


def find_core_wait(environment: Environment, epochs: Sequence[EpochSummary], readers: int) -> tuple[float, Reason]:
    """Return the share of the epochs' time that ranks, or each of a rank's `readers`, waited for a core; and why.

    The share is 1 if the kernel does not count these waits and ranks outnumber cores.
    """
    ranks_share = aggregate.core_wait_share(epochs)
    if ranks_share is None:
        return float(environment.is_oversubscribed), Reason("core_wait_uncounted")
    share = max(ranks_share, aggregate.reader_core_wait_share(epochs, readers) or 0.0)
    by_readers = share > ranks_share
    wait = Reason("core_wait", {"share": share, "by_readers": by_readers, "by_ranks": not by_readers})
    if environment.was_busy:
        wait = wait.extend(load=environment.load_average, cores=environment.cores_per_node)
    return share, wait


def doubt_of_core_waits(environment: Environment, phases: Sequence[LoopPhase], answer: Answer | None) -> Reason | None:
    """Return how much of the loop time ranks or readers waited for cores; None if it does not matter.

    Over the epochs that count for the answer. If no kernel counts it, more ranks than cores is the doubt.
    """
    epochs = select_epochs([epoch for phase in phases for epoch in phase.epochs], answer)
    waited, reason = find_core_wait(environment, epochs, max(phase.readers for phase in phases))
    return reason if waited >= CORE_WAIT_LIMIT else None


def doubt_of_utilization(run: RunSummary, phases: Sequence[LoopPhase], answer: Answer | None) -> Reason | None:
    """Return why the utilization of these phases of a loop cannot be trusted; None if it can."""
    return doubt_of_times(run, phases, answer) or doubt_of_oversleep(phases) or doubt_of_prefetch(phases)


def doubt_of_oversleep(phases: Sequence[LoopPhase]) -> Reason | None:
    """Return the doubt that compute took longer than asked, by the worst epoch; None if it does not matter."""
    worst = max((epoch.oversleep_share or 0.0 for phase in phases for epoch in phase.epochs), default=0.0)
    return Reason("late_wakeups", {"share": worst}) if worst > OVERSLEEP_LIMIT else None


def doubt_of_memory(
    environment: Environment, phases: Sequence[LoopPhase], epochs: Sequence[EpochSummary]
) -> Reason | None:
    """Return the doubt that memory was short, so that the device read pages again (programs', too); None if it was not.

    Memory is short if almost none was free in these runs of a loop, and the device gave far more than the whole pages
    of these epochs' samples.
    """
    whole = environment.whole_memory_per_node
    free = min((one.free_memory for one in phases if one.free_memory is not None), default=whole)
    if not free < _LITTLE * whole or any(one.device_bytes is None for one in epochs):
        return None
    given = sum(one.device_bytes or 0 for one in epochs)
    asked = sum(one.unique_bytes for one in epochs)
    if given <= _FAR_ABOVE * (asked + PAGE * sum(one.samples for one in epochs)):
        return None
    return Reason("memory_short", {"free": free, "whole": whole, "read": given, "asked": asked})


def doubt_of_length(epochs: Sequence[EpochSummary]) -> Reason | None:
    """Return the doubt that these epochs measured too little; None if they suffice for a verdict."""
    steps, taken = count_steps(epochs)
    if taken >= LEAST_SECONDS and steps >= LEAST_STEPS:
        return None
    return Reason("too_short", {"steps": steps, "time": taken})


def count_steps(epochs: Sequence[EpochSummary]) -> tuple[int, float]:
    """Return the number of steps after the first ones of epochs, and their time, in s: storage's if it is known."""
    times = (one.loop_seconds if one.storage_utilization is None else one.storage_step_seconds for one in epochs)
    return sum(max(one.steps - 1, 0) for one in epochs), sum(times)


def doubt_of_prefetch(phases: Sequence[LoopPhase]) -> Reason | None:
    """Return the doubt that all steps after the first were read during the first step's wait; None if they were not.

    Utilization is then too high.
    """
    for phase in phases:
        steps = max((epoch.steps for epoch in phase.epochs if epoch.utilization is not None), default=0)
        if steps and steps - 1 <= phase.prefetch:
            return Reason("all_prefetched", {"steps": steps - 1, "batches": phase.prefetch})
    return None
