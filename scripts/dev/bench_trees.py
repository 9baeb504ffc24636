#!/usr/bin/env python
"""Two checkouts in turn: reads, saves, prepares, `--null`, start and plans, as ratios of their times.

    python scripts/dev/bench_trees.py OLD [NEW] [--pairs 20] [--place /dev/shm] [--only CASE ...]

OLD and NEW are folders of checkouts (NEW is this one where it is not given). Both run with this interpreter and its
MPI. Of each pair the order is the other way round than of the pair before. A row gives the median of the ratios, its
95 % interval by order statistics (of 20 pairs the 6th and the 15th), and both medians.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from harness import ROOT, mpiexec, orderly, run, scratch

LOOP = """dlio 1
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
    batch   {batch} per rank
    shuffle samples globally each epoch
    api     {api}
    sync    {sync}
}}
"""

SAVES = """dlio 1
workload trees
checkpoint c {{
    part     weights {size} total
    part     optimizer {size} per rank
    writers  {writers}
    keep     1
    path     "c"
}}
repeat 8 {{
    save c
}}
restore c
"""

PREPARES = """dlio 1
workload trees
dataset d {{
    samples {samples}
    {sample}
    layout  {layout}
    format  {format}
    path    "d"
}}
repeat 6 {{
    prepare d afresh
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


def phases(text: str, kind: str, ranks: int, *options: str) -> Callable[[Path, Path], float]:
    """Return what runs a pattern and measures the median seconds of its phases of a kind, or of a loop's epochs.

    By the tree's own clock, without the first phase or epoch.
    """

    def measure(tree: Path, place: Path) -> float:
        pattern, output = place / "trees.dlio", place / "results"
        pattern.write_text(text)
        command_line(tree, ranks, "run", str(pattern), "--dir", str(place / "data"), "--output", str(output), *options)
        results = json.loads((output / "results.json").read_text())
        for file in output.iterdir():
            file.unlink()
        output.rmdir()
        found = [phase for phase in results["phases"] if phase["kind"] == kind]
        return float(statistics.median(one["seconds"] for one in (found[0].get("epochs") or found)[1:]))

    return measure


def loop(
    api: str, size: str, layout: str, ranks: int, samples: int = 4096, batch: int = 16, sync: str = "barrier"
) -> Callable[[Path, Path], float]:
    """Return what measures the seconds of a loop's epochs after the first."""
    text = LOOP.format(samples=samples, size=size, layout=layout, api=api, batch=batch, sync=sync)
    return phases(text, "train", ranks, *["--null"] * (samples == NULL_SAMPLES))


def saves(writers: str, size: str, ranks: int) -> Callable[[Path, Path], float]:
    """Return what measures the seconds of a save."""
    return phases(SAVES.format(size=size, writers=writers), "save", ranks)


def prepares(
    form: str, samples: int, layout: str = "file per sample", sample: str = "size 64 KiB"
) -> Callable[[Path, Path], float]:
    """Return what measures the seconds of preparing a data set of a format."""
    return phases(PREPARES.format(samples=samples, sample=sample, layout=layout, format=form), "prepare", 1)


def words(ranks: int, *arguments: str) -> Callable[[Path, Path], float]:
    """Return what measures the seconds of a whole command; `PATTERNS/` stands for the tree's patterns."""

    def measure(tree: Path, place: Path) -> float:
        given = [word.replace("PATTERNS", str(tree / "patterns")) for word in arguments]
        return command_line(tree, ranks, *given)

    return measure


def tiny_run(tree: Path, place: Path) -> float:
    """Measure a run of 2 ranks that does next to nothing: its start and its end."""
    pattern = place / "tiny.dlio"
    pattern.write_text(
        LOOP.format(samples=32, size="4 kB", layout="shared file", api="posix", batch=16, sync="barrier")
    )
    output = str(place / f"tiny-{perf_counter()}")
    return command_line(tree, 2, "run", str(pattern), "--dir", str(place / "data"), "--output", output)


#: Samples of loops that read nothing: enough for the steps to take most of the time.
NULL_SAMPLES = 65536

#: Formats that are prepared in several files, with what a sample is there.
SAMPLES = (
    *((form, "size 64 KiB") for form in ("raw", "hdf5", "npy", "npz", "tfrecord", "tar")),
    ("indexed", "shape 32768 of uint16"),
)

CASES = (
    Case("reads, posix, shared file, 4 kB, 1 rank", "an epoch", loop("posix", "4 kB", "shared file", 1)),
    Case("reads, 4 KiB, batch 1, no sync", "an epoch", loop("posix", "4 KiB", "shared file", 1, 4096, 1, "off")),
    Case("reads, 4 KiB, batch 256, no sync", "an epoch", loop("posix", "4 KiB", "8 files", 1, 65000, 256, "off")),
    Case("reads, posix, 8 files, 64 kB, 2 ranks", "an epoch", loop("posix", "64 kB", "8 files", 2)),
    Case("reads, mpi-independent, 64 kB, 1 rank", "an epoch", loop("mpi-independent", "64 kB", "shared file", 1)),
    Case("`--null`, 1 rank", "an epoch", loop("posix", "64 B", "shared file", 1, NULL_SAMPLES)),
    Case("`--null`, 2 ranks", "an epoch", loop("posix", "64 B", "shared file", 2, NULL_SAMPLES)),
    Case("saves, a file a rank, 2 ranks", "a save", saves("into file per rank", "64 MiB", 2)),
    Case("saves, shared file, 2 ranks", "a save", saves("all ranks into shared file", "64 MiB", 2)),
    Case("saves of little, 1 rank", "a save", saves("into file per rank", "64 KiB", 1)),
    *(Case(f"prepare, {form}, 8 files", "a prepare", prepares(form, 2048, "8 files", one)) for form, one in SAMPLES),
    *(Case(f"prepare, {form}, file per sample", "a prepare", prepares(form, 2048)) for form in ("raw", "hdf5", "csv")),
    *(Case(f"prepare, {form}, file per sample", "a prepare", prepares(form, 100)) for form in ("jpeg", "png")),
    Case("prepare, parquet, 8 files", "a prepare", prepares("parquet", 2048, "8 files")),
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
    trees = (parsed.old.resolve(), parsed.new.resolve())
    for tree in trees:  # else a tree without bytecode compiles every module in every run, where Python keeps none
        compileall.compile_dir(tree / "dliosim", quiet=2)
    print("| case | time of | old, ms | new, ms | new / old | 95 % interval |\n|---|---|---|---|---|---|")
    for case in CASES:
        if any(text in case.name for text in parsed.only):
            with scratch(str(Path(parsed.place).resolve())) as place:
                os.chdir(place)  # `python -m` looks in the working directory first: in a checkout both were that one
                compare(case, trees, parsed.pairs, place)


if __name__ == "__main__":
    orderly(main)
