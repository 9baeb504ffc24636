"""A comparison of saves whose every figure is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dliosim.compare.experiment import VariedSetting
from dliosim.compare.pass_figures import STALL, Pass
from dliosim.compare.result import Outcome, VariantResult
from dliosim.measure.rank.histogram import Histogram
from tests.compare.sample import measured, outcome

WRITERS = ("into file per rank", "all ranks into shared file", "rank 0", "one per 2 ranks")


def one_pass(block: int, position: int, stall: float, **changed: object) -> Pass:
    """A save of 1 GB, of whose stall half is in calls, a quarter in the sync and an eighth completes it."""
    figures = dict.fromkeys(STALL.figures, 0.0) | {
        "stall_seconds": stall,
        "bytes": 1_000_000_000,
        "bytes_moved": 1_000_000_000,
        "files": 4,
        "calls": 240,
        "opens": 4,
        "call_seconds": 0.5 * stall,
        "open_seconds": 0.001,
        "file_sync_seconds": 0.25 * stall,
        "commit_seconds": 0.125 * stall,
        "manifest_seconds": 0.01 * stall,
        "directory_sync_seconds": 0.01 * stall,
        "rename_seconds": 0.001 * stall,
        "content_seconds": 0.1,
        "resident_share": None,
        **changed,
    }
    complete = figures["until_complete_seconds"] = stall + figures["flush_seconds"]
    figures["bytes_per_second"] = figures["bytes"] / complete
    return Pass(block, position, figures, Histogram([int(stall * 1e6) + 100 * step for step in range(100)]))


def stalled(longer: Sequence[float], blocks: int = 8, **changed: object) -> tuple[VariantResult, ...]:
    """Variants that stall these numbers of seconds; `changed` is changed in the passes of the last one."""
    found = []
    for number, one in enumerate(measured(longer, blocks)):
        last = number == len(longer) - 1
        passes = tuple(
            one_pass(each.block, each.position, each.figures["seconds"], **(changed if last else {}))
            for each in one.passes
        )
        writers = WRITERS[number]
        found.append(replace(one, label=f"writers={writers}", values=(("writers", writers),), passes=passes))
    return tuple(found)


def saves(variants: tuple[VariantResult, ...], repetitions: int = 8, **changed: object) -> Outcome:
    """A comparison of these variants."""
    made = replace(
        outcome(variants, repetitions),
        subject=STALL,
        overrides=(),
        arguments=(),
        what="save state",
        varied=(VariedSetting("writers", tuple(one.values[0][1] for one in variants)),),
        caches="",
        not_run=(),
    )
    return replace(made, **changed)  # type: ignore[arg-type]
