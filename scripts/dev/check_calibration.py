"""Compare predictions with runs on the storages of this machine, after `dliosim calibrate` has described them.

    python scripts/dev/check_calibration.py --places DIR ... [--cases 15] [--predictions FILE]

For each directory: a calibration on 2 ranks, then loops drawn at random (1 and 2 ranks, sizes, batches, layouts, calls,
readers, compute), without the page cache where the file system can. All predictions are written to FILE before the
first of these runs. A row has the time of the first epoch; the status is 1 if the median difference is above 10 %.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from check_predictions import CLI, predict
from harness import header, mpiexec, orderly, row, run

#: The median difference of the times of epochs that is accepted.
_MEDIAN = 0.10


def draw_case(seed: int) -> tuple[str, int]:
    """Return the text of a pattern, and the number of ranks."""
    drawn = random.Random(seed)
    size, batch, ranks = int(10 ** drawn.uniform(4.5, 6.5)), drawn.choice([1, 2, 4, 8]), drawn.choice([1, 2])
    steps = max(20, min(150, 400_000_000 // (size * batch * ranks)))
    readers = drawn.choice([0, 1, 2])
    lines = [f"readers {readers}", *([f"prefetch {2 * readers} batches"] if readers else [])]
    lines += drawn.choice([[], ["shuffle samples globally each epoch"]])
    lines += drawn.choice([[], ["transfer 256 KiB"]]) if size > 400_000 else []
    layout = drawn.choice(["file per sample", "shared file", "10 files"])
    compute = f"{10 ** drawn.uniform(0.0, 1.3):.2f} ms"
    body = "\n    ".join(
        ["read d", f"batch {batch} per rank", f"compute {compute}", "cache $cache", "epochs 1", *lines]
    )
    dataset = f"samples {batch * steps * ranks}\n    size {size} B\n    align 4 KiB\n    layout {layout}"
    return (
        f'dlio 1\nworkload drawn "a loop"\nparam cache = off\ndataset d {{\n    {dataset}\n    path "d{seed}"\n}}\n'
        f"prepare d\ndrop caches\ntrain {{\n    {body}\n}}\n"
    ), ranks


def execute(place: Path, data: Path, ranks: int, cache: str) -> dict[str, Any]:
    """Return the epoch of a run on files."""
    out = place / "out"
    words = ["run", str(place / "pattern.dlio"), "-D", f"cache={cache}", "--dir", str(data), "--output", str(out)]
    run([mpiexec(), "-n", str(ranks), *CLI, *words], 600)
    results = json.loads((out / "results.json").read_text())
    epoch: dict[str, Any] = next(one for one in results["phases"] if one["kind"] == "train")["epochs"][0]
    return epoch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--places", type=Path, nargs="+", required=True, help="directories on the file systems to compare"
    )
    parser.add_argument("--cases", type=int, default=15, help="how many cases for each")
    parser.add_argument("--predictions", type=Path, default=Path("calibrated.json"), help="written before the runs")
    given = parser.parse_args()
    made: list[tuple[Path, str, int, int, Path, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as directory:
        for number, data in enumerate(given.places):
            described = Path(directory) / f"here{number}.dlio"
            print(run([mpiexec(), "-n", "2", *CLI, "calibrate", "--dir", str(data), "-o", str(described)], 600))
            cache = "off" if number == 0 or "tmpfs" not in described.read_text() else "page"
            for seed in range(given.cases):
                place = Path(directory) / f"{number}-{seed}"
                place.mkdir()
                pattern, ranks = draw_case(seed)
                (place / "pattern.dlio").write_text(pattern)
                (place / "storage.dlio").write_text(described.read_text())
                made.append((data, cache, seed, ranks, place, predict(place, ranks)))
        given.predictions.write_text(json.dumps([(str(one[0]), *one[1:4], one[5]) for one in made]))
        header(
            "directory", "case", "ranks", "limit", "busy, predicted", "busy, run", "epoch, predicted", "run", "ratio"
        )
        errors: dict[Path, list[float]] = {}
        for data, cache, seed, ranks, place, predicted in made:
            epoch = execute(place, data, ranks, cache)
            ratio = predicted["seconds"] / epoch["seconds"]
            errors.setdefault(data, []).append(abs(ratio - 1))
            busy = f"{predicted['storage_utilization']['mean']:.1%}", f"{epoch['storage_utilization'] or 0:.1%}"
            times = f"{predicted['seconds']:.2f} s", f"{epoch['seconds']:.2f} s", f"{ratio:.2f}"
            row(data, seed, ranks, predicted["limited_by"], *busy, *times)
    for data, each in errors.items():
        print(f"\n{data}: median difference {statistics.median(each):.1%}, greatest {max(each):.0%}")
    return int(statistics.median([one for each in errors.values() for one in each]) > _MEDIAN)


if __name__ == "__main__":
    orderly(main)
