"""Waiting for MPI in pauses: MPICH spins, and ranks that outnumber cores then keep each other from them."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep

from mpi4py import MPI

#: The first pause between two looks at a request, and the longest for each rank that may wait (seconds). 511 ranks that
#: look every 5 ms keep two cores busy with looking: whoever has work then waits 0.3 s for a core.
_FIRST, _LONGEST = 50e-6, 1e-4


def wait(request: MPI.Request, ranks: int) -> None:
    """Wait for a request in pauses that grow, up to a length that follows how many `ranks` wait at the same time."""
    wait_until(request.Test, ranks)


def wait_until(there: Callable[[], bool], ranks: int) -> None:
    """Wait until `there` is true; see `wait`."""
    pause, longest = _FIRST, max(_FIRST, _LONGEST * ranks)
    while not there():
        sleep(pause)
        pause = min(pause * 1.5, longest)
