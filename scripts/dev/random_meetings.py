"""Run random sequences of what ranks do together, in all ways in which they meet: each must give what it has to.

    python scripts/dev/random_meetings.py [--sequences 10000] [--first 0]

Jobs of 1, 2, 3, 5, 8 and 17 ranks take turns (tests/mpi/meeting_program.py), each with the next sequences. A sequence
is drawn by its number: eight operations on one world, errors and ranks that are late among them. Every job runs its own
in each way: asleep in the memory of one node, in that of two (split by hand), and, up to 2 ranks, by MPI's own calls,
on one node and on two. The first sequence that goes wrong, or hangs, ends the script with status 1 and its number.

Prints how many sequences ran on how many ranks.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from harness import header, mpiexec, orderly, row, run

#: Ranks of one job after the other.
_RANKS = (1, 2, 3, 5, 8, 17)

#: Sequences of a job, and seconds after which it has hung.
_OF_A_JOB = 50
_LONGEST = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=10_000, help="how many in all")
    parser.add_argument("--first", type=int, default=0, help="the number of the first; each next one has the next")
    given = parser.parse_args()
    done: Counter[int] = Counter()
    end = given.first + given.sequences
    for job, first in enumerate(range(given.first, end, _OF_A_JOB)):
        ranks, count = _RANKS[job % len(_RANKS)], min(_OF_A_JOB, end - first)
        program = ("-m", "mpi4py", "-m", "tests.mpi.meeting_program", f"{count}", f"{first}")
        run([mpiexec(), "-n", f"{ranks}", sys.executable, *program], _LONGEST)
        done[ranks] += count
        print(f"{done.total()} of {given.sequences}", file=sys.stderr, flush=True)
    header("ranks", "sequences")
    for ranks, count in sorted(done.items()):
        row(ranks, count)
    return 0


if __name__ == "__main__":
    orderly(main)
