"""Kill jobs that save checkpoints, at random points, and look at what they leave: nothing that is not complete counts.

    python scripts/dev/kill_checkpoints.py [--kills 200] [--seed 1] [--place DIR]

Each of several kinds of saving takes its turn. Every job restores first what the one before it left, with every byte
checked, and must restore the newest complete checkpoint; then it saves four times and is killed meanwhile (tests/mpi/
killing.py says where and how). After it all checkpoints that count are read and summed up, and none that was complete
before may be missing, unless a newer one is there. After four kills comes a job that is not killed, and saves once:
then nothing but complete checkpoints may be left. A job that takes longer than a minute has hung.

Prints a table of what was survived. The first thing that is not as it must be ends the script with status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

from harness import ROOT, orderly

sys.path.insert(0, str(ROOT))

from tests.mpi.killing import CALLS, SETTINGS, Place, draws
from tests.mpi.waiting import close_all

#: Kills after which a job follows that is not killed.
_IN_A_ROW = 4

_MEANT = {
    "stage": "contents are made or copied",
    "write": "half of a call was written",
    "sync": "a file or directory is synced",
    "rename": "a manifest or directory gets its name",
    "make": "a directory is made",
    "delete": "an old one, or what a killed job left, is deleted",
    "time": "whatever it does, by its clock, from outside",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--place", type=Path, help="where data go (default: the directory for temporary files)")
    given = parser.parse_args()
    done: Counter[tuple[str, str]] = Counter()
    if given.place:
        given.place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.place) as directory, ExitStack() as stack:
        stack.callback(close_all)
        places = []
        for number, (settings, ranks) in enumerate(SETTINGS):
            place = Place(Path(directory, f"{number}"), settings, ranks)
            place.directory.mkdir()
            places.append((place, draws(given.seed + number, ranks)))
        for round_number, (place, kills) in enumerate(islice(cycle(places), -(-given.kills // _IN_A_ROW))):
            left = given.kills - _IN_A_ROW * round_number
            for kill in islice(kills, min(left, _IN_A_ROW)):
                place.run(kill)
                done[kill.kind, "ended before" if place.has_ended() else kill.how] += 1
            place.run(saves=1)
            place.expect_no_litter()
            print(f"{sum(done.values())} of {given.kills}", file=sys.stderr)
    print("| killed when | one rank | all ranks at once | SIGTERM | job ended before |\n|---|---:|---:|---:|---:|")
    for kind in CALLS:
        row = " | ".join(f"{done[kind, outcome]}" for outcome in ("one", "all", "ended", "ended before"))
        print(f"| {_MEANT[kind]} | {row} |")
    return 0


if __name__ == "__main__":
    orderly(main)
