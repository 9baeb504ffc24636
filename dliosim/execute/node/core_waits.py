"""The time that threads of this process were ready to run but had no core, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def core_wait(threads: Sequence[int]) -> int | None:
    """Return the sum of the times (ns) that threads, by their native ids, have waited for a core since they started.

    A wait begins when a thread could run and ends when it runs: after a sleep, or after another thread took its core.
    None where the kernel does not count it: it has no such file, or says that threads that work have never run. Reading
    takes some 10 us a thread.
    """
    waited = 0
    for thread in threads:
        try:
            ready = parse_schedstat(Path(f"/proc/self/task/{thread}/schedstat").read_text())
        except OSError:
            return None
        if ready is None:
            return None
        waited += ready
    return waited


def parse_schedstat(schedstat: str) -> int | None:
    """Return the second of a thread's three schedstat numbers; None if the first (run time) is 0 or the text odd."""
    numbers = schedstat.split()
    return int(numbers[1]) if len(numbers) == 3 and all(map(str.isdecimal, numbers)) and int(numbers[0]) else None


def core_wait_since(before: int | None, threads: Sequence[int]) -> int:
    """Return the time (ns) that the same threads have waited since `before`; -1 where the kernel does not count it."""
    now = core_wait(threads)
    return -1 if before is None or now is None else now - before
