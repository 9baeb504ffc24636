"""Run by every rank of a job: the last one kills itself (`die`) or never comes (`hang`), and the others wait."""

from __future__ import annotations

import os
import signal

from mpi4py import MPI


def main(comm: MPI.Intracomm, how: str) -> None:
    if comm.rank == comm.size - 1:
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
    comm.Barrier()
