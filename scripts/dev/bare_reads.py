"""Random reads by a bare loop, into as much memory as a batch takes: cross_check.py compares dliosim with it.

    mpiexec -n RANKS python scripts/dev/bare_reads.py FILE SIZE TRANSFER BATCH PASSES DIRECT

Every rank makes its share of the calls of TRANSFER bytes in which FILE has SIZE, in an order that is new in each pass,
by os.preadv into the BATCH rows of one buffer in turn. Nothing is recorded, checked or waited for. Printed are the
seconds of the slowest rank, opening and ordering left out. DIRECT is 1 for O_DIRECT, else 0.
"""

from __future__ import annotations

import os
import sys
from time import perf_counter

import numpy as np
from mpi4py import MPI

from dliosim.execute.backends.contract import allocate


def main(comm: MPI.Intracomm, file: str, size: int, transfer: int, batch: int, passes: int, direct: int) -> None:
    calls = size // transfer // comm.size
    buffer = allocate(batch * transfer)
    rows = [[buffer[first : first + transfer]] for first in range(0, len(buffer), transfer)]
    into = [rows[call % batch] for call in range(calls)]
    random, seconds = np.random.default_rng(1), 0.0
    descriptor = os.open(file, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    for _ in range(passes):
        order = random.permutation(calls * comm.size) * transfer  # the same on all ranks
        offsets = order[comm.rank :: comm.size].tolist()
        comm.Barrier()
        began = perf_counter()
        read = sum(map(os.preadv, [descriptor] * calls, into, offsets))
        seconds += perf_counter() - began
        if read != calls * transfer:
            sys.exit(f"{file}: {read} bytes were read of {calls * transfer}")
    slowest = comm.reduce(seconds, MPI.MAX)
    if slowest is not None:
        print(slowest)


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1], *map(int, sys.argv[2:]))
