"""Ctrl-C, SIGTERM and SIGUSR1: held from the program's first line on, and handled by a thread once MPI has started."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

_ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}
_KEPT = (*_ENDING, signal.SIGUSR1)

#: Seconds between two looks for the launcher, if the kernel does not report its end (Linux before 5.3).
_LOOK = 5.0

#: First words of what `save` returns once the results are written, or being written.
OVER = "the run was over"


@cache
def capture_signals() -> int:
    """Hold those signals from now on; return a descriptor that gives the number of each as a byte.

    Nothing else happens until `handle_signals` reads them. A rank that ended before MPI started would leave the others
    in MPI_Init for ever: MPICH's launcher does not notice a rank that ends so early.
    """
    reader, teller = os.pipe()
    os.set_blocking(teller, False)
    signal.set_wakeup_fd(teller)  # before the handlers, which alone would drop a signal
    for number in _KEPT:
        signal.signal(number, lambda number, frame: None)
        # A run continues after SIGUSR1: its calls must not be interrupted.
        signal.siginterrupt(number, False)
    return reader


def handle_signals(
    rank: int,
    save: Callable[[str], str],
    end: Callable[[int], None],
    end_late: Callable[[str, int], None],
    is_ending: Callable[[], bool],
    launcher: int | None,
) -> None:
    """Start a thread that handles the signals held so far, and later ones during any call of this rank.

    Python handles signals between two of its own instructions, and a rank that waits in MPI executes none. On rank 0
    `save` is called with the signal's name and writes the finished results, without MPI; the text that it returns is
    printed. Then `end` is called with the exit status, except after SIGUSR1. If `is_ending` says that a rank has
    printed why it ends the job, SIGTERM is the launcher's answer to that, and nothing is saved or printed. Other ranks
    leave all of this to rank 0, as a terminal and a batch system signal it as well. If SIGTERM came to another rank
    alone, `end_late` is called with a message and the status.

    This process is killed when the process `launcher` ends: nothing else would end the ranks of a launcher that was
    killed, which wait for each other or compute on. None, or 0 for a process that is outside of this one's container,
    is not watched.
    """
    reader = capture_signals()
    ended = _watch_process(launcher) if launcher else None
    awaited = [reader] if ended is None else [reader, ended]
    longest = _LOOK if launcher and ended is None else None

    def watch() -> None:
        while True:
            ready, _, _ = select.select(awaited, [], [], longest)
            if ended in ready or (longest and launcher and _has_ended(launcher)):
                os.kill(os.getpid(), signal.SIGKILL)
            if reader not in ready:
                continue
            number = signal.Signals(os.read(reader, 1)[0])
            if number not in _KEPT:
                continue
            status = 128 + number
            if rank == 0:
                if number != signal.SIGTERM or not is_ending():
                    _report_signal(number, save)
                if number in _ENDING:
                    end(status)
            elif number == signal.SIGTERM:
                end_late(f"error: rank {rank} received SIGTERM, and rank 0 has not ended the job", status)

    threading.Thread(target=watch, name="signals", daemon=True).start()


@cache
def _watch_process(process: int) -> int | None:
    """Return a descriptor that is readable once a process has ended; None if Python or the kernel has none."""
    with suppress(AttributeError, OSError):
        return os.pidfd_open(process)
    return None


def _has_ended(process: int) -> bool:
    """Return True if a process has ended, even if its parent has not collected it."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:  # no descriptor left, or no right to read: it proves nothing
        return False
    return stat.rpartition(")")[2].split()[0] in "ZX"


def ignore_sigusr1() -> None:
    """Ignore SIGUSR1 from now on: during Python's exit it would end the process, and replace its status."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _report_signal(number: signal.Signals, save: Callable[[str], str]) -> None:
    found = save(number.name)
    text = f"{_ENDING.get(number, number.name)}: {found}"
    if number not in _ENDING and not found.startswith(OVER):
        text += "; the run continues"
    with suppress(OSError, ValueError):
        sys.stderr.write(f"\n{text}\n")
        sys.stderr.flush()
