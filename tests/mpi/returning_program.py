"""Run by every rank of a job: nothing goes wrong."""

from __future__ import annotations

from mpi4py import MPI


def main(comm: MPI.Intracomm) -> None:
    comm.Barrier()
    print(f"{comm.size} ranks", end="")
