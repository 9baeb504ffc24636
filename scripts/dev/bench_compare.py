"""Comparisons for real: how long one takes, whether what is the same is called the same, and the access methods.

    python scripts/dev/bench_compare.py [--place /dev/shm] [--same 40] [--output DIR]

1. 3 apis x 2 layouts x 8 repetitions of a 64 MiB data set on 2 ranks: the time of the whole command.
2. The same variant under two names, --same times, each time in another order: how often they are called different. The
   names are two sizes of call, both larger than any contiguous extent, so that exactly the same calls are made.
3. A variant made slower on purpose (5 %, 10 % and 20 % more compute, which is most of a step): whether it is found.
4. resnet50_shared on 2 ranks: posix, mpi-independent and mpi-collective, the last with each set of hints. Its table and
   verdict are printed, and its results are kept where --output says.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from harness import ROOT, header, mpiexec, orderly, row, run, scratch

#: 64 MiB.
PATTERN = """\
dlio 1
workload small "64 MiB of samples of 64 KiB"
dataset d {
    samples 1024
    size    64 KiB
    layout  shared file
    path    "small"
}
prepare d
train {
    read    d
    batch   16 per rank
    shuffle samples globally each epoch
}
"""

RANKS = 2


def compare(place: Path, output: Path, pattern: Path, *options: str, seconds: float = 600) -> tuple[Any, str, float]:
    """Run `dliosim compare`; return compare.json, the printed text, and the seconds of the whole command."""
    command = [mpiexec(), "-n", str(RANKS), sys.executable, "-m", "dliosim.cli", "compare", str(pattern)]
    begun = time.perf_counter()
    text = run([*command, *options, "--dir", str(place / "data"), "--output", str(output)], seconds)
    took = time.perf_counter() - begun
    return json.loads((output / "compare.json").read_text()), text, took


def matrix(place: Path, pattern: Path) -> None:
    """Print the time of 3 apis x 2 layouts x 8 repetitions."""
    options = ("--vary", "api=posix,mpi-independent,mpi-collective", "--vary", "layout=shared file,file per sample")
    _, text, took = compare(place, place / "matrix", pattern, *options)
    print(text)
    print(f"the whole command took {took:.1f} s\n", flush=True)


def same(place: Path, pattern: Path, times: int) -> None:
    """Print how often the same variant under two names is called different."""
    different = 0
    for number in range(times):
        vary = "transfer=1 MiB,2 MiB"
        found, _, _ = compare(place, place / f"same-{number}", pattern, "--vary", vary, "--seed", str(number))
        different += found["variants"][1]["verdict"] in ("faster", "slower")
    print(f"the same under two names: called different in {different} of {times} comparisons\n", flush=True)


def slower(place: Path, pattern: Path) -> None:
    """Print whether a variant made slower on purpose is found."""
    header("more compute", "times as fast", "interval", "would have shown", "verdict")
    for number, percent in enumerate((5, 10, 20)):
        compute = f"compute=2000 us,{2000 + 20 * percent} us"
        found, _, _ = compare(place, place / f"slower-{number}", pattern, "--vary", compute)
        one = found["variants"][1]
        interval = f"{one['ratio_low']:.3f} to {one['ratio_high']:.3f}"
        row(f"{percent} %", f"{one['ratio']:.3f}", interval, f"{1 + one['smallest_difference']:.3f}", one["verdict"])
    print(flush=True)


def resnet50(place: Path, output: Path) -> None:
    """Compare the access methods on the workload that is there for this."""
    pattern = ROOT / "patterns" / "resnet50_shared.dlio"
    options = ("--vary", "api=posix,mpi-independent,mpi-collective", "--vary", "hints=library,two-phase,no-aggregation")
    smaller = ("-D", "main.epochs=1", "-D", "files=2", "-D", "main.compute=0 s", "-D", "batch=64")
    _, text, took = compare(place, output, pattern, *options, *smaller, "--loop", "main", seconds=1800)
    print(text)
    print(f"the whole command took {took:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", default="/dev/shm", help="directory on the file system to measure")
    parser.add_argument("--same", type=int, default=40, metavar="N", help="comparisons of a variant with itself")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where results of resnet50 stay")
    parsed = parser.parse_args()
    with scratch(parsed.place) as place:
        pattern = place / "small.dlio"
        pattern.write_text(PATTERN)
        matrix(place, pattern)
        same(place, pattern, parsed.same)
        slower(place, pattern)
        resnet50(place, parsed.output or place / "resnet50")


if __name__ == "__main__":
    orderly(main)
