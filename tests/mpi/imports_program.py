"""`dliosim` that prints, for each rank, which modules it has loaded by the end."""

from __future__ import annotations

import sys

from mpi4py import MPI

from dliosim.cli import main

if __name__ == "__main__":
    status = main(sys.argv[1:])
    found = MPI.COMM_WORLD.gather(sorted(sys.modules))
    if found is not None:
        print("".join(f"loaded by {rank}: {' '.join(names)}\n" for rank, names in enumerate(found)), end="")
    sys.exit(status)
