"""Compare predictions with runs on the same described storages: patterns, storages and ranks drawn at random.

    python scripts/dev/check_predictions.py [--cases 40] [--seed 1] [--ranks 1 2 3 5 8] [--saves] [--predictions FILE]
    python scripts/dev/check_predictions.py --only SEED

Each case is one loop on one storage, drawn by its seed alone. All predictions are written to FILE before the first run
on a storage.
A case agrees if the storage-limited utilization of its run is within 2 points of the prediction, and the time of its
epoch within 5 %. With `--saves` each loop also saves in the background, and the times of its saves are shown. The
output is a markdown table and how many cases agree; the status is 1 if fewer than 95 % do.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import header, mpiexec, orderly, row, run

#: Differences within which a run agrees with its prediction: of utilization, and of the time of an epoch.
_POINTS, _SHARE = 0.02, 0.05

#: The share of cases that should agree.
_ENOUGH = 0.95

#: A storage on which a call takes its latency, whatever the others do.
_FAST = 'dlio 1\nstorage drawn_storage "fast" {{\n    servers 1000 of 100 GB/s\n    latency {} us\n}}\n'

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


def add_saves(pattern: str, seed: int) -> str:
    """Return a pattern whose loop saves in the background, two or three times."""
    drawn = random.Random(f"saves {seed}")
    writers = drawn.choice(["into file per rank", "one per 2 ranks", "all ranks into shared file"])
    lines = [f"part state {10 ** drawn.uniform(6.5, 8.3):.0f} B total", 'path "c"', f"writers {writers}"]
    saved = "\n    ".join(["checkpoint c {", *lines, "transfer 1 MiB", "async on"]) + "\n}\n"
    return pattern.replace("train {", f"{saved}train {{\n    checkpoint c every {drawn.choice([20, 25])} steps")


def predict(place: Path, storage: str, ranks: int, *more: str) -> dict[str, Any]:
    """Return what is predicted of a case on one of its storages, with more words on the command line."""
    jobs = ["--ranks", str(ranks), "--per-node", str(ranks)]
    out = run([*CLI, "predict", *_files(place, storage), *jobs, "--json", *more], 600)
    predicted: dict[str, Any] = json.loads(out)["predicted"][0]
    step, first = predicted["step_seconds"], predicted["first_step_seconds"]
    predicted["seconds"] = first + (predicted["steps"] - 1) * step
    return predicted


def predict_with_client(place: Path, ranks: int) -> dict[str, Any]:
    """Return what is predicted of a case, with the ranks' own time for a step as `step time`.

    A run of the same loop without any I/O has all of it: 1 to 8 % of these steps, which the epoch takes longer. A run
    on a storage that is never full has what a run counts as waiting for data: batches that are handed over late. Only
    this part lowers storage-limited utilization.
    """
    described = re.search(r"step time (\d+) us", (place / "storage.dlio").read_text())
    known = int(described[1]) if described else 0
    loop = execute(place, ranks, place / "null", [str(place / "pattern.dlio"), "--null"])
    ideal = predict(place, "storage.dlio", ranks)["ideal_step_seconds"] * 1e6
    whole = ideal * (1 / loop["utilization"] - 1) + known
    latency = re.search(r"latency (\d+) us", (place / "storage.dlio").read_text())
    (place / "fast.dlio").write_text(_FAST.format(latency[1] if latency else 1000))
    busy = predict(place, "fast.dlio", ranks)["storage_utilization"]["mean"]
    fast = execute(place, ranks, place / "fast", _files(place, "fast.dlio"))
    late = max(ideal * (1 / fast["storage_utilization"] - 1 / busy), 0.0) + known
    predicted = predict(place, "storage.dlio", ranks, "-D", f"drawn_storage.step time={whole:.0f} us")
    utilization = predict(place, "storage.dlio", ranks, "-D", f"drawn_storage.step time={late:.0f} us")
    return predicted | {"storage_utilization": utilization["storage_utilization"]}


def execute(place: Path, ranks: int, out: Path, words: list[str]) -> dict[str, Any]:
    """Return the epoch of a run, with the mean time of its saves, if there are some."""
    job = [mpiexec(), "-n", str(ranks), *CLI, "run", *words, "--dir", str(place / "data"), "--output", str(out)]
    run(job, 600)
    phases = json.loads((out / "results.json").read_text())["phases"]
    epoch: dict[str, Any] = next(one for one in phases if one["kind"] == "train")["epochs"][0]
    saves = [one["seconds"] for one in phases if one["kind"] == "save"]
    return epoch | {"saves": statistics.fmean(saves) if saves else None}


def _files(place: Path, storage: str) -> list[str]:
    return [str(place / "pattern.dlio"), "--storage", str(place / storage)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=40, help="how many cases")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next number")
    parser.add_argument("--only", type=int, metavar="SEED", help="one case, with its files")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 5, 8], help="numbers of ranks to draw from")
    parser.add_argument("--saves", action="store_true", help="save in the background during each loop")
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
            pattern = add_saves(pattern, seed) if given.saves else pattern
            (place / "pattern.dlio").write_text(pattern)
            (place / "storage.dlio").write_text(storage)
            if given.only is not None:
                print(pattern, storage, sep="\n")
            cases[seed] = place, ranks, predict_with_client(place, ranks)
        given.predictions.write_text(json.dumps({seed: predicted for seed, (_, _, predicted) in cases.items()}))
        saves = ["save, predicted", "run", "ratio"] if given.saves else []
        loops = ["busy, predicted", "busy, run", "points", "epoch, predicted", "run", "ratio"]
        header("case", "ranks", "limit", *loops, *saves, "")
        agreed = 0
        for seed, (place, ranks, predicted) in cases.items():
            agreed += _compare(
                seed, ranks, predicted, execute(place, ranks, place / "out", _files(place, "storage.dlio"))
            )
        print(f"\n{agreed} of {len(cases)} agree")
    return int(agreed < _ENOUGH * len(cases))


def _compare(seed: int, ranks: int, predicted: dict[str, Any], epoch: dict[str, Any]) -> bool:
    """Print the row of a case; return whether its run agrees with the prediction."""
    busy, took = predicted["storage_utilization"]["mean"], epoch["seconds"]
    points, ratio = busy - epoch["storage_utilization"], predicted["seconds"] / took
    agrees = abs(points) <= _POINTS and abs(ratio - 1) <= _SHARE
    shares = (f"{busy:.1%}", f"{epoch['storage_utilization']:.1%}", f"{100 * points:+.1f}")
    times = [f"{predicted['seconds']:.2f} s", f"{took:.2f} s", f"{ratio:.3f}"]
    if epoch["saves"] is not None:
        saved = predicted["saves"][0]["seconds"]
        times += [f"{saved:.3f} s", f"{epoch['saves']:.3f} s", f"{saved / epoch['saves']:.3f}"]
    row(seed, ranks, predicted["limited_by"], *shares, *times, "" if agrees else "**no**")
    return agrees


if __name__ == "__main__":
    orderly(main)
