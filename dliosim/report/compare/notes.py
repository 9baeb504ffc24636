"""Notes below the answer of a comparison: where the time went, where the recommended variant loses, and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from dliosim.compare.pass_figures import LOOP, Pass
from dliosim.compare.result import Outcome, VariantResult, block_figures
from dliosim.compare.statistics import LEVEL, judge_pairs
from dliosim.measure.answers.validity import CORE_WAIT_LIMIT
from dliosim.measure.figures.declaration import name_part
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.readable import count, number, percent, seconds, size
from dliosim.report.phase_titles import group_by

_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))

#: Bytes read for each byte asked that are named.
_AMPLIFIED = 1.1

#: Smallest share of a stall that is named.
_WORTH_A_WORD = 0.1

#: Largest difference of the shares of bytes in the page cache that count as the same.
_UNLIKE = 0.05

#: Processes that want a core, for each core, from which a machine counts as busy before the comparison.
_BUSY = 0.5

#: Ratio of two depths in flight above which they are not the same.
_UNEQUAL_DEPTH = 1.5

#: Parts of the time of a loop; the tool's own time, which remains, is the last.
_LOOP_PARTS: Final = {
    "checkpoints" if part == "checkpoint_seconds" else name_part(part): part
    for part in sorted(LOOP.shares.values(), key="tool_seconds".__eq__)
}

#: Parts of the stall of a save in the background; its other parts are no stall.
_BACKGROUND_PARTS: Final = {"waiting for earlier saves": "wait_seconds", "copying to buffers": "stage_seconds"}

_STALL_PARTS: Final = {
    "planning": "plan_seconds",
    "serializing": "serialize_seconds",
    "opening and closing": "open_seconds",
    "calls": "call_seconds",
    "passing between ranks": "send_seconds",
    "sync": "file_sync_seconds",
    "completing": "commit_seconds",
}


def compose_notes(outcome: Outcome, use: int | None) -> list[str]:
    """Return the notes below the answer, the most important first; they name variants by their labels.

    `use` is the number of the variant to use; None if no difference is shown.
    """
    describe = _stall_sentences if outcome.is_stall_comparison else _loop_sentences
    return [*describe(outcome, use), *_condition_notes(outcome)]


def _latency_losses(outcome: Outcome, fastest: int) -> Iterator[str]:
    """Yield the percentiles of batch latency at which others are shown to wait less than the fastest variant."""
    lost, others = False, [number for number in range(len(outcome.measured)) if number != fastest]
    for name, share in _PERCENTILES:
        waits = block_figures(outcome.measured, lambda one, share=share: _latency_quantile(one, share))  # type: ignore[misc]
        medians = np.median(waits, axis=0).tolist()
        judged = judge_pairs(np.log(waits), [(fastest, other) for other in others])
        for other, one in zip(others, judged, strict=True):
            if len(_PERCENTILES) * one.p <= LEVEL and medians[other] < medians[fastest]:
                lost = True
                yield (
                    f"{outcome.measured[fastest].label} is worse at {name} of batch latency: "
                    f"{seconds(medians[fastest] * 1e-9, 3)} against {seconds(medians[other] * 1e-9, 3)} with "
                    f"{outcome.measured[other].label}."
                )
    if not lost:
        yield "No other variant is shown to wait less for a batch at p50, p90, p99 or p99.9."


def _latency_quantile(one: Pass, share: float) -> float:
    """Return a quantile of batch latency in ns, at least the clock's resolution."""
    return max(one.latency.quantile(share), 1.0)


def _loop_sentences(outcome: Outcome, use: int | None) -> Iterator[str]:
    """Yield the shares of time of the first variant and of the one to use, and what all variants read."""
    if use is not None:
        yield from _latency_losses(outcome, use)
    for one in (outcome.measured[variant] for variant in dict.fromkeys((0, use or 0))):
        shares = {part: one.share(name) for part, name in _LOOP_PARTS.items()}
        sentences = ", ".join(f"{part} {percent(share, 3)}" for part, share in shares.items() if share)
        yield f"Time of {one.label}: {sentences}."
    for one in outcome.measured:
        read = one.median("amplification")
        if read is not None and read > _AMPLIFIED:
            yield f"{one.label} read {number(read, 3)} bytes for each byte asked."
    for state, labels in _group_labels(outcome.measured, lambda one: one.two_phase).items():
        if state:
            yield f"Two-phase {state}: {'; '.join(labels)}."
    yield from _sample_order(outcome.measured)


