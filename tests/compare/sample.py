"""A comparison whose every figure is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dliosim.compare.answer import answer_comparison
from dliosim.compare.experiment import ExcludedVariant, VariedSetting, draw_pass_order
from dliosim.compare.pass_figures import LOOP, Pass
from dliosim.compare.result import ComparisonAnswer, Outcome, VariantResult
from dliosim.measure.rank.histogram import Histogram
from tests.compare.synthetic import passes
from tests.report.sample import run

ORDER = "0123456789abcdef"

#: Figures of a pass whose bytes came from the device.
COLD = {"device_share": 1.0, "resident_share": 0.0}


def one_pass(block: int, position: int, seconds: float, latency: Histogram | None = None, **changed: object) -> Pass:
    """A pass of 1000 samples of 10 kB, of whose time three quarters were waiting for data."""
    waits = latency or Histogram([int(seconds * 1e6) + 100 * step for step in range(100)])
    quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    figures = dict.fromkeys(LOOP.figures, 0.0) | {
        "seconds": seconds,
        "samples": 1000,
        "bytes": 10_000_000,
        "bytes_moved": 10_000_000,
        "calls": 1000,
        "opens": 2,
        "data_wait_seconds": 0.75 * seconds,
        "compute_seconds": 0.125 * seconds,
        "sync_wait_seconds": 0.1 * seconds,
        "tool_seconds": 0.025 * seconds,
        "io_busy_seconds": 0.7 * seconds,
        "open_seconds": 0.001,
        "utilization": None,
        "amplification": 1.0,
        "depth": 1.0,
        "resident_share": 1.0,
        "two_phase": None,
        "order_hash": ORDER,
        "extent_hash": f"{1:016x}",
        "core_wait_share": None,
        **{f"batch_latency_{name}_seconds": waits.quantile(share) * 1e-9 for name, share in quantiles.items()},
        **changed,
    }
    figures["samples_per_second"] = figures["samples"] / seconds
    figures["bytes_per_second"] = figures["bytes"] / seconds
    return Pass(block, position, figures, waits)


def with_figures(one: Pass, **changed: object) -> Pass:
    """The same pass with other figures."""
    return replace(one, figures={**one.figures, **changed})


def measured(
    slower: Sequence[float], blocks: int = 8, latency: Histogram | None = None, **changed: object
) -> tuple[VariantResult, ...]:
    """Variants that take these times a second for a pass; `changed` is changed in the passes of the last one."""
    times = passes(1, tuple(slower), blocks=blocks + 1, noise=0.02, outliers=0.0)
    order = draw_pass_order(len(slower), blocks + 1, 1)
    found = []
    for variant in range(len(slower)):
        last = variant == len(slower) - 1
        own = [
            one_pass(
                block,
                block * len(slower) + order[block].index(variant),
                float(times[block, variant]),
                latency if last else None,
                **(changed if last else {}),
            )
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
                cache="page",
                epochs=1,
                raw_format="",
                is_left_compressed=False,
                striping="",
                notes=(),
                passes=tuple(own),
            )
        )
    return tuple(found)


def outcome(variants: tuple[VariantResult, ...], repetitions: int = 8, **changed: object) -> Outcome:
    """A comparison of these variants."""
    environment = replace(run().environment, file_systems=(replace(run().environment.file_systems[0], kind="ext4"),))
    made = Outcome(
        subject=LOOP,
        name="cosmoflow",
        title="CosmoFlow training",
        pattern='dlio 1\nworkload cosmoflow "CosmoFlow training"\n',
        overrides=(("epochs", "1"),),
        program="dliosim",
        arguments=("compare", "cosmoflow.dlio"),
        what="train",
        without_saves=False,
        modelled="",
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


def answered(made: Outcome, accepted: bool = True) -> tuple[Outcome, ComparisonAnswer]:
    """A comparison with its answer."""
    return made, answer_comparison(made, lambda override: accepted)


def cold(*slower: float, blocks: int = 8, **changed: object) -> Outcome:
    """A comparison of variants so much slower than the first, whose bytes came from the device."""
    variants = tuple(
        replace(one, passes=tuple(with_figures(each, **{**COLD, **changed}) for each in one.passes))
        for one in measured(slower, blocks)
    )
    return outcome(variants, blocks, caches="cold")
