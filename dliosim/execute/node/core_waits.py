"""How long threads of this process that were ready to run have waited for a core, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def core_wait(threads: Sequence[int]) -> int | None:
    """The time (ns) that threads of this process, by their native ids, have waited for a core in their lives: the sum.

    From when a thread could run to when it ran, be it after a sleep or because another took the core from it. None
    where the kernel does not count it: it has no such file, or says of threads that work that they have never run. A
    look takes some 10 us a thread.
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
    """The second number of a thread's schedstat; None where the first (how long it ran) is 0, or text is another."""
    numbers = schedstat.split()
    return int(numbers[1]) if len(numbers) == 3 and all(map(str.isdecimal, numbers)) and int(numbers[0]) else None


def core_wait_since(before: int | None, threads: Sequence[int]) -> int:
    """How long the same threads have waited since `before`; -1 where the kernel does not count it."""
    now = core_wait(threads)
    return -1 if before is None or now is None else now - before
