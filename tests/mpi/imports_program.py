"""`dliosim` that prints, for each rank, which libraries it has loaded by the end."""

from __future__ import annotations

import sys

from mpi4py import MPI

from dliosim.cli import main

HEAVY = ("lark", "h5py", "tabulate", "dliosim.language")

if __name__ == "__main__":
    status = main(sys.argv[1:])
    loaded = [name for name in HEAVY if name in sys.modules]
    found = MPI.COMM_WORLD.gather(loaded)
    if found is not None:
        print("".join(f"loaded by {rank}: {' '.join(names)}\n" for rank, names in enumerate(found)), end="")
    sys.exit(status)
