"""The cost of the tool itself: `--null` time a step and a sample, and samples/s by another clock, as markdown rows.

    python scripts/dev/bench_null.py [--repetitions 7] [--place /dev/shm]

With --null nothing is read and nothing computed: all the time of the steps is the tool's. Two loops run by turns, with
batches of 1 and of 256 and a barrier a step; time a step = a + b x batch gives a and b of each pair of epochs. `tool`
is the figure that a run reports (wall time less waiting for data, for ranks, and computing; the pass through the null
backend is in it), `loop` the whole wall time of the steps, the barrier included.

The identity is samples/s = ranks x batch / compute x utilization, of a real run that is bound by compute. Of figures of
one run it holds by their definition. Here only the utilization is the run's own: samples are those of the pattern, and
the time of an epoch is that between the checkpoints of one byte before and after it, as the file system dated their
manifests. So it holds only if the run's clock has no gaps. The checkpoint, planning the epoch and the file system's
clock (4 ms) are in that time: together under 1 % of it where nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from itertools import pairwise
from pathlib import Path

from harness import header, middle, mpiexec, orderly, row, run, scratch

from dliosim.execute.store.manifest import NAME

PATTERN = """\
dlio 1
workload tool
seed 1
dataset d {
    samples 1_048_576
    size    4 KiB
    layout  shared file
    path    "d"
}
train single {
    read    d
    batch   1 per rank
    steps   20_000
    shuffle samples globally each epoch
}
train many {
    read    d
    batch   256 per rank
    steps   2000
    shuffle samples globally each epoch
}
"""

COMPUTE_SECONDS, BATCH, STEPS, EPOCHS = 5e-3, 8, 800, 3

IDENTITY = f"""\
dlio 1
workload identity
seed 1
dataset d {{
    samples {BATCH * STEPS} * $ranks
    size    4 KiB
    layout  shared file
    path    "d"
}}
checkpoint mark {{
    part    byte 1 B total
    path    "mark"
}}
prepare d
train {{
    read    d
    epochs  {EPOCHS}
    batch   {BATCH} per rank
    checkpoint mark every 1 epochs
    shuffle samples globally each epoch
    readers 1
    compute {COMPUTE_SECONDS * 1e3} ms
}}
"""


def epochs(place: Path, ranks: int, pattern: str, *options: str) -> dict[str, list[dict[str, object]]]:
    """Return the epochs of each loop, as results.json has them."""
    shutil.rmtree(place / "out", ignore_errors=True)
    (place / "bench.dlio").write_text(pattern)
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "dliosim.cli", "run", str(place / "bench.dlio")]
    run([*command, "--dir", str(place / "data"), "--output", str(place / "out"), *options], 120)
    phases = json.loads((place / "out" / "results.json").read_text())["phases"]
    return {phase["name"]: phase["epochs"] for phase in phases if phase.get("epochs")}


def cost(place: Path, ranks: int, repetitions: int) -> None:
    found: dict[str, list[float]] = {"tool step": [], "tool sample": [], "loop step": [], "loop sample": []}
    for _ in range(repetitions):
        loops = epochs(place, ranks, PATTERN, "--null")
        (single,), (many,) = loops["single"], loops["many"]
        for name, seconds in (("tool", lambda e: e["tool_seconds"]["mean"]), ("loop", lambda e: e["loop_seconds"])):
            one, all_256 = seconds(single) / single["steps"] * 1e6, seconds(many) / many["steps"] * 1e6
            sample = (all_256 - one) / 255
            found[f"{name} sample"].append(sample)
            found[f"{name} step"].append(one - sample)
    said = "1 rank" if ranks == 1 else f"{ranks} ranks"
    row(f"`--null`, {said}: tool time a step, us", 20, middle(found["tool step"]))
    row(f"`--null`, {said}: tool time a sample, us", 0.5, middle(found["tool sample"], 3))
    row(f"`--null`, {said}: whole loop a step, us", "", middle(found["loop step"]))
    row(f"`--null`, {said}: whole loop a sample, us", "", middle(found["loop sample"], 3))


def identity(place: Path, ranks: int, repetitions: int) -> None:
    ratios, utilization = [], []
    for _ in range(repetitions):
        shutil.rmtree(place / "data" / "mark", ignore_errors=True)
        found = epochs(place, ranks, IDENTITY)["train"]
        dated = sorted(path.stat().st_mtime_ns * 1e-9 for path in (place / "data" / "mark").rglob(NAME))
        if len(dated) != EPOCHS:
            sys.exit(f"{len(dated)} checkpoints where {EPOCHS} were saved")
        for epoch, (began, ended) in zip(found[1:], pairwise(dated), strict=True):
            rate = ranks * BATCH * STEPS / (ended - began)
            ratios.append(rate / (ranks * BATCH / COMPUTE_SECONDS * epoch["utilization"]))
            utilization.append(epoch["utilization"])
    measured = f"{middle(ratios, 5)}, at a utilization of {statistics.median(utilization):.4f}"
    said = "1 rank" if ranks == 1 else f"{ranks} ranks"
    what = f"compute-bound, {said}: samples/s by another clock / (ranks x batch / compute x utilization)"
    row(what, "0.99 to 1.01", measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--place", default="/dev/shm")
    arguments = parser.parse_args()
    header("what", "to reach", "median (min to max)")
    for ranks in (1, 2):
        with scratch(arguments.place) as place:
            cost(place, ranks, arguments.repetitions)
    for ranks in (1, 2):
        with scratch(arguments.place) as place:
            identity(place, ranks, -(-arguments.repetitions // 3))


if __name__ == "__main__":
    orderly(main)
