"""The verdict on saves or restores in sentences: which variant stalls the job least, for how long, and in what."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dliosim.compare.caveats import (
    few_repetitions_note,
    hint_notes,
    machine_notes,
    no_difference_note,
    residency_notes,
    striping_notes,
)
from dliosim.compare.checkpoint_pass import StallPass
from dliosim.compare.result import Outcome, VariantResult
from dliosim.compare.statistics import FEWEST, compare_variants, find_differences, find_fastest
from dliosim.measure.machine import MEMORY_KINDS
from dliosim.readable import number, percent, seconds, size

# Smallest share of a stall that is named.
_WORTH_A_WORD = 0.1


def stall_verdict(outcome: Outcome[StallPass]) -> list[str]:
    """Return sentences, the most important first; they call variants by their labels."""
    return [*_shortest_stall(outcome), *_stall_lengths(outcome), *_stall_parts(outcome), *_conditions(outcome)]


def _shortest_stall(outcome: Outcome[StallPass]) -> Iterator[str]:
    measured = outcome.measured
    if outcome.repetitions < FEWEST:
        yield few_repetitions_note(outcome)
        return
    times = outcome.times()
    least, shown = find_differences(times, outcome.comparisons)
    if not shown:
        yield no_difference_note(outcome)
        return
    others = [number for number in range(len(measured)) if number != least]
    tied = [number for number in others if (min(least, number), max(least, number)) not in shown]
    best, first = f"`{measured[least].label}`", f"`{measured[0].label}`"
    against = outcome.comparison_of(least)
    if against is not None and against.low is not None and against.high is not None:
        less = f"{number(against.ratio, 3)} times less"
        interval = f"95 %: {number(against.low, 3)} to {number(against.high, 3)}"
        if 0 in tied:
            yield f"{best} has the shortest stall, and is not shown to differ from {first} ({less}; {interval})."
        else:
            yield f"{best} stalls {less} than {first} ({interval})."
    elif tied:
        yield f"{best} (the first one) has the shortest stall."
    else:
        rest = compare_variants(times[:, [least, *others]])
        ratio, closest = max((one.ratio, other) for one, other in zip(rest, others, strict=True))
        ahead = f"{number(1 / ratio, 3)} times less than `{measured[closest].label}`, the closest"
        yield f"{best} (the first one) stalls least: {ahead}."
    if tied:
        yield f"Not shown to stall longer than it: {'; '.join(f'`{measured[one].label}`' for one in tied)}."
    elif len(measured) > 2:
        yield "Every other one is shown to stall longer."


def _stall_lengths(outcome: Outcome[StallPass]) -> Iterator[str]:
    """Yield the stalls of the shortest, the first and the longest: what a user of the job would notice."""
    doing = outcome.what.partition(" ")[0]
    medians = {one.label: float(np.median([each.stall for each in one.block_passes])) for one in outcome.measured}
    least, longest = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    chosen = dict.fromkeys([least, outcome.measured[0].label, longest])
    text = ", ".join(f"{seconds(medians[label], 3)} with `{label}`" for label in chosen)
    yield f"How long the job stalls for a {doing}, median of the slowest rank: {text}."
    flushed = [one for one in outcome.measured if one.median(lambda each: each.flush)]
    for one in flushed:
        complete = one.median(lambda each: each.completion_time)
        yield f"`{one.label}` continues in the background: complete after {seconds(complete, 3)}."


def _stall_parts(outcome: Outcome[StallPass]) -> Iterator[str]:
    """Yield the parts of the stall of the first and of the shortest; parts below a tenth are left out."""
    for number_ in dict.fromkeys((0, find_fastest(outcome.times()))):
        one = outcome.measured[number_]
        stall = one.median(lambda each: each.comparison_time) or 0.0
        parts = {name: part for name, part in _median_parts(one).items() if part >= _WORTH_A_WORD * stall}
        if parts:
            text = ", ".join(f"{name} {percent(min(part / stall, 1.0), 2)}" for name, part in parts.items())
            yield f"Stall of `{one.label}`, by the rank that took longest in each part: {text}."


def _median_parts(one: VariantResult[StallPass]) -> dict[str, float]:
    figures = {
        "waiting for earlier saves": one.median(lambda each: each.wait),
        "copying to buffers": one.median(lambda each: each.stage),
    }
    if not any(figures.values()):  # the other parts of a background save are no stall
        figures = {
            "planning": one.median(lambda each: each.plan),
            "serializing": one.median(lambda each: each.serialize),
            "opening and closing": one.median(lambda each: each.open_close),
            "calls": one.median(lambda each: each.call),
            "passing between ranks": one.median(lambda each: each.send),
            "sync": one.median(lambda each: each.file_sync),
            "completing": one.median(lambda each: each.commit),
        }
    return {name: figure for name, figure in figures.items() if figure}


def _conditions(outcome: Outcome[StallPass]) -> Iterator[str]:
    """Yield the other conditions that decide how far the figures can be trusted."""
    amounts: dict[int, list[str]] = {}
    for one in outcome.measured:
        amounts.setdefault(one.passes[0].bytes, []).append(f"`{one.label}`")
    if len(amounts) > 1:
        text = ", ".join(f"{size(amount)} ({'; '.join(labels)})" for amount, labels in amounts.items())
        yield f"Not the same bytes are moved: {text}."
    yield from hint_notes(outcome.measured)
    yield from striping_notes(outcome.measured)
    yield from residency_notes(outcome)
    yield from machine_notes(outcome)
    yield from _missing_sync_note(outcome)


def _missing_sync_note(outcome: Outcome[StallPass]) -> Iterator[str]:
    """Yield a note on saves that end before the data are on storage."""
    if not outcome.what.startswith("save") or any(
        place.kind in MEMORY_KINDS for place in outcome.environment.file_systems
    ):
        return
    labels = [one.label for one in outcome.measured if not one.median(lambda each: each.file_sync)]
    if labels:
        yield f"Without a sync, so that their stall may end before the data are on storage: {'; '.join(labels)}."
