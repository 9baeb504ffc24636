"""Threads and cores: sleep to a deadline, keep a core busy without the interpreter lock, time ready without a core."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter_ns, sleep

from dliosim.measure.progress.board import process_row

#: A sleep ends this early (ns), and the rest is spun: with `set_timer_slack`, nine sleeps of ten are late by less.
_SPIN = 20_000

#: A pause longer than this (ns) is marked, so that the watcher does not take it for a stall.
_LONG = 100_000_000

_SLACK = 1000  # ns
_SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of linux/prctl.h

#: Share of a long time that one call takes: at the end of each call this thread competes with readers for the
#: interpreter lock. A rest below _SHORT (ns) is one call, since an error in the core's speed matters little there.
_AT_ONCE, _SHORT = 0.95, 100_000
_TRIAL = 500  # rounds of hashing, a few hundred microseconds


def set_timer_slack() -> None:
    """Let the kernel wake this thread, and those that it starts from now on, at most 1 us late instead of 50.

    By default the kernel groups wake-ups, which makes a sleep of 1 ms take 1.055 ms and a sleep of nothing 53 us. If
    the kernel refuses, that stays.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(_SLACK), 0, 0, 0)


def sleep_until(deadline: int, may_spin: bool) -> int:
    """Return at `deadline` (perf_counter_ns) or soon after; the result is how much later, in ns.

    With `may_spin` False the thread only sleeps, as it must where ranks outnumber cores.
    """
    margin = _SPIN if may_spin else 0
    while (left := deadline - perf_counter_ns() - margin) > 0:
        if left > _LONG:
            process_row().mark_pause(deadline)
        sleep(left * 1e-9)
    # sleep(0) releases the interpreter lock in each turn, so that the readers of this process continue.
    while (late := perf_counter_ns() - deadline) < 0:
        sleep(0)
    return late


def keep_core_busy(nanoseconds: int) -> int:
    """Keep a core busy for that long without the interpreter lock; return how much longer it took, in ns."""
    deadline = perf_counter_ns() + nanoseconds
    speed = _rounds_per_ns()
    if nanoseconds > _LONG:
        process_row().mark_pause(deadline)
    while (left := deadline - perf_counter_ns()) > 0:
        _hash(max(1, int((left if left < _SHORT else left * _AT_ONCE) * speed)))
    return -left


def _hash(rounds: int) -> None:
    # Key stretching: any number of rounds in one call, which releases the lock and needs no memory bandwidth.
    _key_stretching()("sha256", b"dliosim", b"dliosim", rounds)


@cache
def _key_stretching() -> Callable[[str, bytes, bytes, int], bytes]:
    from hashlib import pbkdf2_hmac  # loads OpenSSL, for `busy` loops alone

    return pbkdf2_hmac


@cache
def _rounds_per_ns() -> float:
    """Return the rounds of hashing in a nanosecond on this core; measured once, in a few milliseconds."""
    best = 0.0
    for _ in range(5):
        begun = perf_counter_ns()
        _hash(_TRIAL)
        best = max(best, _TRIAL / (perf_counter_ns() - begun))
    return best


def core_wait(threads: Sequence[int]) -> int | None:
    """Return the sum of the times (ns) that threads, by their native ids, have waited for a core since they started.

    A wait begins when a thread could run and ends when it runs: after a sleep, or after another thread took its core.
    None if the kernel does not count it: it has no such file, or says that threads that work have never run. Reading
    takes some 10 us a thread.
    """
    return sum_waits(read_schedstats(threads))


def read_schedstats(threads: Sequence[int]) -> list[str] | None:
    """Return the text of each thread's schedstat file; None if one has no such file."""
    try:
        return [Path(f"/proc/{thread}/schedstat").read_text() for thread in threads]
    except OSError:
        return None


def sum_waits(schedstats: Sequence[str] | None) -> int | None:
    """Return the sum of the waits (ns) that texts of `read_schedstats` have; None if the kernel does not count."""
    waits = [parse_schedstat(text) for text in schedstats or ()]
    known = [wait for wait in waits if wait is not None]
    return None if schedstats is None or len(known) < len(waits) else sum(known)


def parse_schedstat(schedstat: str) -> int | None:
    """Return the second of a thread's three schedstat numbers; None if the first (run time) is 0 or the text odd."""
    numbers = schedstat.split()
    return int(numbers[1]) if len(numbers) == 3 and all(map(str.isdecimal, numbers)) and int(numbers[0]) else None


def core_wait_since(before: int | None, threads: Sequence[int]) -> int:
    """Return the time (ns) that the same threads have waited since `before`; -1 if the kernel does not count it."""
    return wait_between(before, core_wait(threads))


def wait_between(before: int | None, after: int | None) -> int:
    """Return the difference of two waits (ns); -1 if one is not counted."""
    return -1 if before is None or after is None else after - before
