"""Waiting for MPI with pauses: MPICH spins, and with more ranks than cores spinning ranks block those with work."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep

from mpi4py import MPI

#: The first pause between two tests of a request, and the longest pause for each rank that may wait; seconds. 511 ranks
#: that test every 5 ms keep two cores busy: a rank with work then waits 0.3 s for a core.
_FIRST, _LONGEST = 50e-6, 1e-4


def wait(request: MPI.Request, ranks: int) -> None:
    """Wait for a request with pauses that grow; the longest is proportional to the `ranks` that may wait with it."""
    wait_until(request.Test, ranks)


def wait_until(there: Callable[[], bool], ranks: int) -> None:
    """Wait until `there` returns true, with the pauses of `wait`."""
    pause, longest = _FIRST, max(_FIRST, _LONGEST * ranks)
    while not there():
        sleep(pause)
        pause = min(pause * 1.5, longest)
