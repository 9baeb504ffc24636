"""The verdict of a comparison in sentences: the best variant, its lead, where it loses, and what readers must know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.compare.caveats import condition_notes, few_repetitions_note, no_difference_note
from dliosim.compare.pass_figures import LOOP, STALL, Pass
from dliosim.compare.result import Outcome, VariantResult, block_figures
from dliosim.compare.statistics import (
    FEWEST,
    LEVEL,
    VariantComparison,
    compare_variants,
    find_differences,
    find_fastest,
    judge_pairs,
)
from dliosim.measure.figures import name_part
from dliosim.readable import number, percent, seconds, size

_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))

#: Bytes read for each byte asked that are named.
_AMPLIFIED = 1.1

#: Smallest share of a stall that is named.
_WORTH_A_WORD = 0.1

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


def compose_verdict(outcome: Outcome) -> list[str]:
    """Return sentences, the most important first; they call variants by their labels."""
    best = _find_best(outcome)
    praise, describe = (
        (_least_stall, _stall_sentences) if outcome.subject is STALL else (_highest_rate, _loop_sentences)
    )
    first = [best] if isinstance(best, str) else praise(outcome, best)
    return [*first, *describe(outcome), *condition_notes(outcome)]


@dataclass(frozen=True, slots=True)
class _Best:
    """The best variant."""

    place: int  #: its index
    against: VariantComparison | None  #: its comparison with the first; None if it is the first
    tied: list[int]  #: variants that are not shown to differ from it
    others: list[int]  #: all other variants


def _find_best(outcome: Outcome) -> _Best | str:
    """Return the best variant, or a note where none is shown to be the best."""
    if outcome.repetitions < FEWEST:
        return few_repetitions_note(outcome)
    times = outcome.times()
    best, shown = find_differences(times, outcome.comparisons)
    if not shown:
        return no_difference_note(outcome)
    others = [number for number in range(len(outcome.measured)) if number != best]
    tied = [number for number in others if (min(best, number), max(best, number)) not in shown]
    return _Best(best, outcome.comparison_of(best), tied, others)


def _find_closest(outcome: Outcome, best: _Best) -> tuple[float, str]:
    """Return how many times better the best variant is than the next one, and the label of that one."""
    rest = compare_variants(outcome.times()[:, [best.place, *best.others]])
    ratio, closest = max((one.ratio, other) for one, other in zip(rest, best.others, strict=True))
    return 1 / ratio, outcome.measured[closest].label


def _highest_rate(outcome: Outcome, best: _Best) -> Iterator[str]:
    measured, against = outcome.measured, best.against
    by = " (the first one)"
    if against is not None and against.low is not None and against.high is not None:
        by = f": {number(against.ratio, 3)} times as fast as {measured[0].label}, {number(against.low, 3)} to "
        by += number(against.high, 3)
    label = measured[best.place].label
    if best.tied:
        tied = "; ".join(measured[one].label for one in best.tied)
        yield f"Highest rate: {label}{by}. Not shown to be slower than it: {tied}."
    else:
        yield f"Fastest: {label}{by}."
        if len(measured) > 2:
            ratio, _ = _find_closest(outcome, best)
            yield f"Every other one is slower; the closest is {number(ratio, 3)} times slower."
    yield from _latency_losses(outcome, best)


def _latency_losses(outcome: Outcome, best: _Best) -> Iterator[str]:
    """Yield the percentiles of batch latency at which others are shown to wait less than the fastest variant."""
    fastest, lost = best.place, False
    for name, share in _PERCENTILES:
        waits = block_figures(outcome.measured, lambda one, share=share: _latency_quantile(one, share))  # type: ignore[misc]
        medians = np.median(waits, axis=0).tolist()
        judged = judge_pairs(np.log(waits), [(fastest, other) for other in best.others])
        for other, one in zip(best.others, judged, strict=True):
            if len(_PERCENTILES) * one.p <= LEVEL and medians[other] < medians[fastest]:
                lost = True
                yield (
                    f"It loses at {name} of batch latency: {seconds(medians[fastest] * 1e-9, 3)} against "
                    f"{seconds(medians[other] * 1e-9, 3)} of {outcome.measured[other].label}."
                )
    if not lost:
        yield "No other one is shown to wait less for a batch, at p50, p90, p99 or p99.9."


def _latency_quantile(one: Pass, share: float) -> float:
    """Return a quantile of batch latency in ns, at least the clock's resolution."""
    return max(one.latency.quantile(share), 1.0)


