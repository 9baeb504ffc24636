"""A window of requests: as some complete, others take their place."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from mpi4py import MPI


def keep_in_flight(
    count: int, depth: int, issue: Callable[[int], MPI.Request], back: Callable[[int, MPI.Status, int], None]
) -> None:
    """Issue requests 0 to `count` - 1, up to `depth` of which are in flight at a time, and wait for all.

    `issue` makes one; `back` is told its number, its status and the clock (ns) when it has completed. Whatever either
    of them raises is raised when nothing is in flight any more, as requests still fill their buffers until then; and so
    is the MPI.Exception of a request that failed.
    """
    requests: list[MPI.Request] = []
    numbers: list[int] = []
    statuses = [MPI.Status() for _ in range(min(depth, count))]
    issued = 0
    try:
        while issued < count or requests:
            while issued < count and len(requests) < depth:
                requests.append(issue(issued))
                numbers.append(issued)
                issued += 1
            done = MPI.Request.Waitsome(requests, statuses[: len(requests)]) or []
            now = perf_counter_ns()
            for at, status in zip(done, statuses, strict=False):
                back(numbers[at], status, now)
            left = [at for at, request in enumerate(requests) if request != MPI.REQUEST_NULL]
            requests, numbers = [requests[at] for at in left], [numbers[at] for at in left]
    except BaseException:
        _finish(requests)
        raise


def _finish(requests: list[MPI.Request]) -> None:
    """Wait for what is in flight, however it ends."""
    for request in requests:
        try:
            request.Wait()
        except MPI.Exception:
            continue
