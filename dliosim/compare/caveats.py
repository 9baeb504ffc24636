"""Notes of any comparison: how far its figures can be trusted, and where they show nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dliosim.compare.result import Outcome, VariantResult
from dliosim.compare.statistics import FEWEST
from dliosim.measure.machine import MEMORY_KINDS
from dliosim.measure.validity import CORE_WAIT_LIMIT
from dliosim.readable import count, number, percent

#: Largest difference of the shares of bytes in the page cache that count as the same.
_UNLIKE = 0.05

#: Processes that want a core, for each core, from which a machine counts as busy before the comparison.
_BUSY = 0.5

#: Ratio of two depths in flight above which they are not the same.
_UNEQUAL_DEPTH = 1.5

#: Bytes from the device for each distinct byte asked; a pass with less was not cold.
_FROM_DEVICE = 0.9


def few_repetitions_note(outcome: Outcome) -> str:
    """Return the note that there is no verdict, for want of repetitions."""
    return (
        f"No verdict: {count(outcome.repetitions, 'repetition')}, and fewer than {FEWEST} show nothing; the ratios "
        "are what was measured, no more."
    )


def no_difference_note(outcome: Outcome) -> str:
    """Return the note that no difference was shown, and the smallest one that would have been."""
    smallest = max(one.smallest or 1.0 for one in outcome.comparisons)
    return (
        f"No difference shown between any two variants. {outcome.repetitions} repetitions would have shown a "
        f"variant that is {number(smallest, 3)} times as fast as {outcome.measured[0].label}, or one as much slower."
    )


def condition_notes(outcome: Outcome) -> Iterator[str]:
    """Yield all notes on conditions; those on figures that the subject does not have yield nothing."""
    yield from _hint_notes(outcome.measured)
    yield from _striping_notes(outcome.measured)
    yield from _depth_note(outcome)
    yield from _residency_notes(outcome)
    yield from _cache_note(outcome)
    yield from _machine_notes(outcome)
    yield from _missing_sync_note(outcome)


def _hint_notes(measured: Sequence[VariantResult]) -> Iterator[str]:
    """Yield a note for each hint that was not granted as asked."""
    for one in measured:
        granted = dict(one.hints_granted)
        for key, value in one.hints_asked:
            if granted.get(key) != value:
                got = f'became "{granted[key]}"' if key in granted else "was dropped by the MPI library"
                yield f'HINT NOT GRANTED to {one.label}: "{key}" = "{value}" {got}.'


def _striping_notes(measured: Sequence[VariantResult]) -> Iterator[str]:
    """Yield the striping that was granted; variants without a known striping are left out."""
    granted: dict[str, list[str]] = {}
    for one in measured:
        if one.striping:
            granted.setdefault(one.striping, []).append(one.label)
    for striping, labels in granted.items():
        yield f"Striping of {'; '.join(labels)}: {striping}."


def _depth_note(outcome: Outcome) -> Iterator[str]:
    depths = {one.label: depth for one in outcome.measured if (depth := one.median("depth"))}
    if depths and max(depths.values()) > _UNEQUAL_DEPTH * min(depths.values()):
        low, high = min(depths, key=depths.__getitem__), max(depths, key=depths.__getitem__)
        yield (
            f"Not at equal depth: from {number(depths[low], 3)} calls in flight ({low}) to "
            f"{number(depths[high], 3)} ({high})."
        )


def _residency_notes(outcome: Outcome) -> Iterator[str]:
    """Yield the share of bytes in the page cache before passes, and whether it was the same for all variants."""
    shares = [share for one in outcome.measured if (share := one.median("resident_share")) is not None]
    if not shares:
        return
    low, high = min(shares), max(shares)
    span = percent(low, 3) if percent(low, 3) == percent(high, 3) else f"{percent(low, 3)} to {percent(high, 3)}"
    unlike = "; CACHES WERE NOT THE SAME" if high - low > _UNLIKE else ""
    no_effect = "; dropping them had no effect" if outcome.caches == "cold" and low > _UNLIKE else ""
    yield f"Caches {outcome.caches} before each pass: {span} of the bytes were in the page cache{no_effect}{unlike}."


def _cache_note(outcome: Outcome) -> Iterator[str]:
    """Yield a note where passes began cold on a disk, but later epochs were read from the page cache."""
    if outcome.caches != "cold":
        return
    on_disks = [one for one in outcome.measured if not outcome.environment.is_stored_on(one.root, MEMORY_KINDS)]
    shares = [share for one in on_disks if (share := one.median("device_share")) is not None]
    if shares and min(shares) < _FROM_DEVICE:
        yield (
            f"Cold at the start of a pass only: as little as {percent(min(shares), 3)} of the different bytes asked in "
            "an epoch came from the device, and the rest from the page cache. One epoch a pass "
            f"(-D {outcome.what}.epochs=1), or more data than memory, compares storage."
        )


def _machine_notes(outcome: Outcome) -> Iterator[str]:
    """Yield notes on ranks without cores of their own, a machine that was busy, and data in memory."""
    environment = outcome.environment
    ranks, cores = count(environment.ranks_per_node, "rank"), count(environment.cores_per_node, "core")
    shares = [one.median("core_wait_share") for one in outcome.measured]
    waited = [share for share in shares if share is not None and share >= CORE_WAIT_LIMIT]
    if waited:
        span = f"{percent(max(waited), 2)} of the time of a variant was waiting for a core"
        yield f"No finding about storage: {span} ({ranks} on {cores})."
    elif environment.is_oversubscribed and None in shares:
        yield f"No finding about storage: {ranks} on {cores}, and all times include waiting for a core."
    if not environment.is_oversubscribed and environment.load_average > _BUSY * environment.cores_per_node:
        load, cores = number(environment.load_average, 3), count(environment.cores_per_node, "core")
        yield f"The machine was busy before (load average {load} on {cores}): repeat this when it is not."
    memories = [place.root for place in environment.file_systems if place.kind in MEMORY_KINDS]
    if memories:
        yield f"Root {', '.join(memories)} is in memory: this compares methods, and says nothing about storage."


def _missing_sync_note(outcome: Outcome) -> Iterator[str]:
    """Yield a note on saves that end before the data are on storage."""
    in_memory = any(place.kind in MEMORY_KINDS for place in outcome.environment.file_systems)
    if in_memory or not outcome.what.startswith("save "):
        return
    labels = [one.label for one in outcome.measured if not one.median("file_sync_seconds")]
    if labels:
        yield f"Without a sync, so that their stall may end before the data are on storage: {'; '.join(labels)}."