def _group_labels(measured: Sequence[VariantResult], figure: Callable[[VariantResult], Any]) -> dict[Any, list[str]]:
    """Return the labels of the variants that have each value of a figure."""
    return {value: [one.label for one in some] for value, some in group_by(measured, figure).items()}


def _sample_order(measured: Sequence[VariantResult]) -> Iterator[str]:
    hashes = [{one.figures["order_hash"] for one in variant.passes} for variant in measured]
    everything = set().union(*hashes)
    if len(everything) == 1:
        yield f"All variants read the same samples in the same order (order hash {everything.pop()})."
        return
    for variant, own in zip(measured, hashes, strict=True):
        if len(own) > 1:
            yield f"WRONG: passes of {variant.label} differ in their samples or their order; please report it."
    first = hashes[0]
    others = [variant.label for variant, own in zip(measured, hashes, strict=True) if own != first]
    yield f"Not the samples and the order of {measured[0].label}: {', '.join(others)}. That is different work."


def _stall_sentences(outcome: Outcome, use: int | None) -> Iterator[str]:
    """Yield the stalls of the shortest, the first and the longest, their parts, and the bytes."""
    doing = outcome.what.partition(" ")[0]
    stalls = {one.label: one.mean("stall_seconds") or 0.0 for one in outcome.measured}
    least, longest = min(stalls, key=stalls.__getitem__), max(stalls, key=stalls.__getitem__)
    chosen = dict.fromkeys([least, outcome.measured[0].label, longest])
    text = ", ".join(f"{seconds(stalls[label], 3)} with `{label}`" for label in chosen)
    yield f"Stall of the job for a {doing}, geometric mean of the slowest rank: {text}."
    for one in outcome.measured:
        if one.median("flush_seconds"):
            complete = seconds(one.median("until_complete_seconds"), 3)
            yield f"`{one.label}` continues in the background: complete after {complete}."
    for one in (outcome.measured[variant] for variant in dict.fromkeys((0, use or 0))):
        stall = max(one.median("stall_seconds") or 0.0, 1e-9)  # as the parts
        behind = any(one.median(name) for name in _BACKGROUND_PARTS.values())
        named = _BACKGROUND_PARTS if behind else _STALL_PARTS
        parts = {
            part: time for part, name in named.items() if (time := one.median(name)) and time >= _WORTH_A_WORD * stall
        }
        if parts:
            text = ", ".join(f"{part} {percent(min(time / stall, 1.0), 2)}" for part, time in parts.items())
            yield f"Stall of `{one.label}`, by the rank that took longest in each part: {text}."
    amounts = _group_labels(outcome.measured, lambda one: one.passes[0].figures["bytes"])
    if len(amounts) > 1:
        text = ", ".join(f"{size(amount)} (`{'`; `'.join(labels)}`)" for amount, labels in amounts.items())
        yield f"Variants move different amounts: {text}."


def _condition_notes(outcome: Outcome) -> Iterator[str]:
    """Yield all notes on conditions: how far the figures can be trusted, and what they cannot show."""
    yield from _hint_notes(outcome.measured)
    for striping, labels in _group_labels(outcome.measured, lambda one: one.striping).items():
        if striping:
            yield f"Striping of {'; '.join(labels)}: {striping}."
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


def _depth_note(outcome: Outcome) -> Iterator[str]:
    depths = {one.label: depth for one in outcome.measured if (depth := one.median("depth"))}
    if depths and max(depths.values()) > _UNEQUAL_DEPTH * min(depths.values()):
        low, high = min(depths, key=depths.__getitem__), max(depths, key=depths.__getitem__)
        yield (
            f"Not the same depth: from {number(depths[low], 3)} calls in flight ({low}) to "
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
        yield f"The page cache was dropped before each pass, but kept {span} of the bytes{unlike}."
    else:
        yield f"Caches {outcome.caches} before each pass: {span} of the bytes were in the page cache{unlike}."


def _machine_notes(outcome: Outcome) -> Iterator[str]:
    """Yield notes on ranks without cores of their own, and a machine that was busy."""
    environment = outcome.environment
    for one in outcome.measured:
        if one.core_wait is not None and one.core_wait >= CORE_WAIT_LIMIT:
            yield f"{one.label} waited {percent(one.core_wait, 2)} of its time for a core."
    if not environment.is_oversubscribed and environment.load_average > _BUSY * environment.cores_per_node:
        load, cores = number(environment.load_average, 3), count(environment.cores_per_node, "core")
        yield f"The machine was busy before (load average {load} on {cores}): repeat this when it is quiet."
