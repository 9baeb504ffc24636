"""Notes of any comparison: how far its figures can be trusted, and where they show nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dliosim.compare.result import Outcome, VariantResult
from dliosim.measure.answers.validity import CORE_WAIT_LIMIT
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.readable import count, number, percent

#: Largest difference of the shares of bytes in the page cache that count as the same.
_UNLIKE = 0.05

#: Processes that want a core, for each core, from which a machine counts as busy before the comparison.
_BUSY = 0.5

#: Ratio of two depths in flight above which they are not the same.
_UNEQUAL_DEPTH = 1.5


def condition_notes(outcome: Outcome) -> Iterator[str]:
    """Yield all notes on conditions; those on figures that the subject does not have yield nothing."""
    yield from _hint_notes(outcome.measured)
    yield from _striping_notes(outcome.measured)
    yield from _depth_note(outcome)
    yield from _residency_notes(outcome)
    yield from _machine_notes(outcome)


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
    on_storage = (one for one in outcome.measured if not outcome.environment.is_stored_on(one.root, MEMORY_KINDS))
    shares = [share for one in on_storage if (share := one.median("resident_share")) is not None]
    if not shares:
        return
    low, high = min(shares), max(shares)
    span = percent(low, 3) if percent(low, 3) == percent(high, 3) else f"{percent(low, 3)} to {percent(high, 3)}"
    unlike = "; CACHES WERE NOT THE SAME" if high - low > _UNLIKE else ""
    if outcome.caches == "cold" and low > _UNLIKE:
        yield f"Before each pass the page cache was dropped, and kept {span} of the bytes{unlike}."
    else:
        yield f"Caches {outcome.caches} before each pass: {span} of the bytes were in the page cache{unlike}."


def _machine_notes(outcome: Outcome) -> Iterator[str]:
    """Yield notes on ranks without cores of their own, and a machine that was busy."""
    environment = outcome.environment
    for one in outcome.measured:
        if one.core_wait is not None and one.core_wait >= CORE_WAIT_LIMIT:
            yield f"{percent(one.core_wait, 2)} of the time of {one.label} was waiting for a core."
    if not environment.is_oversubscribed and environment.load_average > _BUSY * environment.cores_per_node:
        load, cores = number(environment.load_average, 3), count(environment.cores_per_node, "core")
        yield f"The machine was busy before (load average {load} on {cores}): repeat this when it is not."
