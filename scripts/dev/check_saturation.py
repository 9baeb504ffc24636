"""Compare `dliosim saturate` on described storages with arithmetic, and with `predict`.

    python scripts/dev/check_saturation.py [--most 48]

The storage has a rate W, each accelerator needs 10 MB/s while it computes, and the goal u is a utilization of 90 %. So
floor(W / (u x 10 MB/s)) accelerators are fed without a sync. With a barrier in each step the slowest rank decides, and
`predict` has the number. Each case is a row of a table; the status is 1 if one differs by more than 1 and by 2 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import header, mpiexec, orderly, row, run

NEED, GOAL = 10e6, 0.9
PATTERN = """dlio 1
workload need "each accelerator needs 10 MB/s"
param sync = off
dataset d {
    samples  100_000
    size     100 kB
    layout   file per sample
    path     "d"
}
train t {
    read      d
    batch     4 per rank
    compute   40 ms
    readers   4
    prefetch  4 batches
    sync      $sync
}
"""
STORAGE = "dlio 1\nstorage w {{\n    servers  1 of {} MB/s\n    latency  1 ms\n}}\n"

_CLI = (sys.executable, "-m", "dliosim.cli")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=48, help="ranks to start at most")
    most, failed = parser.parse_args().most, False
    header("W / need", "sync", "expected", "by", "measured", "between", "limit")
    for ratio in (3, 10, 40):
        # Enough ranks for the number above the answer, which must not be fed.
        ranks = int(ratio / GOAL) + max(2, ratio // 10)
        for sync in ("off", "barrier") if ranks <= most else ():
            found, expected, by = _measure(ratio, sync, ranks)
            number = found["accelerators"]
            agrees = abs(number["most"] - expected) <= max(1, 0.02 * expected)
            # A search that says that its own ranks were the limit says nothing about the storage.
            is_judged = found["limited_by"] != "client"
            failed |= is_judged and not agrees
            verdict = "" if agrees else " **no**" if is_judged else " (not judged)"
            between = f"{number['low']} to {number['high']}"
            row(ratio, sync, expected, by, f"{number['most']}{verdict}", between, found["limited_by"])
    return int(failed)


def _measure(ratio: int, sync: str, ranks: int) -> tuple[dict[str, Any], int, str]:
    """Return the answer of a search, the number that is expected, and where that is from."""
    with tempfile.TemporaryDirectory() as directory:
        pattern, storage = Path(directory) / "need.dlio", Path(directory) / "w.dlio"
        pattern.write_text(PATTERN)
        storage.write_text(STORAGE.format(round(ratio * NEED / 1e6)))
        common = [str(pattern), "--storage", str(storage), "--until", f"{GOAL:.0%}", "-D", f"sync={sync}", "--json"]
        output = ["--output", str(Path(directory) / "out"), "--dir", str(Path(directory) / "data")]
        found = json.loads(run([mpiexec(), "-n", str(ranks), *_CLI, "saturate", *common, *output], 1800))
        if sync == "off":
            return found, int(ratio / GOAL), "arithmetic"
        predicted = json.loads(run([*_CLI, "predict", *common, "--per-node", str(ranks)], 600))["predicted"]
        fed = [one["ranks"] for one in predicted if one["storage_utilization"]["mean"] >= GOAL]
        return found, max(fed, default=0), "predict"


if __name__ == "__main__":
    orderly(main)
