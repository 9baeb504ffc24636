#!/usr/bin/env python
"""Two checkouts in turn: reads, `--null`, start and plans, as ratios of the second one's time by the first one's.

    python scripts/bench_trees.py OLD [NEW] [--pairs 20] [--place /dev/shm] [--only CASE ...]

OLD and NEW are folders of checkouts (NEW is this one where it is not given). Both run with this interpreter and its
MPI. Of each pair the order is the other way round than of the pair before. A row gives the median of the ratios, its
95 % interval by order statistics (of 20 pairs the 6th and the 15th), and both medians.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from harness import ROOT, mpiexec, orderly, run, scratch

PATTERN = """dlio 1
workload trees
dataset d {{
    samples {samples}
    size    {size}
    layout  {layout}
    path    "d"
}}
prepare d
train {{
    read    d
    epochs  8
    batch   16 per rank
    shuffle samples globally each epoch
    api     {api}
}}
"""


@dataclass(frozen=True)
class Case:
    """Something that both trees do: its name, its unit, and the time that one run of it takes."""

    name: str
    unit: str
    measure: Callable[[Path, Path], float]


def command_line(tree: Path, ranks: int, *words: str) -> float:
    """Run dliosim of a tree and return the seconds of the whole command."""
    launcher = [mpiexec(), "-n", str(ranks)] if ranks else []
    began = perf_counter()
    run([*launcher, sys.executable, "-m", "dliosim.cli", *words], 300, {"PYTHONPATH": str(tree)})
    return perf_counter() - began


def loop(api: str, size: str, layout: str, ranks: int, null: bool = False) -> Callable[[Path, Path], float]:
    """Return what measures the seconds of a loop's epochs after the first, by the tree's own clock."""

    def measure(tree: Path, place: Path) -> float:
        pattern, output = place / "trees.dlio", place / "results"
        pattern.write_text(PATTERN.format(samples=65536 if null else 4096, size=size, layout=layout, api=api))
        options = ["--null"] if null else []
        command_line(tree, ranks, "run", str(pattern), "--dir", str(place / "data"), "--output", str(output), *options)
        results = json.loads((output / "results.json").read_text())
        for file in output.iterdir():
            file.unlink()
        output.rmdir()
        epochs = next(phase["epochs"] for phase in results["phases"] if phase["kind"] == "train")
        return float(statistics.median(epoch["seconds"] for epoch in epochs[1:]))

    return measure


def words(ranks: int, *arguments: str) -> Callable[[Path, Path], float]:
    """Return what measures the seconds of a whole command; `PATTERNS/` stands for the tree's patterns."""

    def measure(tree: Path, place: Path) -> float:
        given = [word.replace("PATTERNS", str(tree / "patterns")) for word in arguments]
        return command_line(tree, ranks, *given)

    return measure


def tiny_run(tree: Path, place: Path) -> float:
    """Measure a run of 2 ranks that does next to nothing: its start and its end."""
    pattern = place / "tiny.dlio"
    pattern.write_text(PATTERN.format(samples=32, size="4 kB", layout="shared file", api="posix"))
    output = str(place / f"tiny-{perf_counter()}")
    return command_line(tree, 2, "run", str(pattern), "--dir", str(place / "data"), "--output", output)


CASES = (
    Case("reads, posix, shared file, 4 kB, 1 rank", "an epoch", loop("posix", "4 kB", "shared file", 1)),
    Case("reads, posix, 8 files, 64 kB, 2 ranks", "an epoch", loop("posix", "64 kB", "8 files", 2)),
    Case("reads, mpi-independent, 64 kB, 1 rank", "an epoch", loop("mpi-independent", "64 kB", "shared file", 1)),
    Case("`--null`, 1 rank", "an epoch", loop("posix", "64 B", "shared file", 1, null=True)),
    Case("`--null`, 2 ranks", "an epoch", loop("posix", "64 B", "shared file", 2, null=True)),
    Case("start and end of a run, 2 ranks", "a command", tiny_run),
    Case("`check` of cosmoflow", "a command", words(0, "check", "PATTERNS/cosmoflow.dlio")),
    Case("`plan` of cosmoflow, 512 ranks", "a command", words(0, "plan", "PATTERNS/cosmoflow.dlio", "--ranks", "512")),
    Case("`plan` of llama3_8b, 512 ranks", "a command", words(0, "plan", "PATTERNS/llama3_8b.dlio", "--ranks", "512")),
)  # fmt: skip


def median_interval(values: list[float]) -> tuple[float, float]:
    """Return the order statistics between which the median is with at least 95 %, of 6 values or more."""
    count, ordered = len(values), sorted(values)
    below, rank = 0.0, -1
    while below + math.comb(count, rank + 1) / 2**count <= 0.025:
        rank += 1
        below += math.comb(count, rank) / 2**count
    return ordered[max(rank, 0)], ordered[count - 1 - max(rank, 0)]


def compare(case: Case, trees: tuple[Path, Path], pairs: int, place: Path) -> None:
    """Measure one case in turn, and print its row."""
    times: tuple[list[float], list[float]] = ([], [])
    for tree in trees:
        case.measure(tree, place)  # the first run writes bytecode and data
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            times[side].append(case.measure(trees[side], place))
    ratios = [new / old for old, new in zip(*times, strict=True)]
    low, high = median_interval(ratios)
    old, new = (statistics.median(side) * 1e3 for side in times)
    middle = statistics.median(ratios)
    print(f"| {case.name} | {case.unit} | {old:.4g} | {new:.4g} | {middle:.3f} | {low:.3f} to {high:.3f} |", flush=True)


def main() -> None:
    """Measure every case, as markdown rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of the first checkout")
    parser.add_argument("new", type=Path, nargs="?", default=ROOT, help="folder of the second (default: this one)")
    parser.add_argument("--pairs", type=int, default=20, help="at least 6 (default 20)")
    parser.add_argument("--place", default="/dev/shm", help="where data are put (default /dev/shm)")
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name holds one of these")
    parsed = parser.parse_args()
    if parsed.pairs < 6:
        parser.error("fewer than 6 pairs have no 95 % interval")
    print("| case | time of | old, ms | new, ms | new / old | 95 % interval |\n|---|---|---|---|---|---|")
    for case in CASES:
        if any(text in case.name for text in parsed.only):
            with scratch(parsed.place) as place:
                compare(case, (parsed.old.resolve(), parsed.new.resolve()), parsed.pairs, place)


if __name__ == "__main__":
    orderly(main)
