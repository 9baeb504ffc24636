"""Sources of the bytes of epochs, and the epochs that count for the answer about storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dliosim.measure.answers.validity import PAGE
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import MEMORY_KINDS, OWN_CACHE_KINDS, OWN_CACHE_WITH_DIRECT_KINDS, SERVER_KINDS
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Reason, RunSummary, Value

#: Where bytes of an epoch may come from (`Answer.source`): of the sources of a loop the first one counts.
SOURCES = ("device", "unknown", "mixed", "memory", "null", "modelled")

#: From this share of its bytes on, an epoch is the device's; below the other one it is memory's.
_ALL, _NONE = 0.99, 0.01


@dataclass(frozen=True, slots=True)
class CountedEpochs:
    """The epochs of a loop that count for its answer."""

    #: where their bytes came from, as in `Answer.source`
    source: str
    #: True if their bytes are known to have come from storage
    from_storage: bool
    #: epochs that count, from 1 over all runs of the loop
    numbers: tuple[int, ...]
    #: their figures
    epochs: list[EpochSummary]
    #: what has to be known of the source
    reasons: tuple[Reason, ...]


def count_epochs(run: RunSummary, runs: Sequence[LoopPhase]) -> CountedEpochs:
    """Return which epochs of all runs of a loop count: those that came from storage, if there are any."""
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    if run.modelled:
        numbers = tuple(range(1, len(epochs) + 1))
        return CountedEpochs("modelled", True, numbers, epochs, (Reason("modelled", {"name": run.modelled}),))
    in_memory, cold = run.is_stored_on(runs[0], MEMORY_KINDS), find_cold_epochs(runs)
    sources = [epoch_source(epoch, in_memory, number in cold) for number, epoch in enumerate(epochs)]
    source = next(each for each in SOURCES if each in sources)
    counted, from_storage = [number for number, each in enumerate(sources) if each == source], source == "device"
    if source == "unknown":
        counted, from_storage, reasons = _choose_uncounted(run, runs, epochs, counted)
    elif source == "mixed":
        cached = [1 - _device_share(epochs[each], each in cold) for each in counted]
        least = min(cached) if max(cached) - min(cached) >= _NONE else None
        reasons = (Reason("partly_cached", {"least": least, "most": max(cached)}),)
    elif source == "null":
        reasons = (Reason("nothing_read"),)
    elif source == "memory":
        reasons = (_memory_reason(run, runs),)
    else:
        reasons = _server_reasons(run, runs)
    numbers = tuple(number + 1 for number in counted)
    return CountedEpochs(source, from_storage, numbers, [epochs[number] for number in counted], reasons)


def epoch_source(epoch: EpochSummary, in_memory: bool = False, began_cold: bool = False) -> str:
    """Return where the bytes of an epoch came from, as in `Answer.source`.

    `in_memory`: its files are in memory. `began_cold`: nothing was in the page cache when it began; otherwise the
    device must have given whole pages, since parts of pages outside all samples could make up for bytes from memory.
    """
    if epoch.null:
        return "null"
    if in_memory or not epoch.asks_storage:
        return "memory"
    if epoch.device_bytes is None:
        return "unknown"
    return share_source(_device_share(epoch, began_cold))


def _device_share(epoch: EpochSummary, began_cold: bool) -> float:
    return share_of_device(epoch.device_bytes or 0, epoch.unique_bytes, 0 if began_cold else epoch.samples)


def share_of_device(device: int, asked: int, warm_samples: int) -> float:
    """Return the device's share of the bytes asked; above 0.99, its share of the whole pages around `warm_samples`.

    These are the samples of epochs that did not begin cold: parts of pages outside all samples could make up for bytes
    from memory.
    """
    if not asked:  # samples of less than a byte each, in units that are read whole
        return 1.0 if device else 0.0
    share = device / asked
    return share if share < _ALL else min(share, max(device / (asked + PAGE * warm_samples), _NONE))


def share_source(share: float) -> str:
    """Return the source of bytes by the device's share of them."""
    return "device" if share >= _ALL else "memory" if share < _NONE else "mixed"


def _server_reasons(run: RunSummary, runs: Sequence[LoopPhase]) -> tuple[Reason, ...]:
    return (Reason("server"),) if run.is_stored_on(runs[0], SERVER_KINDS) else ()


def find_cold_epochs(runs: Sequence[LoopPhase]) -> list[int]:
    """Return the epochs, from 0 over all runs of a loop, before which none of their bytes was in a page cache."""
    cold: list[int] = []
    first = 0
    for phase in runs:
        is_cold = phase.resident_share is not None and phase.resident_share < _NONE
        if phase.cache == "off" or (is_cold and phase.cold_each_epoch):
            cold += range(first, first + len(phase.epochs))
        elif phase.epochs and is_cold:
            cold.append(first)
        first += len(phase.epochs)
    return cold


def _choose_uncounted(
    run: RunSummary, runs: Sequence[LoopPhase], epochs: Sequence[EpochSummary], numbers: list[int]
) -> tuple[list[int], bool, tuple[Reason, ...]]:
    """Return the epochs that count if the kernel counts no bytes of a device, and what is known instead.

    True: their bytes came from storage. False: they may have come from memory. `numbers` are those not counted.
    """
    uncounted: dict[str, Value] = {"drains": _hides_drain(run, runs[0])}
    if runs[0].cache == "off" and not run.is_stored_on(runs[0], OWN_CACHE_WITH_DIRECT_KINDS):
        return numbers, True, (Reason("uncounted_direct", uncounted), *_server_reasons(run, runs))
    least, memory = min(epochs[each].unique_bytes for each in numbers), run.environment.memory_per_node * run.nodes
    if 0 < memory <= (1 - _ALL) * least:
        small = Reason("uncounted_beyond_memory", {**uncounted, "amount": least})
        return numbers, True, (small, *_server_reasons(run, runs))
    has_own_cache = run.is_stored_on(runs[0], OWN_CACHE_KINDS)
    cold = [] if runs[0].cache == "off" else find_cold_epochs(runs)
    if cold and not has_own_cache:
        return cold, True, (Reason("uncounted_cold", uncounted), *_server_reasons(run, runs))
    unknown = Reason("uncounted", {**uncounted, "amount": least, "memory": memory})
    return numbers, False, (unknown, Reason("own_cache")) if has_own_cache else (unknown,)


def _hides_drain(run: RunSummary, loop: LoopPhase) -> bool:
    """Return True if reads are not counted because a drain read at the same time."""
    others = [epoch for one in run.loops if one.root == loop.root for epoch in one.epochs]
    is_local = not run.is_stored_on(loop, OWN_CACHE_KINDS | SERVER_KINDS)
    counts = is_local or any(epoch.device_bytes is not None for epoch in others)
    return counts and any(save.verb.drain_bytes for save in run.saves)


def _memory_reason(run: RunSummary, runs: Sequence[LoopPhase]) -> Reason:
    if run.is_stored_on(runs[0], MEMORY_KINDS):
        return Reason("memory_file_system")
    if any(epoch.asks_storage for phase in runs for epoch in phase.epochs):
        return Reason("page_cache")
    return Reason("sample_cache" if runs[0].cache == "memory" else "empty_samples")
