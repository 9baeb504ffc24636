"""Kill jobs at random moments, while their ranks wait for each other: each must end soon, and leave nothing behind.

    python scripts/dev/kill_jobs.py [--kills 100] [--seed 1] [--place DIR] [--only WORK ...]

Jobs of 2 ranks, and of 5, which sleep while they wait where there are fewer cores, take turns with what they do: steps
with a barrier or an allreduce or by reader processes, saves (by rank 0, a file a rank, async), a prepare, copies to the
nodes (tests/mpi/killed_jobs.py). Half a second of it at most, and one rank, a reader process, mpiexec or its process
group gets SIGKILL. After it come the signals that tell a job
to end: Ctrl-C to the group, SIGTERM to rank 0 and to mpiexec.

Prints how soon they ended. A process or a file in /dev/shm that is left, an end after more than 2 s (the loss of a
reader process is an error, which all ranks report first), and another status or message than a signal has to give, are
each a line, and make the status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

from harness import ROOT, header, middle, orderly, row

sys.path.insert(0, str(ROOT))

from tests.mpi.killed_jobs import RANKS, SOON, WORK, Ended, Kill, draws, end, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--place", type=Path, help="where data go (default: the directory for temporary files)")
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK), metavar="WORK", help="of these alone")
    given = parser.parse_args()
    if given.place:
        given.place.mkdir(parents=True, exist_ok=True)
    done: defaultdict[tuple[str, str], list[Ended]] = defaultdict(list)
    problems = 0
    kills = (kill for kill in draws(given.seed) if kill.work in given.only)
    for kill in (*islice(kills, given.kills), *(kill for kill in _end_requests() if kill.work in given.only)):
        with tempfile.TemporaryDirectory(dir=given.place) as directory:
            ended = end(kill, Path(directory))
        done[f"{kill.number.name} to {kill.whom}", f"{kill.ranks} ranks"].append(ended)
        found = [*wrong(kill, ended)]
        if kill.number == SIGKILL and kill.whom != "reader" and ended.seconds > SOON:
            found.append(f"ended after {ended.seconds:.1f} s")
        problems += len(found)
        for problem in found:
            print(f"{kill}: {problem}\n{ended.said}", flush=True)
        print(f"{sum(map(len, done.values()))}: {kill.work}, {ended.seconds:.1f} s", file=sys.stderr, flush=True)
    header("signal", "ranks", "jobs", "seconds until nothing was left", "status 0")
    for (whom, ranks), all_ended in sorted(done.items()):
        seconds, zeros = middle([one.seconds for one in all_ended]), sum(one.status == 0 for one in all_ended)
        row(whom, ranks, len(all_ended), seconds, zeros)
    print(f"{problems} not as they must be")
    return 1 if problems else 0


def _end_requests() -> Iterator[Kill]:
    """Yield each way to ask a job to end, in each work."""
    for ranks in RANKS:
        for work in WORK:
            yield Kill(work, ranks, "group", SIGINT)
            yield Kill(work, ranks, "rank", SIGTERM)
            yield Kill(work, ranks, "mpiexec", SIGTERM)


if __name__ == "__main__":
    orderly(main)
