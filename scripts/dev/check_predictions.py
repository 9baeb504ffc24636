"""Compare predictions with runs on the same described storages: patterns, storages and ranks drawn at random.

    python scripts/dev/check_predictions.py [--cases 40] [--seed 1] [--ranks 1 2 3 5 8] [--predictions FILE]
    python scripts/dev/check_predictions.py --only SEED

Each case is one loop on one storage, drawn by its seed alone. All predictions are written to FILE before the first run.
A case agrees if the storage-limited utilization of its run is within 2 points of the prediction, and the time of its
epoch within 5 %. The output is a markdown table and how many cases agree; the status is 1 if fewer than 95 % do.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import header, mpiexec, orderly, row, run

#: Differences within which a run agrees with its prediction: of utilization, and of the time of an epoch.
_POINTS, _SHARE = 0.02, 0.05

#: The share of cases that should agree.
_ENOUGH = 0.95

#: The command line of this checkout.
CLI = (sys.executable, "-m", "dliosim.cli")


def draw_case(seed: int, ranks: list[int]) -> tuple[str, str, int]:
    """Return the text of a pattern, that of a storage, and the number of ranks."""
    drawn = random.Random(seed)
    size = int(10 ** drawn.uniform(4.7, 6.6))
    batch, steps = drawn.choice([1, 2, 4, 8]), drawn.choice([60, 100, 150])
    layout = drawn.choice(["file per sample", "shared file", f"{drawn.choice([3, 10, 50])} files"])
    spread = drawn.choice(["", "normal", "lognormal"])
    sizes = f"{spread}({size} B, {size // drawn.choice([4, 10])} B)" if spread else f"{size} B"
    compute = f"{10 ** drawn.uniform(0.9, 1.6):.2f} ms"
    compute = drawn.choice([compute, f"normal({compute}, {10 ** drawn.uniform(-1, 0):.2f} ms)"])
    readers = drawn.choice([0, 1, 2, 4])
    lines = [f"readers {readers}"]
    if readers:
        lines += [f"prefetch {drawn.choice([readers, 2 * readers])} batches"]
    lines += drawn.choice([[], ["shuffle samples globally each epoch"]])
    lines += drawn.choice([[], ["sync off"], ["sync barrier every 4 steps"]])
    lines += drawn.choice([[], ["transfer 256 KiB"]]) if size > 400_000 else []
    number = drawn.choice(ranks)
    body = "\n    ".join(["read d", f"batch {batch} per rank", f"compute {compute}", "epochs 1", *lines])
    pattern = (
        f'dlio 1\nworkload drawn "a loop"\ndataset d {{\n    samples {batch * steps} * $ranks\n    size {sizes}\n'
        f'    layout {layout}\n    path "d"\n}}\ntrain {{\n    {body}\n}}\n'
    )
    servers = drawn.choice([1, 2, 4, 8])
    settings = [
        f"servers {servers} of {10 ** drawn.uniform(1.7, 3.3):.0f} MB/s",
        f"latency {drawn.choice([1000, 2000, 4000])} us",
    ]
    settings += drawn.choice([[], [f"client {10 ** drawn.uniform(2, 3.5):.0f} MB/s"]])
    settings += drawn.choice([[], [f"tail pareto {drawn.choice([2.5, 3, 4])}"]])
    settings += drawn.choice([[], [f"metadata {drawn.choice([500, 2000, 10000])} opens/s"]])
    settings += drawn.choice([[], [f"stripe 1 MiB over {drawn.randint(1, servers)} servers"]])
    settings += drawn.choice([[], ["step time 500 us"]])
    lines = "\n    ".join(settings)
    return pattern, f'dlio 1\nstorage drawn_storage "drawn" {{\n    {lines}\n}}\n', number


def predict(place: Path, ranks: int) -> dict[str, Any]:
    """Return what is predicted of a case."""
    out = run([*CLI, "predict", *_files(place), "--ranks", str(ranks), "--per-node", str(ranks), "--json"], 600)
    predicted: dict[str, Any] = json.loads(out)["predicted"][0]
    step, first = predicted["step_seconds"], predicted["first_step_seconds"]
    predicted["seconds"] = first + (predicted["steps"] - 1) * step
    return predicted


def execute(place: Path, ranks: int) -> dict[str, Any]:
    """Return the epoch of a run on the described storage."""
    out = place / "out"
    run(
        [mpiexec(), "-n", str(ranks), *CLI, "run", *_files(place), "--dir", str(place / "data"), "--output", str(out)],
        600,
    )
    results = json.loads((out / "results.json").read_text())
    epoch: dict[str, Any] = next(one for one in results["phases"] if one["kind"] == "train")["epochs"][0]
    return epoch


def _files(place: Path) -> list[str]:
    return [str(place / "pattern.dlio"), "--storage", str(place / "storage.dlio")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=40, help="how many cases")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next number")
    parser.add_argument("--only", type=int, metavar="SEED", help="one case, with its files")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 5, 8], help="numbers of ranks to draw from")
    parser.add_argument("--place", type=Path, help="where cases go (default: the directory for temporary files)")
    parser.add_argument("--predictions", type=Path, default=Path("predictions.json"), help="written before the runs")
    given = parser.parse_args()
    seeds = [given.only] if given.only is not None else list(range(given.seed, given.seed + given.cases))
    with tempfile.TemporaryDirectory(dir=given.place) as directory:
        cases: dict[int, tuple[Path, int, dict[str, Any]]] = {}
        for seed in seeds:
            place = Path(directory) / str(seed)
            place.mkdir()
            pattern, storage, ranks = draw_case(seed, given.ranks)
            (place / "pattern.dlio").write_text(pattern)
            (place / "storage.dlio").write_text(storage)
            if given.only is not None:
                print(pattern, storage, sep="\n")
            cases[seed] = place, ranks, predict(place, ranks)
        given.predictions.write_text(json.dumps({seed: predicted for seed, (_, _, predicted) in cases.items()}))
        header(
            "case", "ranks", "limit", "busy, predicted", "busy, run", "points", "epoch, predicted", "run", "ratio", ""
        )
        agreed = 0
        for seed, (place, ranks, predicted) in cases.items():
            agreed += _compare(seed, ranks, predicted, execute(place, ranks))
        print(f"\n{agreed} of {len(cases)} agree")
    return int(agreed < _ENOUGH * len(cases))


def _compare(seed: int, ranks: int, predicted: dict[str, Any], epoch: dict[str, Any]) -> bool:
    """Print the row of a case; return whether its run agrees with the prediction."""
    busy, took = predicted["storage_utilization"]["mean"], epoch["seconds"]
    points, ratio = busy - epoch["storage_utilization"], predicted["seconds"] / took
    agrees = abs(points) <= _POINTS and abs(ratio - 1) <= _SHARE
    shares = (f"{busy:.1%}", f"{epoch['storage_utilization']:.1%}", f"{100 * points:+.1f}")
    times = (f"{predicted['seconds']:.2f} s", f"{took:.2f} s", f"{ratio:.3f}")
    row(seed, ranks, predicted["limited_by"], *shares, *times, "" if agrees else "**no**")
    return agrees


if __name__ == "__main__":
    orderly(main)
