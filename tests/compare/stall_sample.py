"""A comparison of saves whose every figure is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dliosim.compare.checkpoint_pass import StallPass
from dliosim.compare.experiment import VariedSetting
from dliosim.compare.result import Outcome, VariantResult
from dliosim.measure.histogram import Histogram
from tests.compare.sample import measured, outcome

WRITERS = ("into file per rank", "all ranks into shared file", "rank 0", "one per 2 ranks")


def one_pass(block: int, position: int, variant: int, stall: float, **changed: object) -> StallPass:
    """A save of 1 GB, of whose stall half is in calls, a quarter in the sync and an eighth completes it."""
    made = StallPass(
        block=block,
        position=position,
        variant=variant,
        stall=stall,
        bytes=1_000_000_000,
        bytes_moved=1_000_000_000,
        bytes_once=1_000_000_000,
        files=4,
        calls=240,
        opens=4,
        call=0.5 * stall,
        send=0.0,
        open_close=0.001,
        view=0.0,
        file_sync=0.25 * stall,
        commit=0.125 * stall,
        manifest=0.01 * stall,
        directory_sync=0.01 * stall,
        rename=0.001 * stall,
        serialize=0.0,
        plan=0.0,
        wait=0.0,
        stage=0.0,
        flush=0.0,
        drain=0.0,
        partner=0.0,
        content=0.1,
        resident_share=None,
        latency=Histogram([int(stall * 1e6) + 100 * step for step in range(100)]),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def stalled(longer: Sequence[float], blocks: int = 8, **changed: object) -> tuple[VariantResult[StallPass], ...]:
    """Variants that stall these numbers of seconds; `changed` is changed in the passes of the last one."""
    found = []
    for number, one in enumerate(measured(longer, blocks)):
        last = number == len(longer) - 1
        passes = tuple(
            one_pass(each.block, each.position, number, each.seconds, **(changed if last else {}))
            for each in one.passes
        )
        writers = WRITERS[number]
        found.append(
            VariantResult(
                label=f"writers={writers}",
                values=(("writers", writers),),
                digest=one.digest,
                root=None,
                api="posix",
                added="",
                hints_asked=(),
                hints_granted=(),
                striping="",
                notes=(),
                passes=passes,
            )
        )
    return tuple(found)


def saves(
    variants: tuple[VariantResult[StallPass], ...], repetitions: int = 8, **changed: object
) -> Outcome[StallPass]:
    """A comparison of these variants."""
    loops = outcome(measured((1.0, 2.0)))
    made = Outcome(
        name=loops.name,
        title=loops.title,
        pattern=loops.pattern,
        overrides=(),
        arguments=(),
        what="save state",
        varied=(VariedSetting("writers", tuple(one.values[0][1] for one in variants)),),
        ranks=loops.ranks,
        nodes=loops.nodes,
        environment=loops.environment,
        started=loops.started,
        total_seconds=loops.total_seconds,
        repetitions=repetitions,
        seed=0,
        caches="",
        measured=variants,
        not_run=(),
        passes=tuple((one.label, one.passes) for one in variants),
        prepared=(),
    )
    return replace(made, **changed)  # type: ignore[arg-type]
