"""The verdict on loops in sentences: the fastest variant and its lead, where it loses, and what readers must know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dliosim.compare.caveats import (
    few_repetitions_note,
    hint_notes,
    machine_notes,
    no_difference_note,
    residency_notes,
    striping_notes,
)
from dliosim.compare.loop_pass import LoopPass
from dliosim.compare.result import Outcome, VariantResult, block_figures
from dliosim.compare.statistics import FEWEST, LEVEL, compare_variants, find_differences, find_fastest, judge_pairs
from dliosim.measure.machine import DISK_KINDS
from dliosim.readable import number, percent, seconds

_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))

#: Ratio of two depths in flight above which they are not the same; bytes read for each byte asked that are named.
_UNEQUAL_DEPTH, _AMPLIFIED = 1.5, 1.1

#: Bytes from the device for each distinct byte asked; a pass with less was not cold.
_FROM_DEVICE = 0.9


def loop_verdict(outcome: Outcome[LoopPass]) -> list[str]:
    """Return sentences, the most important first; they call variants by their labels."""
    sentences = list(_fastest_variant(outcome))
    return [
        *sentences,
        *_time_shares(outcome),
        *_read_amplification(outcome),
        *_two_phase_notes(outcome),
        *_conditions(outcome),
    ]


def _fastest_variant(outcome: Outcome[LoopPass]) -> Iterator[str]:
    measured, reference = outcome.measured, outcome.measured[0].label
    if outcome.repetitions < FEWEST:
        yield few_repetitions_note(outcome)
        return
    times = outcome.times()
    fastest, shown = find_differences(times, outcome.comparisons)
    others = [number for number in range(len(measured)) if number != fastest]
    tied = [number for number in others if (min(fastest, number), max(fastest, number)) not in shown]
    best = measured[fastest]
    against = outcome.comparison_of(fastest)
    if not shown:
        yield no_difference_note(outcome)
        return
    by = " (the first one)"
    if against is not None and against.low is not None and against.high is not None:
        by = f": {number(against.ratio, 3)} times as fast as {reference}, {number(against.low, 3)} to "
        by += number(against.high, 3)
    if tied:
        tied_labels = "; ".join(measured[one].label for one in tied)
        yield f"Highest rate: {best.label}{by}. Not shown to be slower than it: {tied_labels}."
    else:
        yield f"Fastest: {best.label}{by}."
    if not tied and len(measured) > 2:
        rest = compare_variants(times[:, [fastest, *others]])
        closest = max(one.ratio for one in rest)
        yield f"Every other one is slower; the closest is {number(1 / closest, 3)} times slower."
    yield from _latency_losses(outcome, fastest)


def _latency_losses(outcome: Outcome[LoopPass], fastest: int) -> Iterator[str]:
    """Yield the percentiles of batch latency at which others are shown to wait less than the fastest variant."""
    others = [other for other in range(len(outcome.measured)) if other != fastest]
    lost = False
    for name, share in _PERCENTILES:
        waits = block_figures(outcome.measured, lambda one, share=share: _latency_quantile(one, share))  # type: ignore[misc]
        medians = np.median(waits, axis=0).tolist()
        judged = judge_pairs(np.log(waits), [(fastest, other) for other in others])
        for other, one in zip(others, judged, strict=True):
            if len(_PERCENTILES) * one.p <= LEVEL and medians[other] < medians[fastest]:
                lost = True
                yield (
                    f"It loses at {name} of batch latency: {seconds(medians[fastest] * 1e-9, 3)} against "
                    f"{seconds(medians[other] * 1e-9, 3)} of {outcome.measured[other].label}."
                )
    if not lost:
        yield "No other one is shown to wait less for a batch, at p50, p90, p99 or p99.9."


def _latency_quantile(one: LoopPass, share: float) -> float:
    """Return a quantile of batch latency in ns, at least the clock's resolution."""
    return max(one.latency.quantile(share), 1.0)


def _time_shares(outcome: Outcome[LoopPass]) -> Iterator[str]:
    """Yield the shares of time of the first variant and of the fastest; the table has those of all."""
    chosen = dict.fromkeys((0, find_fastest(outcome.times())))
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
        sentences = ", ".join(f"{part} {percent(share, 3)}" for part, share in parts.items() if share)
        yield f"Time of {one.label}: {sentences}."


def _read_amplification(outcome: Outcome[LoopPass]) -> Iterator[str]:
    for one in outcome.measured:
        read = one.median(lambda each: each.amplification)
        if read is not None and read > _AMPLIFIED:
            yield f"{one.label} read {number(read, 3)} bytes for each byte asked."


def _two_phase_notes(outcome: Outcome[LoopPass]) -> Iterator[str]:
    sentences: dict[str, list[str]] = {}
    for one in outcome.measured:
        if one.two_phase:
            sentences.setdefault(one.two_phase, []).append(one.label)
    for state, labels in sentences.items():
        yield f"Two-phase {state}: {'; '.join(labels)}."


def _conditions(outcome: Outcome[LoopPass]) -> Iterator[str]:
    """Yield the other conditions that decide how far the figures can be trusted."""
    yield from _sample_order(outcome.measured)
    yield from hint_notes(outcome.measured)
    yield from striping_notes(outcome.measured)
    depths = {one.label: depth for one in outcome.measured if (depth := one.median(lambda each: each.depth))}
    if depths and max(depths.values()) > _UNEQUAL_DEPTH * min(depths.values()):
        low, high = min(depths, key=depths.__getitem__), max(depths, key=depths.__getitem__)
        yield (
            f"Not at equal depth: from {number(depths[low], 3)} calls in flight ({low}) to "
            f"{number(depths[high], 3)} ({high})."
        )
    yield from residency_notes(outcome)
    yield from _cache_note(outcome)
    yield from machine_notes(outcome)


def _cache_note(outcome: Outcome[LoopPass]) -> Iterator[str]:
    """Yield a note where passes began cold on a disk, but later epochs were read from the page cache."""
    if outcome.caches != "cold":
        return
    on_disks = [one for one in outcome.measured if outcome.environment.is_stored_on(one.root, DISK_KINDS)]
    shares = [share for one in on_disks if (share := one.median(lambda each: each.device_share)) is not None]
    if shares and min(shares) < _FROM_DEVICE:
        yield (
            f"Cold at the start of a pass only: as little as {percent(min(shares), 3)} of the different bytes asked in "
            "an epoch came from the device, and the rest from the page cache. One epoch a pass "
            f"(-D {outcome.what}.epochs=1), or more data than memory, compares storage."
        )


def _sample_order(measured: Sequence[VariantResult[LoopPass]]) -> Iterator[str]:
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
