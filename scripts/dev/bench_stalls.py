"""The cost for a loop of looking for stalls: this checkout against another one, in pairs, as markdown rows.

    git archive COMMIT dliosim | tar -x -C /tmp/old
    python scripts/dev/bench_stalls.py --old /tmp/old [--pairs 10] [--place /dev/shm]

Runs of the two take turns, and at going first. A run's figure is the least time a step of its epochs. There are many
epochs of a millisecond or two each, so that other work of the machine is not in it; each pair gives a ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from harness import ROOT, header, middle, mpiexec, orderly, row, run, scratch

PATTERN = """\
dlio 1
workload stalls
seed 1
dataset d {
    samples 65_536
    size    4 KiB
    layout  shared file
    path    "d"
}
prepare d
train {
    read    d
    batch   1 per rank
    steps   200
    epochs  300
    shuffle samples globally each epoch
}
"""

CASES = (
    ("`--null`, 1 rank, batch 1", 1, 1, ["--null"]),
    ("`--null`, 2 ranks, batch 1", 2, 1, ["--null"]),
    ("4 KiB on tmpfs, warm, 1 rank, batch 1", 1, 1, []),
    ("4 KiB on tmpfs, warm, 1 rank, batch 256", 1, 256, []),
    ("4 KiB on tmpfs, warm, 2 ranks, batch 1", 2, 1, []),
)


def step_time(tree: Path, place: Path, ranks: int, batch: int, options: list[str]) -> float:
    """Return the least time a step of the epochs of one run of a tree's dliosim, in us."""
    shutil.rmtree(place / "out", ignore_errors=True)
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "dliosim.cli", "run", str(place / "bench.dlio")]
    settings = ["-D", "train.batch=256 per rank", "-D", "train.steps=10"] if batch > 1 else []
    places = ["--dir", str(place / "data"), "--output", str(place / "out")]
    run([*command, *places, *settings, *options], 120, {"PYTHONPATH": str(tree)})
    phases = json.loads((place / "out" / "results.json").read_text())["phases"]
    epochs = next(phase["epochs"] for phase in phases if phase["kind"] == "train")
    return min(epoch["loop_seconds"] / epoch["steps"] for epoch in epochs) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="a directory with another version of dliosim/")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--place", default="/dev/shm")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain this")
    arguments = parser.parse_args()
    trees = {"old": arguments.old.resolve(), "new": ROOT}
    header("what", "to reach", "new / old: median (min to max)", "us a step, old and new")
    with scratch(arguments.place) as place:
        os.chdir(place)  # `python -m` looks first in the directory where it is started
        (place / "bench.dlio").write_text(PATTERN)
        for what, ranks, batch, options in (case for case in CASES if arguments.only in case[0]):
            found: dict[str, list[float]] = {"old": [], "new": []}
            for pair in range(arguments.pairs):
                for name in ("old", "new") if pair % 2 else ("new", "old"):
                    found[name].append(step_time(trees[name], place, ranks, batch, options))
            ratios = [new / old for old, new in zip(found["old"], found["new"], strict=True)]
            row(what, 1.02, middle(ratios, 3), f"{middle(found['old'])}; {middle(found['new'])}")


if __name__ == "__main__":
    orderly(main)
