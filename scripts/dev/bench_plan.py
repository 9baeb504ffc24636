"""The cost of one rank's plan of one epoch: seconds and peak memory, each in a fresh process, as markdown rows.

    python scripts/dev/bench_plan.py [--repetitions 5]

The time is that of `plan_epoch` and `plan_calls` at first use, without imports; the peak is that of the whole process
(VmHWM).
Block totals of varying sizes are computed once and mapped from a file, as the ranks of a node share them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import orderly

from dliosim.formats.raw import Raw
from dliosim.model import Access, Dataset, Distribution, Job, Layout, Loop, Shuffle, constant
from dliosim.plan.samples.io_requests import plan_calls
from dliosim.plan.samples.places import FramedPlaces
from dliosim.plan.samples.sample_to_file import block_count, block_totals, needs_totals, prefix_sum
from dliosim.plan.samples.sampler import plan_epoch

FIXED = constant(4096)
VARYING = Distribution("lognormal", (150_000.0, 90_000.0))


@dataclass(frozen=True)
class Case:
    title: str
    samples: int
    ranks: int
    varying: bool = False
    batch: int = 256
    limits: str = ""

    def dataset(self) -> Dataset:
        return Dataset("d", 1, self.samples, VARYING if self.varying else FIXED, Layout("shared file", 1), "d")

    def loop(self) -> Loop:
        return Loop("train", "l", "d", Access(), batch=self.batch, shuffle=Shuffle("globally"))


CASES = (
    Case("fixed size, the case asked", 10**9, 65_536, limits="0.5 s, 100 MB"),
    Case("fixed size, ranks x 16", 10**9, 1_048_576, batch=64),
    Case("fixed size, samples and ranks x 16", 16 * 10**9, 1_048_576),
    Case("fixed size, samples x 16", 16 * 10**9, 65_536),
    Case("fixed size, samples x 64", 64 * 10**9, 65_536),
    Case("varying size, the case asked", 10**8, 4_096, True, limits="2 s, 200 MB"),
    Case("varying size, ranks x 4", 10**8, 16_384, True),
    Case("varying size, a quarter of the samples and ranks", 25 * 10**6, 1_024, True),
    Case("fixed 4 KiB, one rank reads all", 4 * 10**6, 1),
)


def measure(case: Case, totals: Path | None) -> dict[str, float]:
    before = None if totals is None else np.load(totals, mmap_mode="r")
    idle = peak()
    started = time.perf_counter()
    extents = plan_epoch(case.loop(), FramedPlaces(Raw(case.dataset()), before), Job(case.ranks), case.ranks // 3, 1)
    made = plan_calls(extents, None)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak": peak(), "idle": idle, "rows": len(made.length), "steps": extents.steps}


def peak() -> float:
    """Return the peak resident memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))


def spread(values: list[float], unit: float = 1) -> str:
    return f"{statistics.median(values) * unit:.2f} ({min(values) * unit:.2f} to {max(values) * unit:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--totals", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        print(json.dumps(measure(CASES[arguments.case], arguments.totals)))
        return
    print("| case | samples | ranks | own samples | ms (min to max) | ns a sample | peak MB | by plan MB | limit |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            command = [sys.executable, __file__, "--case", str(number)]
            if needs_totals(case.dataset()):
                totals = Path(folder) / f"{number}.npy"
                np.save(totals, prefix_sum(block_totals(Raw(case.dataset()), 0, block_count(case.dataset()))))
                command += ["--totals", str(totals)]
            runs = [
                json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                for _ in range(arguments.repetitions)
            ]
            seconds = [run["seconds"] for run in runs]
            rows = runs[0]["rows"]
            peaks, growth = [run["peak"] for run in runs], [run["peak"] - run["idle"] for run in runs]
            print(
                f"| {case.title} | {case.samples:.3g} | {case.ranks} | {rows} | {spread(seconds, 1e3)} "
                f"| {statistics.median(seconds) / rows * 1e9:.0f} | {statistics.median(peaks):.0f} "
                f"| {statistics.median(growth):.1f} | {case.limits} |",
                flush=True,
            )


if __name__ == "__main__":
    orderly(main)
