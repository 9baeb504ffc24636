"""A comparison whose every figure is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dliosim.compare.experiment import ExcludedVariant, VariedSetting, draw_pass_order
from dliosim.compare.loop_pass import LoopPass
from dliosim.compare.result import Outcome, VariantResult
from dliosim.measure.histogram import Histogram
from tests.compare.synthetic import passes
from tests.report.sample import run

ORDER = 0x0123_4567_89AB_CDEF


def one_pass(block: int, position: int, variant: int, seconds: float, **changed: object) -> LoopPass:
    """A pass of 1000 samples of 10 kB, of whose time three quarters were waiting for data."""
    made = LoopPass(
        block=block,
        position=position,
        variant=variant,
        seconds=seconds,
        samples=1000,
        bytes=10_000_000,
        bytes_moved=10_000_000,
        calls=1000,
        opens=2,
        data_wait=0.75 * seconds,
        compute=0.125 * seconds,
        sync_wait=0.1 * seconds,
        arrival_wait=0.0,
        checkpoint=0.0,
        processing=0.0,
        tool=0.025 * seconds,
        io_busy=0.7 * seconds,
        decode=0.0,
        preprocess=0.0,
        open_close=0.001,
        view=0.0,
        utilization=None,
        amplification=1.0,
        storage_amplification=0.0,
        device_share=0.0,
        depth=1.0,
        resident_share=1.0,
        two_phase="",
        order_hash=ORDER,
        extent_hash=1,
        latency=Histogram([int(seconds * 1e6) + 100 * step for step in range(100)]),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def measured(slower: Sequence[float], blocks: int = 8, **changed: object) -> tuple[VariantResult[LoopPass], ...]:
    """Variants that take these times a second for a pass; `changed` is changed in the passes of the last one."""
    times = passes(1, tuple(slower), blocks=blocks + 1, noise=0.02, outliers=0.0)
    order = draw_pass_order(len(slower), blocks + 1, 1)
    found = []
    for variant in range(len(slower)):
        last = variant == len(slower) - 1
        own = [
            one_pass(block, block * len(slower) + order[block].index(variant), variant, float(times[block, variant]))
            for block in range(blocks + 1)
        ]
        label = f"api={'abcdefgh'[variant]}"
        found.append(
            VariantResult(
                label=label,
                values=(("api", label[4:]),),
                digest=f"{variant:016x}",
                root=None,
                api="posix",
                added="",
                hints_asked=(),
                hints_granted=(),
                striping="",
                notes=(),
                passes=tuple(replace(one, **changed) if last else one for one in own),  # type: ignore[arg-type]
            )
        )
    return tuple(found)


def outcome(
    variants: tuple[VariantResult[LoopPass], ...], repetitions: int = 8, **changed: object
) -> Outcome[LoopPass]:
    """A comparison of these variants."""
    environment = replace(run().environment, file_systems=(replace(run().environment.file_systems[0], kind="ext4"),))
    made = Outcome(
        name="cosmoflow",
        title="CosmoFlow training",
        pattern='dlio 1\nworkload cosmoflow "CosmoFlow training"\n',
        overrides=(("epochs", "1"),),
        arguments=("compare", "cosmoflow.dlio"),
        what="train",
        varied=(VariedSetting("api", tuple(one.label[4:] for one in variants)),),
        ranks=4,
        nodes=1,
        environment=environment,
        started="2025-01-02T03:04:05+00:00",
        total_seconds=42.0,
        repetitions=repetitions,
        seed=0,
        caches="warm",
        measured=variants,
        not_run=(ExcludedVariant("api=z", "collective access needs one file shared by every rank"),),
        passes=tuple((one.label, one.passes) for one in variants),
        prepared=(),
    )
    return replace(made, **changed)  # type: ignore[arg-type]
