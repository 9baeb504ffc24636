"""Ranks, rates and efficiency of a scaling study, one row for each run and loop.

    python scripts/scaling_table.py RESULTS...

RESULTS are directories with a results.json. A loop's rate is that of its epochs after the first (of the only one):
their bytes by the sum of their times, the slowest rank's; that of a verb which writes or reads files is its bytes by
its time, over all of its runs. Efficiency is the rate a rank, by the rate a rank of the run with the fewest ranks:
100 % is perfect scaling, weak or strong.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tabulate import tabulate


def rates(results: dict[str, Any]) -> dict[str, float]:
    """Bytes a second of each loop, and of each verb that moved bytes, by its name."""
    moved: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for phase in results["phases"]:
        name = f"{phase['kind']} {phase['name']}".strip()
        if phase["epochs"]:
            for epoch in phase["epochs"][1:] or phase["epochs"]:
                moved[name] += epoch["bytes"]
                seconds[name] += epoch["loop_seconds"]
        elif phase["files"] and phase["files"]["bytes"]:
            moved[name] += phase["files"]["bytes"]
            seconds[name] += phase["seconds"]
    return {name: moved[name] / seconds[name] for name in moved if seconds[name] > 0}


def table(runs: list[dict[str, Any]]) -> list[list[object]]:
    """[what, ranks, GB/s, efficiency in %] of every run, those of one loop or verb together."""
    runs = sorted(runs, key=lambda results: results["ranks"])
    found = [(results["ranks"], rates(results)) for results in runs]
    names = list(dict.fromkeys(name for _, of_run in found for name in of_run))
    rows: list[list[object]] = []
    for name in names:
        base = next(of_run[name] / ranks for ranks, of_run in found if name in of_run)
        for ranks, of_run in found:
            if name in of_run:
                rows.append([name, ranks, of_run[name] / 1e9, 100 * of_run[name] / ranks / base])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, help="directories with a results.json")
    runs = [json.loads((place / "results.json").read_text()) for place in parser.parse_args().results]
    print(tabulate(table(runs), ["phase", "ranks", "GB/s", "efficiency %"], floatfmt=("", "", ".3f", ".1f")))


if __name__ == "__main__":
    main()
