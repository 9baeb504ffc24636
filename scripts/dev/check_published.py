"""Compare predictions with published ladders: one storage, one workload, several numbers of accelerators.

    python scripts/dev/check_published.py [--predictions FILE]

Of each ladder the least `step time` and the `step tail` are fitted to two rows through the engine of `dliosim predict`;
the rates are those that the documents give, and are not fitted. A ladder of two rows has one fitted row, and the tail
of the ladder before it. All predictions are written to FILE first, then each row gets the overhead of a step (step -
compute) and the utilization next to the published ones, and three baselines: the utilization of the last fitted row,
that of the bandwidth alone, and an overhead that grows with the logarithm of the ranks. docs/evidence/predictions.md
has the table.

Sources: mlcommons/storage_results_v1.0 @64c2ce4, mlcommons/storage_results_v3.0 @068d91f6.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness import ROOT, header, orderly, row

sys.path.insert(0, str(ROOT))

from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Loop, Servers, StorageModel, Stripe, Workload
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.plan.forecast.forecast_types import Forecast
from dliosim.plan.predict.prediction import Prediction, predict_loop

#: Bytes per second of servers that no document limits.
_NO_LIMIT = 1e15

#: Halvings of an interval in which a parameter is looked for; the tails that are tried.
_HALVINGS, _TAILS = 11, (1.2, 12.0)


@dataclass(frozen=True)
class Ladder:
    """Rows of one storage and workload; a row is (ranks, nodes, utilization, bytes/s of the servers or None)."""

    name: str
    pattern: str
    overrides: tuple[tuple[str, str], ...]
    fitted: tuple[tuple[int, int, float, float | None], ...]
    predicted: tuple[tuple[int, int, float, float | None], ...]


_UNET3D, _H100 = (("scale", "1"), ("files", "100_000")), (("accelerator", "h100"),)
_COSMOFLOW = (("scale", "1"),)
LADDERS = (
    Ladder(
        "AMLFS (B200)",
        "unet3d",
        (*_UNET3D, ("accelerator", "b200")),
        # Means of the rows that a comment of the facts calls undisturbed.
        ((3, 3, 0.9820, 20e9), (16, 16, 0.9602, 100e9)),
        ((46, 46, 0.9268, 300e9), (70, 70, 0.9186, 512e9), (70, 70, 0.9169, 513e9)),
    ),
    Ladder(
        "Nutanix",
        "unet3d",
        (*_UNET3D, *_H100),
        ((4, 4, 0.967, None), (20, 10, 0.947, None)),
        ((100, 50, 0.916, None),),
    ),
    Ladder(
        "AIStore (B200)",
        "unet3d",
        (*_UNET3D, ("accelerator", "b200")),
        ((5, 5, 0.9886, None), (10, 10, 0.9871, None)),
        ((20, 20, 0.9795, None),),
    ),
    Ladder("Hammerspace", "unet3d", (*_UNET3D, *_H100), ((2, 1, 0.966, None),), ((10, 5, 0.961, None),)),
    Ladder(
        "YanRong F8000X",
        "cosmoflow",
        (*_COSMOFLOW, *_H100),
        ((1, 1, 0.828, None), (8, 1, 0.7664, None)),
        ((26, 1, 0.7199, None),),
    ),
    Ladder("YanRong F9000X", "cosmoflow", (*_COSMOFLOW, *_H100), ((30, 1, 0.8453, None),), ((60, 1, 0.7051, None),)),
    Ladder(
        "YanRong F8000X",
        "unet3d",
        (*_UNET3D, *_H100),
        ((1, 1, 0.9863, None), (8, 1, 0.9639, None)),
        ((12, 1, 0.9795, None),),
    ),
    Ladder("YanRong F9000X", "unet3d", (*_UNET3D, *_H100), ((10, 1, 0.9858, None),), ((20, 1, 0.9742, None),)),
    Ladder(
        "YanRong F8000X",
        "resnet50",
        (("scale", "1"), *_H100),
        ((1, 1, 0.9944, None), (32, 1, 0.9453, None)),
        ((106, 1, 0.9075, None),),
    ),
    Ladder("YanRong F9000X", "resnet50", (("scale", "1"), *_H100), ((94, 1, 0.9925, None),), ((188, 1, 0.9582, None),)),
)


@cache
def plan(pattern: str, overrides: tuple[tuple[str, str], ...], job: Job) -> tuple[Workload, Loop, Forecast]:
    """Return the workload of a row, its loop, and its forecast."""
    workload = compile_pattern(ROOT / "patterns" / f"{pattern}.dlio", overrides, job)[0]
    loop = next(one for one in loops_of(workload.verbs) if one.dataset)
    return workload, loop, forecast(workload)


def predict(ladder: Ladder, ranks: int, nodes: int, rate: float | None, step: float, tail: float) -> Prediction:
    """Return the prediction of a row with some parameters of a step; `step` is seconds."""
    workload, loop, planned = plan(ladder.pattern, ladder.overrides, Job(ranks, nodes))
    servers, stripe = (Servers(8, (rate or _NO_LIMIT) / 8), Stripe(1 << 20, 8))
    return predict_loop(
        workload,
        loop,
        planned,
        StorageModel("published", servers, stripe=stripe, step_time=step, step_tail=tail if step else None),
        -(-ranks // nodes),
    )


def _halve(low: float, high: float, is_too_low: Callable[[float], bool]) -> float:
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_too_low(middle) else (low, middle)
    return math.sqrt(low * high)


def fit(ladder: Ladder, tail: float) -> tuple[float, float]:
    """Return the least step time (seconds) and the tail of the fitted rows; `tail` is that of a ladder with one."""

    def fit_step(power: float) -> float:
        ranks, nodes, busy, rate = ladder.fitted[0]
        return _halve(1e-6, 1.0, lambda step: predict(ladder, ranks, nodes, rate, step, power).utilization > busy)

    if len(ladder.fitted) == 2:
        ranks, nodes, busy, rate = ladder.fitted[1]
        tail = _halve(
            *_TAILS, lambda power: predict(ladder, ranks, nodes, rate, fit_step(power), power).utilization < busy
        )
    return fit_step(tail), tail


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--predictions", type=Path, default=Path("published.json"), help="written before the comparison"
    )
    place, tail, made = parser.parse_args().predictions, 2.0, []
    for ladder in LADDERS:
        step, tail = fit(ladder, tail)
        for ranks, nodes, _, rate in ladder.predicted:
            one = predict(ladder, ranks, nodes, rate, step, tail)
            alone = predict(ladder, ranks, nodes, rate, 0.0, tail).utilization
            made.append((ladder, ranks, step, tail, one.ideal_step, one.utilization, alone))
    place.write_text(json.dumps([(each[0].name, each[0].pattern, *each[1:]) for each in made]))
    header("storage", "workload", "ranks", "fitted", "overhead", "published", "ratio", "AU", "published", "points")
    errors: dict[str, list[float]] = {"predict": [], "AU stays": [], "bandwidth alone": [], "logarithm": []}
    rows = [(ladder, each) for ladder in LADDERS for each in ladder.predicted]
    for (ladder, (ranks, _, busy, _)), (_, _, step, power, ideal, reached, alone) in zip(rows, made, strict=True):
        overhead, published = (ideal * (1 / each - 1) * 1e3 for each in (reached, busy))
        fitted = f"{step * 1e3:.3g} ms, pareto {power:.2f}" if len(ladder.fitted) == 2 else f"{step * 1e3:.3g} ms"
        shown = f"{overhead:.3g} ms", f"{published:.3g} ms", f"{overhead / published:.2f}"
        row(
            ladder.name,
            ladder.pattern,
            ranks,
            fitted,
            *shown,
            f"{reached:.1%}",
            f"{busy:.1%}",
            f"{100 * (reached - busy):+.1f}",
        )
        guesses = (reached, ladder.fitted[-1][2], alone, _grow_by_logarithm(ladder, ranks))
        for each, guess in zip(errors.values(), guesses, strict=True):
            each.append(abs(guess - busy))
    print()
    header("model", "mean error, points", "greatest")
    for name, each in errors.items():
        row(name, f"{100 * statistics.fmean(each):.2f}", f"{100 * max(each):.1f}")
    best = min(statistics.fmean(each) for each in errors.values())
    return int(statistics.fmean(errors["predict"]) > best)


def _grow_by_logarithm(ladder: Ladder, ranks: int) -> float:
    """Return the utilization if the overhead, as a share of compute, grows with the logarithm of the ranks."""
    lost = [(math.log(one), 1 / busy - 1) for one, _, busy, _ in ladder.fitted]
    if len(lost) == 1 or lost[0][0] == lost[1][0]:
        return ladder.fitted[-1][2]
    (begin, first), (end, last) = lost
    return 1 / (1 + first + (last - first) * (math.log(ranks) - begin) / (end - begin))


if __name__ == "__main__":
    orderly(main)