def _loop_sentences(outcome: Outcome) -> Iterator[str]:
    """Yield the shares of time of the first variant and of the fastest, and what all variants read."""
    for one in (outcome.measured[variant] for variant in dict.fromkeys((0, find_fastest(outcome.times())))):
        shares = {part: one.share(name) for part, name in _LOOP_PARTS.items()}
        sentences = ", ".join(f"{part} {percent(share, 3)}" for part, share in shares.items() if share)
        yield f"Time of {one.label}: {sentences}."
    for one in outcome.measured:
        read = one.median("amplification")
        if read is not None and read > _AMPLIFIED:
            yield f"{one.label} read {number(read, 3)} bytes for each byte asked."
    states: dict[str, list[str]] = {}
    for one in outcome.measured:
        if one.two_phase:
            states.setdefault(one.two_phase, []).append(one.label)
    for state, labels in states.items():
        yield f"Two-phase {state}: {'; '.join(labels)}."
    yield from _sample_order(outcome.measured)


def _sample_order(measured: Sequence[VariantResult]) -> Iterator[str]:
    hashes = [{one.figures["order_hash"] for one in variant.passes} for variant in measured]
    everything = set().union(*hashes)
    if len(everything) == 1:
        yield f"All variants had the same samples in the same order (order hash {everything.pop()})."
        return
    for variant, own in zip(measured, hashes, strict=True):
        if len(own) > 1:
            yield f"WRONG: passes of {variant.label} differ in their samples or their order; please report it."
    first = hashes[0]
    others = [variant.label for variant, own in zip(measured, hashes, strict=True) if own != first]
    yield f"Other samples, or another order, than {measured[0].label}: {', '.join(others)}. That is other work."


def _least_stall(outcome: Outcome, best: _Best) -> Iterator[str]:
    measured, against = outcome.measured, best.against
    label, first = f"`{measured[best.place].label}`", f"`{measured[0].label}`"
    if against is not None and against.low is not None and against.high is not None:
        less = f"{number(against.ratio, 3)} times less"
        interval = f"95 %: {number(against.low, 3)} to {number(against.high, 3)}"
        if 0 in best.tied:
            yield f"{label} has the shortest stall, and is not shown to differ from {first} ({less}; {interval})."
        else:
            yield f"{label} stalls {less} than {first} ({interval})."
    elif best.tied:
        yield f"{label} (the first one) has the shortest stall."
    else:
        ratio, closest = _find_closest(outcome, best)
        ahead = f"{number(ratio, 3)} times less than `{closest}`, the closest"
        yield f"{label} (the first one) stalls least: {ahead}."
    if best.tied:
        yield f"Not shown to stall longer than it: {'; '.join(f'`{measured[one].label}`' for one in best.tied)}."
    elif len(measured) > 2:
        yield "Every other one is shown to stall longer."


def _stall_sentences(outcome: Outcome) -> Iterator[str]:
    """Yield the stalls of the shortest, the first and the longest, their parts, and the bytes."""
    doing = outcome.what.partition(" ")[0]
    medians = {one.label: one.median("stall_seconds") or 0.0 for one in outcome.measured}
    least, longest = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    chosen = dict.fromkeys([least, outcome.measured[0].label, longest])
    text = ", ".join(f"{seconds(medians[label], 3)} with `{label}`" for label in chosen)
    yield f"How long the job stalls for a {doing}, median of the slowest rank: {text}."
    for one in outcome.measured:
        if one.median("flush_seconds"):
            complete = seconds(one.median("until_complete_seconds"), 3)
            yield f"`{one.label}` continues in the background: complete after {complete}."
    for one in (outcome.measured[variant] for variant in dict.fromkeys((0, find_fastest(outcome.times())))):
        stall = max(medians[one.label], 1e-9)
        behind = any(one.median(name) for name in _BACKGROUND_PARTS.values())
        named = _BACKGROUND_PARTS if behind else _STALL_PARTS
        parts = {
            part: time for part, name in named.items() if (time := one.median(name)) and time >= _WORTH_A_WORD * stall
        }
        if parts:
            text = ", ".join(f"{part} {percent(min(time / stall, 1.0), 2)}" for part, time in parts.items())
            yield f"Stall of `{one.label}`, by the rank that took longest in each part: {text}."
    amounts: dict[int, list[str]] = {}
    for one in outcome.measured:
        amounts.setdefault(one.passes[0].figures["bytes"], []).append(f"`{one.label}`")
    if len(amounts) > 1:
        text = ", ".join(f"{size(amount)} ({'; '.join(labels)})" for amount, labels in amounts.items())
        yield f"Not the same bytes are moved: {text}."
