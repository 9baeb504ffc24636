"""A comparison in sentences: who is fastest and by how much, where it loses, and what must not be overlooked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dliosim.compare.outcome import Measured, Outcome, by_block
from dliosim.compare.rows import Pass
from dliosim.compare.statistics import FEWEST, LEVEL, Comparison, capped, compare, holm, pair_p
from dliosim.measure.figures import MEMORY_KINDS
from dliosim.readable import count, number, percent, seconds

_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))

#: Depths in flight that differ by more than this are not the same, and bytes read for each asked are worth a word.
_UNEQUAL_DEPTH, _AMPLIFIED = 1.5, 1.1

#: Shares of the bytes in the page cache that differ by more are not alike.
_UNLIKE = 0.05

#: Bytes from the device for each byte asked, below which a cold pass was not cold.
_FROM_DEVICE = 0.9

#: Processes that want a core, for each core, before anything has begun.
_BUSY = 0.5


def verdict(outcome: Outcome) -> list[str]:
    """Sentences, the most important first; they call variants by their labels."""
    said = list(_fastest(outcome))
    return [*said, *_where_time_went(outcome), *_bytes(outcome), *_two_phase(outcome), *_conditions(outcome)]


def shown_different(
    times: NDArray[np.float64], comparisons: Sequence[Comparison]
) -> tuple[int, frozenset[tuple[int, int]]]:
    """The fastest variant (by the mean of its log times), and the pairs (lower number first) shown to differ.

    `times` is (blocks, variants), and `comparisons` each variant but the first against the first: those pairs were
    chosen before, and are judged as they are in the table. Which one is fastest is known only afterwards, so all others
    are tested, and Holm's correction is over all pairs.
    """
    logs, _ = capped(np.log(times))
    pairs = list(itertools.combinations(range(logs.shape[1]), 2))
    adjusted, _ = holm([pair_p(logs[:, a] - logs[:, b]) for a, b in pairs])
    shown = {pair for pair, p in zip(pairs, adjusted, strict=True) if p <= LEVEL}
    shown |= {(0, number) for number, one in enumerate(comparisons, 1) if one.verdict in ("faster", "slower")}
    return int(logs.mean(axis=0).argmin()), frozenset(shown)


def _fastest(outcome: Outcome) -> Iterator[str]:
    measured, reference = outcome.measured, outcome.measured[0].label
    if outcome.repetitions < FEWEST:
        yield (
            f"No verdict: {count(outcome.repetitions, 'repetition')}, and fewer than {FEWEST} show nothing; the ratios "
            "are what was measured, no more."
        )
        return
    times = outcome.times()
    fastest, shown = shown_different(times, outcome.comparisons)
    others = [number for number in range(len(measured)) if number != fastest]
    tied = [number for number in others if (min(fastest, number), max(fastest, number)) not in shown]
    best = measured[fastest]
    against = outcome.comparison_of(fastest)
    if not shown:
        smallest = max(one.smallest or 1.0 for one in outcome.comparisons)
        yield (
            f"No difference shown between any two variants. {outcome.repetitions} repetitions would have shown a "
            f"variant that is {number(smallest, 3)} times as fast as {reference}, or one as much slower."
        )
        return
    by = " (the first one)"
    if against is not None and against.low is not None and against.high is not None:
        by = f": {number(against.ratio, 3)} times as fast as {reference}, {number(against.low, 3)} to "
        by += number(against.high, 3)
    if tied:
        alike = "; ".join(measured[one].label for one in tied)
        yield f"Highest rate: {best.label}{by}. Not shown to be slower than it: {alike}."
    else:
        yield f"Fastest: {best.label}{by}."
    if not tied and len(measured) > 2:
        rest = compare(times[:, [fastest, *others]])[0]
        closest = max(one.ratio for one in rest)
        yield f"Every other one is slower; the closest is {number(1 / closest, 3)} times slower."
    yield from _loses(outcome, fastest)


def _loses(outcome: Outcome, fastest: int) -> Iterator[str]:
    """The percentiles of batch latency at which others wait less than the fastest variant, where that is shown."""
    found: list[tuple[str, int, NDArray[np.float64], float]] = []
    for name, share in _PERCENTILES:
        waits = by_block(outcome.measured, lambda one, share=share: _wait(one, share))  # type: ignore[misc]
        logs, _ = capped(np.log(waits))
        for other in range(len(outcome.measured)):
            if other != fastest:
                found.append((name, other, waits, pair_p(logs[:, fastest] - logs[:, other])))
    adjusted, _ = holm([p for *_, p in found])
    lost = False
    for (name, other, waits, _), p in zip(found, adjusted, strict=True):
        mine, theirs = np.median(waits[:, fastest]), np.median(waits[:, other])
        if p <= LEVEL and theirs < mine:
            lost = True
            yield (
                f"It loses at {name} of batch latency: {seconds(float(mine) * 1e-9, 3)} against "
                f"{seconds(float(theirs) * 1e-9, 3)} of {outcome.measured[other].label}."
            )
    if not lost:
        yield "No other one is shown to wait less for a batch, at p50, p90, p99 or p99.9."


def _wait(one: Pass, share: float) -> float:
    """A quantile of batch latency in ns, no less than the clock can tell from nothing."""
    return max(one.latency.quantile(share), 1.0)


def _where_time_went(outcome: Outcome) -> Iterator[str]:
    """Of the first variant and of the fastest; the table has that of all."""
    logs, _ = capped(np.log(outcome.times()))
    chosen = dict.fromkeys((0, int(logs.mean(axis=0).argmin())))
    for one in (outcome.measured[variant] for variant in chosen):
        parts = {
            "data wait": one.share(lambda each: each.data_wait),
            "compute": one.share(lambda each: each.compute),
            "sync wait": one.share(lambda each: each.sync_wait),
            "arrival wait": one.share(lambda each: each.arrival_wait),
            "checkpoints": one.share(lambda each: each.checkpoint),
            "processing": one.share(lambda each: each.processing),
            "tool": one.share(lambda each: each.tool),
        }
        said = ", ".join(f"{part} {percent(share, 3)}" for part, share in parts.items() if share)
        yield f"Time of {one.label}: {said}."


def _bytes(outcome: Outcome) -> Iterator[str]:
    for one in outcome.measured:
        read = one.median(lambda each: each.amplification)
        if read is not None and read > _AMPLIFIED:
            yield f"{one.label} read {number(read, 3)} bytes for each byte asked."


def _two_phase(outcome: Outcome) -> Iterator[str]:
    said: dict[str, list[str]] = {}
    for one in outcome.measured:
        if one.two_phase:
            said.setdefault(one.two_phase, []).append(one.label)
    for state, labels in said.items():
        yield f"Two-phase {state}: {'; '.join(labels)}."


def _conditions(outcome: Outcome) -> Iterator[str]:
    """What else decides how far the figures can be trusted."""
    yield from _order(outcome.measured)
    yield from _refused(outcome.measured)
    yield from _striping(outcome.measured)
    depths = {one.label: depth for one in outcome.measured if (depth := one.median(lambda each: each.depth))}
    if depths and max(depths.values()) > _UNEQUAL_DEPTH * min(depths.values()):
        low, high = min(depths, key=depths.__getitem__), max(depths, key=depths.__getitem__)
        yield (
            f"Not at equal depth: from {number(depths[low], 3)} calls in flight ({low}) to "
            f"{number(depths[high], 3)} ({high})."
        )
    yield from _residency(outcome)
    yield from _from_cache(outcome)
    if outcome.drawn_in:
        passes = outcome.repetitions * len(outcome.measured)
        drawn = f"{len(outcome.drawn_in)} of {passes} (rows.csv marks them)"
        yield f"Passes far off what all others suggest, and drawn in so that they hide nothing: {drawn}."
    environment = outcome.environment
    if environment.oversubscribed:
        ranks, cores = count(environment.ranks_per_node, "rank"), count(environment.cores_per_node, "core")
        yield f"No finding about storage: {ranks} on {cores}, and every time holds the others' turns."
    if not environment.oversubscribed and environment.load_average > _BUSY * environment.cores_per_node:
        load, cores = number(environment.load_average, 3), count(environment.cores_per_node, "core")
        yield f"The machine was busy before (load average {load} on {cores}): repeat this when it is not."
    memories = [place.root for place in environment.file_systems if place.kind in MEMORY_KINDS]
    if memories:
        yield f"Root {', '.join(memories)} lies in memory: this compares methods, and says nothing about storage."


def _refused(measured: Sequence[Measured]) -> Iterator[str]:
    """Hints that were not granted as asked."""
    for one in measured:
        granted = dict(one.hints_granted)
        for key, value in one.hints_asked:
            if granted.get(key) != value:
                got = f'became "{granted[key]}"' if key in granted else "was dropped by the MPI library"
                yield f'HINT NOT GRANTED to {one.label}: "{key}" = "{value}" {got}.'


def _from_cache(outcome: Outcome) -> Iterator[str]:
    """That what began cold was read from the page cache all the same, in later epochs."""
    if outcome.caches != "cold" or any(place.kind in MEMORY_KINDS for place in outcome.environment.file_systems):
        return
    shares = [one.median(lambda each: each.storage_amplification) for one in outcome.measured]
    known = [share for share in shares if share is not None]
    if known and min(known) < _FROM_DEVICE:
        yield (
            f"Cold at the start of a pass only: as little as {percent(min(known), 3)} of the bytes asked came from the "
            f"device, and the rest from the page cache. One epoch a pass (-D {outcome.loop}.epochs=1), `cache off`, or "
            "more data than memory compares storage."
        )


def _striping(measured: Sequence[Measured]) -> Iterator[str]:
    """What was granted of the striping asked for, and that where nothing was read back nothing is known to differ."""
    granted: dict[str, list[str]] = {}
    for one in measured:
        if one.striping:
            granted.setdefault(one.striping, []).append(one.label)
    for striping, labels in granted.items():
        yield f"Striping of {'; '.join(labels)}: {striping}."


def _order(measured: Sequence[Measured]) -> Iterator[str]:
    hashes = [{one.order_hash for one in variant.passes} for variant in measured]
    everything = set().union(*hashes)
    if len(everything) == 1:
        yield f"All variants had the same samples in the same order (order hash {everything.pop():016x})."
        return
    for variant, own in zip(measured, hashes, strict=True):
        if len(own) > 1:
            yield f"WRONG: passes of {variant.label} differ in their samples or their order; please report it."
    first = hashes[0]
    others = [variant.label for variant, own in zip(measured, hashes, strict=True) if own != first]
    yield f"Other samples, or another order, than {measured[0].label}: {', '.join(others)}. That is other work."


def _residency(outcome: Outcome) -> Iterator[str]:
    shares = {
        one.label: share
        for one in outcome.measured
        if (share := one.median(lambda each: each.resident_share)) is not None
    }
    if not shares:
        return
    low, high = min(shares.values()), max(shares.values())
    span = percent(low, 3) if percent(low, 3) == percent(high, 3) else f"{percent(low, 3)} to {percent(high, 3)}"
    unlike = "; CACHES WERE NOT ALIKE" if high - low > _UNLIKE else ""
    vain = "; dropping them had no effect" if outcome.caches == "cold" and low > _UNLIKE else ""
    yield f"Caches {outcome.caches} before each pass: {span} of the bytes were in the page cache{vain}{unlike}."
