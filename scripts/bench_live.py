"""The cost for a loop of `run --live` on a terminal: runs with it and without it, in pairs, as markdown rows.

    python scripts/bench_live.py [--pairs 8] [--place /dev/shm]

Runs of the two take turns, and at going first. A run's figure is the mean time a step over all its epochs: every look
and every drawing is in it. Then the processor time of the thread for a look with its drawing, by ranks on the node.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from time import thread_time_ns

from bench_stalls import CASES, PATTERN
from harness import header, middle, mpiexec, orderly, row, run, scratch

from dliosim.commands.job.live import draw
from dliosim.measure.progress.board import BARRIER, DONE, ROW_BYTES, STEP, BoardRows
from dliosim.measure.progress.live import LiveMeter
from dliosim.measure.progress.task import Task
from dliosim.measure.rank.step_times import AT_ONCE, ROW
from dliosim.report.progress.live_screen import live_screen

#: Looks that are timed, and the time between two of them, ns.
LOOKS, BETWEEN = 200, 250_000_000

#: Runs a command on a terminal of its own.
ON_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"

#: Steps and epochs of a run, by its ranks and batch: seconds, and at least ten looks.
STEPS = {(1, 1): (30_000, 4), (1, 256): (250, 20), (2, 1): (30_000, 1)}


def step_time(place: Path, ranks: int, batch: int, options: list[str]) -> float:
    """Return the mean time a step of a run, in us."""
    shutil.rmtree(place / "out", ignore_errors=True)
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "dliosim.cli", "run", str(place / "bench.dlio")]
    steps, epochs = STEPS[ranks, batch]
    settings = ["-D", f"train.steps={steps}", "-D", f"train.epochs={epochs}", "-D", f"train.batch={batch} per rank"]
    places = ["--dir", str(place / "data"), "--output", str(place / "out")]
    run([sys.executable, "-c", ON_A_TERMINAL, *command, *places, *settings, *options], 120, {"TERM": "xterm"})
    phases = json.loads((place / "out" / "results.json").read_text())["phases"]
    done = next(phase["epochs"] for phase in phases if phase["kind"] == "train")
    return float(sum(one["loop_seconds"] for one in done) / sum(one["steps"] for one in done) * 1e6)


def look_times(ranks: int) -> list[float]:
    """Return the processor time of each look at a node of that many ranks, in us. Half of them wait."""
    rows = BoardRows(memoryview(bytearray(ranks * ROW_BYTES)))
    for rank, each in enumerate(rows):
        each.introduce(rank)
        each.begin("train", 3)
        each.words[STEP], each.words[DONE] = 5000, 10**10
        if rank % 2:
            each.arrive(BARRIER)
    task = Task("train", 3, 10, 100_000, readings=memoryview(bytearray(AT_ONCE * ROW.size)))
    meter, times = LiveMeter(rows, rows[0], ranks), []
    for look in range(LOOKS):
        now, begun = look * BETWEEN, thread_time_ns()
        draw(live_screen("a pattern", 60.0, meter.look(now, task), 80, 24))
        times.append((thread_time_ns() - begun) * 1e-3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--place", default="/dev/shm")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain this")
    arguments = parser.parse_args()
    header("what", "to reach", "with / without: median (min to max)", "us a step, without and with")
    with scratch(arguments.place) as place:
        os.chdir(place)  # `python -m` looks first in the directory where it is started
        (place / "bench.dlio").write_text(PATTERN)
        for what, ranks, batch, options in (case for case in CASES if arguments.only in case[0]):
            found: dict[bool, list[float]] = {False: [], True: []}
            for pair in range(arguments.pairs):
                for live in (False, True) if pair % 2 else (True, False):
                    found[live].append(step_time(place, ranks, batch, [*options, *["--live"] * live]))
            ratios = [new / old for old, new in zip(found[False], found[True], strict=True)]
            row(what, 1.01, middle(ratios, 3), f"{middle(found[False])}; {middle(found[True])}")
    print()
    header("ranks on the node", "us a look: median (min to max)")
    for ranks in (1, 4, 64, 512):
        row(ranks, middle(look_times(ranks), 0))


if __name__ == "__main__":
    orderly(main)
