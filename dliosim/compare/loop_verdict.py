"""A comparison in sentences: who is fastest and by how much, where it loses, and what must not be overlooked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dliosim.compare.caveats import hints_refused, no_difference, of_machine, residency, striping, too_few
from dliosim.compare.loop_pass import Pass
from dliosim.compare.result import Measured, Outcome, by_block
from dliosim.compare.statistics import FEWEST, LEVEL, compare, judge, shortest, shown_different
from dliosim.measure.machine import DISK_KINDS
from dliosim.readable import number, percent, seconds

_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))

#: Depths in flight that differ by more than this are not the same, and bytes read for each asked are worth a word.
_UNEQUAL_DEPTH, _AMPLIFIED = 1.5, 1.1

#: Bytes from the device for each different byte asked, below which a cold pass was not cold.
_FROM_DEVICE = 0.9


def verdict(outcome: Outcome[Pass]) -> list[str]:
    """Sentences, the most important first; they call variants by their labels."""
    said = list(_fastest(outcome))
    return [*said, *_where_time_went(outcome), *_bytes(outcome), *_two_phase(outcome), *_conditions(outcome)]


def _fastest(outcome: Outcome[Pass]) -> Iterator[str]:
    measured, reference = outcome.measured, outcome.measured[0].label
    if outcome.repetitions < FEWEST:
        yield too_few(outcome)
        return
    times = outcome.times()
    fastest, shown = shown_different(times, outcome.comparisons)
    others = [number for number in range(len(measured)) if number != fastest]
    tied = [number for number in others if (min(fastest, number), max(fastest, number)) not in shown]
    best = measured[fastest]
    against = outcome.comparison_of(fastest)
    if not shown:
        yield no_difference(outcome)
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
        rest = compare(times[:, [fastest, *others]])
        closest = max(one.ratio for one in rest)
        yield f"Every other one is slower; the closest is {number(1 / closest, 3)} times slower."
    yield from _loses(outcome, fastest)


def _loses(outcome: Outcome[Pass], fastest: int) -> Iterator[str]:
    """The percentiles of batch latency at which others wait less than the fastest variant, where that is shown."""
    others = [other for other in range(len(outcome.measured)) if other != fastest]
    lost = False
    for name, share in _PERCENTILES:
        waits = by_block(outcome.measured, lambda one, share=share: _wait(one, share))  # type: ignore[misc]
        medians = np.median(waits, axis=0).tolist()
        judged = judge(np.log(waits), [(fastest, other) for other in others])
        for other, one in zip(others, judged, strict=True):
            if len(_PERCENTILES) * one.p <= LEVEL and medians[other] < medians[fastest]:
                lost = True
                yield (
                    f"It loses at {name} of batch latency: {seconds(medians[fastest] * 1e-9, 3)} against "
                    f"{seconds(medians[other] * 1e-9, 3)} of {outcome.measured[other].label}."
                )
    if not lost:
        yield "No other one is shown to wait less for a batch, at p50, p90, p99 or p99.9."


def _wait(one: Pass, share: float) -> float:
    """A quantile of batch latency in ns, no less than the clock can tell from nothing."""
    return max(one.latency.quantile(share), 1.0)


def _where_time_went(outcome: Outcome[Pass]) -> Iterator[str]:
    """Of the first variant and of the fastest; the table has that of all."""
    chosen = dict.fromkeys((0, shortest(outcome.times())))
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


def _bytes(outcome: Outcome[Pass]) -> Iterator[str]:
    for one in outcome.measured:
        read = one.median(lambda each: each.amplification)
        if read is not None and read > _AMPLIFIED:
            yield f"{one.label} read {number(read, 3)} bytes for each byte asked."


def _two_phase(outcome: Outcome[Pass]) -> Iterator[str]:
    said: dict[str, list[str]] = {}
    for one in outcome.measured:
        if one.two_phase:
            said.setdefault(one.two_phase, []).append(one.label)
    for state, labels in said.items():
        yield f"Two-phase {state}: {'; '.join(labels)}."


def _conditions(outcome: Outcome[Pass]) -> Iterator[str]:
    """What else decides how far the figures can be trusted."""
    yield from _order(outcome.measured)
    yield from hints_refused(outcome.measured)
    yield from striping(outcome.measured)
    depths = {one.label: depth for one in outcome.measured if (depth := one.median(lambda each: each.depth))}
    if depths and max(depths.values()) > _UNEQUAL_DEPTH * min(depths.values()):
        low, high = min(depths, key=depths.__getitem__), max(depths, key=depths.__getitem__)
        yield (
            f"Not at equal depth: from {number(depths[low], 3)} calls in flight ({low}) to "
            f"{number(depths[high], 3)} ({high})."
        )
    yield from residency(outcome)
    yield from _from_cache(outcome)
    yield from of_machine(outcome)


def _from_cache(outcome: Outcome[Pass]) -> Iterator[str]:
    """That what began cold on a disk was read from the page cache all the same, in later epochs."""
    if outcome.caches != "cold":
        return
    on_disks = [one for one in outcome.measured if outcome.environment.lies_on(one.root, DISK_KINDS)]
    shares = [share for one in on_disks if (share := one.median(lambda each: each.device_share)) is not None]
    if shares and min(shares) < _FROM_DEVICE:
        yield (
            f"Cold at the start of a pass only: as little as {percent(min(shares), 3)} of the different bytes asked in "
            "an epoch came from the device, and the rest from the page cache. One epoch a pass "
            f"(-D {outcome.what}.epochs=1), or more data than memory, compares storage."
        )


def _order(measured: Sequence[Measured[Pass]]) -> Iterator[str]:
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
