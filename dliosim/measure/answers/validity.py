"""Doubts about figures, in one place: they give the mark `?` and the warnings."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.figures import aggregate
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, RunSummary, select_epochs
from dliosim.readable import count, number, percent, seconds, size

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


def doubt_of_times(run: RunSummary, phases: Sequence[LoopPhase], answer: Answer | None) -> str:
    """Return why the times of a loop, in the epochs that count, say nothing about storage, or an empty text."""
    if run.null:
        return "nothing was read (--null)"
    verified = "what was read was checked within the steps (--verify)" if run.verify else ""
    return doubt_of_core_waits(run.environment, phases, answer) or verified


def find_core_wait(environment: Environment, epochs: Sequence[EpochSummary], readers: int) -> tuple[float, str]:
    """Return the share of the epochs' time in which ranks, or each of a rank's `readers`, waited for a core; in words.

    1 where no kernel counts it and ranks outnumber cores.
    """
    own = aggregate.core_wait_share(epochs)
    if own is None:
        uncounted = "waiting for a core is not counted here, with more ranks than cores"
        return float(environment.is_oversubscribed), uncounted
    cores = count(environment.cores_per_node, "core")
    load = f" (load average {number(environment.load_average, 2)} on {cores} before)" * environment.was_busy
    read = aggregate.reader_core_wait_share(epochs, readers) or 0.0
    if read > own:
        return read, f"readers waited {percent(read, 2)} of the loop for a core{load}"
    return own, f"{percent(own, 2)} of the loop was waiting for a core{load}"


def doubt_of_core_waits(environment: Environment, phases: Sequence[LoopPhase], answer: Answer | None) -> str:
    """Return how much of the loop time ranks or readers waited for cores, if that matters; else an empty text.

    Over the epochs that count for the answer. Where no kernel counts it, more ranks than cores is the doubt.
    """
    epochs = select_epochs([epoch for phase in phases for epoch in phase.epochs], answer)
    waited, text = find_core_wait(environment, epochs, max(phase.readers for phase in phases))
    return text if waited >= CORE_WAIT_LIMIT else ""


def doubt_of_utilization(run: RunSummary, phases: Sequence[LoopPhase], answer: Answer | None) -> str:
    """Return why the utilization of these phases of a loop cannot be trusted, or an empty text."""
    return doubt_of_times(run, phases, answer) or doubt_of_oversleep(phases) or doubt_of_prefetch(phases)


def doubt_of_oversleep(phases: Sequence[LoopPhase]) -> str:
    """Return how much longer than asked compute took in the worst epoch, if that matters; else an empty text."""
    worst = max((epoch.oversleep_share or 0.0 for phase in phases for epoch in phase.epochs), default=0.0)
    return f"compute took up to {percent(worst, 3)} longer than asked" if worst > OVERSLEEP_LIMIT else ""


def doubt_of_memory(environment: Environment, phases: Sequence[LoopPhase], epochs: Sequence[EpochSummary]) -> str:
    """Return that the device read again what memory had no room for, programs included; else an empty text.

    So it is where next to no memory was free in these runs of a loop, and the device gave far more than the whole pages
    of the samples of these epochs.
    """
    whole = environment.whole_memory_per_node
    free = min((one.free_memory for one in phases if one.free_memory is not None), default=whole)
    if not free < _LITTLE * whole or any(one.device_bytes is None for one in epochs):
        return ""
    given = sum(one.device_bytes or 0 for one in epochs)
    asked = sum(one.unique_bytes for one in epochs)
    if given <= _FAR_ABOVE * (asked + PAGE * sum(one.samples for one in epochs)):
        return ""
    return (
        f"memory is short: {size(free, 2)} of {size(whole, 2)} free, {size(given, 3)} read for {size(asked, 3)} asked"
    )


def doubt_of_length(epochs: Sequence[EpochSummary]) -> str:
    """Return how little was measured in all of these epochs, if it decides nothing; else an empty text."""
    steps, taken = count_steps(epochs)
    if taken >= LEAST_SECONDS and steps >= LEAST_STEPS:
        return ""
    least = f"{LEAST_STEPS} steps and {seconds(LEAST_SECONDS, 2)}"
    return f"{count(steps, 'step')} take {seconds(taken, 2)} if only storage is counted, and a verdict takes {least}"


def count_steps(epochs: Sequence[EpochSummary]) -> tuple[int, float]:
    """Return the number of steps after the first ones of epochs, and their time, in s: storage's where it is known."""
    times = (one.loop_seconds if one.storage_utilization is None else one.storage_step_seconds for one in epochs)
    return sum(max(one.steps - 1, 0) for one in epochs), sum(times)


def doubt_of_prefetch(phases: Sequence[LoopPhase]) -> str:
    """Return why utilization is too high: all steps after the first were read during the first one's wait.

    An empty text where they were not.
    """
    for phase in phases:
        steps = max((epoch.steps for epoch in phase.epochs if epoch.utilization is not None), default=0)
        if steps and steps - 1 <= phase.prefetch:
            after = f"an epoch has {count(steps - 1, 'step')} after the first"
            return f"{after}, and {count(phase.prefetch, 'batch', 'batches')} are read ahead"
    return ""
